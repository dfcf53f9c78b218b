//! What the options of `lockkeeper run` promise, each on real servers.

mod auth;
mod ending;
mod exits;
mod grants;
mod harness;
mod modes;
mod socket;
mod tls;
