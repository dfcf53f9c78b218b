//! The promises of the options of `lockkeeper run`, each on real servers.

mod auth;
mod ending;
mod exits;
mod frozen;
mod grants;
mod harness;
mod hidden;
mod keepers;
mod modes;
mod nested;
mod overload;
mod socket;
mod stranger;
mod survivors;
mod tls;
