//! Hostile inputs for every parser of external input.
//!
//! A [`Target`] feeds one parser and asserts its promises: it does not panic, it accepts only what the
//! documents allow, it reads back what it writes, and its memory stays within its bound. Two engines make the
//! inputs: [`mutation`] at random, for some seconds in each run of the tests, and libFuzzer by coverage, for
//! minutes (`make fuzz`; the command is in `src/bin/fuzz.rs`).

#![warn(unreachable_pub)]

mod bytes;
pub mod mutation;
mod target;
pub mod targets;

pub use target::{Excess, Target};
pub use targets::TARGETS;
