//! The operator and a real ensemble: the picture of the queues, and who may touch what.

#[path = "../support/authority.rs"]
mod authority;
mod harness;
mod others;
mod picture;
mod rights;
