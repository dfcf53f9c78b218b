//! Is what the lock's real task does on a real ensemble, under faults, what the specification allows?
//!
//! [`rounds`] lets contenders of many locks live on three real servers, and [`recording`] stands between the task and
//! its connections. A [`record`] of each lock becomes a [`trace`] in the words of `lock/spec/TraceTakeover.tla`, and
//! [`tlc`] looks for a behaviour of the specification with these events. [`wrong`] spoils traces: they have to be
//! rejected. `lock/spec/README.md` says what is observed and what is not.

#![warn(unreachable_pub)]

mod contender;
mod faults;
mod freeze;
mod record;
mod recording;
pub mod report;
pub mod rounds;
pub mod times;
pub mod tlc;
pub mod trace;
pub mod wrong;
