//! The locks of the field under the same faults, measured by one recorder.
//!
//! A [`System`](systems::System) is a lock as its documentation tells users to use it, with its servers. Two contenders
//! compete for it on machines of their own; the one that holds it runs the recorder, and a driver stops that when, and
//! only when, the library says that the lock is lost. A [`Fault`](faults::Fault) strikes, and [`activity`] reads from the
//! records who ran when.
//!
//! A [`Crowd`](crowd::Crowd) has many contenders in one process, without a command: [`cost`] is what a lock takes when
//! nothing breaks.

#![warn(unreachable_pub)]

pub mod activity;
mod cell;
mod contender;
mod cost;
pub mod crowd;
mod driver_commands;
pub mod faults;
pub mod lease;
mod pace;
pub mod page;
pub mod picture;
pub mod plan;
pub mod probe;
mod programs;
pub mod properties;
pub mod provenance;
mod rank;
pub mod results;
pub mod round;
pub mod second;
mod servers;
pub mod site;
pub mod systems;
pub mod turns;
mod versions;
