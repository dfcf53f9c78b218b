//! The operator as a process, with a real API server and a real ensemble, under exactly the rights that
//! the chart gives it.

#[path = "../support/authority.rs"]
mod authority;
mod contender;
mod deleting;
mod figures;
mod following;
mod handing_over;
mod others;
mod replicas;
mod rotating;
mod secured;
mod world;
