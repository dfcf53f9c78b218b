//! Faults on a schedule: a reproducible [`Plan`] from a seed, and its execution.

mod plan;
mod run;
mod seed;

pub use plan::{Fault, Plan, Role, Shape, Step};
pub use run::{Event, Workers};
pub use seed::{SEED_VARIABLE, seed_from_environment};
