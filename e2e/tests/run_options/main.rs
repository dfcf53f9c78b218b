//! What the options of `lockkeeper run` promise, each on real servers.

mod auth;
mod ending;
mod exits;
mod grants;
mod harness;
mod modes;
mod nested;
mod overload;
mod socket;
mod stranger;
mod survivors;
mod tls;
