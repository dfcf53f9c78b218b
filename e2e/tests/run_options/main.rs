//! The promises of the options of `lockkeeper run`, each on real servers.

mod auth;
mod containment;
mod ending;
mod exits;
mod frozen;
mod grants;
mod harness;
mod hidden;
mod history;
mod inherited;
mod keepers;
mod modes;
mod nested;
mod numbers;
mod overload;
mod page;
mod releases;
mod remote;
mod socket;
mod spared;
mod storm;
mod stranger;
mod survivors;
mod ticks;
mod tls;
mod users;
