//! The operator and a real ensemble: the picture of the queues, and who may touch what.

mod agreement;
mod apart;
#[path = "../support/authority.rs"]
mod authority;
mod crowds;
mod harness;
mod ids;
mod others;
mod picture;
mod rights;
