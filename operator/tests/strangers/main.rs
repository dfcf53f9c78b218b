//! What others may send or name does them no good and the operator no harm: reviews that no API server sent, and
//! registries that answer as they like.

#[path = "../support/tls.rs"]
mod tls;
#[path = "../support/webhook.rs"]
mod webhook;

mod api;
mod asked;
mod authority;
mod callers;
mod churn;
mod floods;
mod forged;
#[expect(
    dead_code,
    reason = "most kinds of servers are for the tests beside a real ensemble"
)]
mod hostile;
mod large;
mod many;
mod registries;
