//! Real ZooKeeper servers, each a process on a [`Host`](crate::Host) of its own.

mod client;
mod config;
mod counter;
mod members;
mod servers;
mod shared;
mod starting;
mod words;

pub use client::{block_on, connector, with_clients};
pub use config::{Config, TlsFiles};
pub use servers::{Ensemble, SUPER};
pub use shared::shared;
pub use words::Mode;
