//! The operator and a real ensemble: the picture of the queues, and who may touch what.

mod harness;
mod picture;
mod rights;
