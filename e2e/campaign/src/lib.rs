//! Tries to break Lockkeeper on real servers: [`trials`], one kind of fault each, round after round.
//!
//! A trial prints a line per round and figures at the end. It fails only when a promise was violated, and not
//! when something took long: durations are figures. A few rounds of each run as tests (`tests/trials.rs`),
//! many as `lockkeeper-campaign`.

#![warn(unreachable_pub)]

mod busy;
mod context;
mod control;
mod figures;
mod fixture;
pub mod other_clients;
pub mod random_faults;
mod sample;
mod spares;
mod times;
pub mod trials;
mod witness;

pub use context::Context;
pub use figures::{Figure, Figures, Violated};
pub use random_faults::{SEED_VARIABLE, seed_from_environment};
pub use sample::Sample;
pub use times::LeaseOption;
