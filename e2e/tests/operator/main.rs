//! The operator and a real ensemble: the picture of the queues, and the rights to nodes.

mod agreement;
mod apart;
mod crowds;
mod dead;
mod harness;
mod ids;
mod other_ensembles;
mod picture;
mod rights;
mod strangers;
