//! An in-memory ensemble on tokio's paused clock, for tests of lockkeeper-lock and of crates that use it.
//!
//! [`World`] is the ensemble and the network, [`Client`] is one of its clients (an [`Ensemble`]), [`SkewedClock`] is
//! that client's clock. One seed decides all delays, so a history can be repeated. It behaves like ZooKeeper in these
//! points:
//! * the leader puts writes in order, and they need a majority; each server carries them out when it receives them, so
//!   reads and watch events of a follower are late, but always in order on one connection, and a client sees its own
//!   writes;
//! * only the leader ends sessions, at the first tick after last touch + T; it learns what a follower heard from the
//!   replies to its pings, every half tick, and when a session moves to another server; the leader ends the sessions of
//!   one tick one by one, and a touch in that time does not save a session;
//! * a follower without its leader continues to answer reads for `sync_limit` ticks;
//! * a session has one connection: writes over an older one are refused;
//! * the number in a contender's name is the number of children that its parent ever had.
//!
//! Left out: access control lists other than "forbidden" and "protected", pauses of single threads of a server, and a
//! leader that is paused at an awkward moment; `lock/tests/lease_model.rs` has those. Here the creation of a path with
//! its parents is one transaction.
//!
//! ```
//! use lockkeeper_lock::ensemble::{Connection, Ensemble};
//! use lockkeeper_fake::{Options, World};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let world = World::new(Options { seed: 7, ..Options::default() });
//! let client = world.client("a");
//! let connection = client.attach(0, None, std::time::Duration::from_secs(1)).await.unwrap();
//! connection.make_path("/locks/report", Vec::new()).await.unwrap();
//! assert_eq!(world.children("/locks"), ["report"]);
//! # }
//! ```
//!
//! [`Ensemble`]: lockkeeper_lock::ensemble::Ensemble

#![warn(unreachable_pub)]

mod client;
mod client_end;
mod connection;
mod election;
mod ensemble_faults;
mod environment;
mod eventually;
mod faults;
mod freezable;
mod happened;
mod intruders;
mod leader;
mod link;
mod messages;
mod options;
mod server;
mod shared;
mod skewed_clock;
mod state;
mod takeovers;
#[cfg(test)]
mod tests;
mod time;
mod tree;
mod world;

pub use client::Client;
pub use connection::FakeConnection;
pub use ensemble_faults::EnsembleFaults;
pub use environment::number;
pub use eventually::eventually;
pub use faults::Traffic;
pub use freezable::Freezable;
pub use happened::{Happened, Record};
pub use options::Options;
pub use skewed_clock::SkewedClock;
pub use takeovers::Takeovers;
pub use world::World;
