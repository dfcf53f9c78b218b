//! Hostile inputs for every parser of what others write.
//!
//! A [`Target`] feeds one parser and asserts what is promised of it: it does not panic, what it accepts is what the
//! documents say, what it writes it reads back, and it takes no more memory than its bound. Two engines make the
//! inputs: [`mutation`] at random, for some seconds in each run of the tests, and libFuzzer by coverage, for minutes
//! (`make fuzz`; the command is in `src/bin/fuzz.rs`).

mod bytes;
pub mod mutation;
mod target;
pub mod targets;

pub use target::{Excess, Target};
pub use targets::TARGETS;
