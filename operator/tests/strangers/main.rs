//! What others may send or name does them no good and the operator no harm: reviews that no API server sent,
//! registries that answer as they like, and ensembles that a lock names.

#[path = "../support/authority.rs"]
mod authority;
#[path = "../support/tls.rs"]
mod tls;
#[path = "../support/webhook.rs"]
mod webhook;

mod api;
mod asked;
mod callers;
mod churn;
mod ensembles;
mod floods;
mod forged;
mod hostile;
mod large;
mod many;
mod objects;
mod registries;
mod world;
