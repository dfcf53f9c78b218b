//! The operator as a process, with a real API server and a real ensemble, under exactly the rights that
//! the chart gives it.

mod contender;
mod deleting;
mod figures;
mod following;
mod handing_over;
mod replicas;
mod world;
