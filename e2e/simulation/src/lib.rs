//! The lock, the keeper and the guard together, in many random histories, each from one seed.
//!
//! The deciding parts are real: the task of the lock (`lock/src/task`), the keeper's decider
//! (`sidecar/src/keeper/decider`), the guard's schedule (`sidecar/src/guard/schedule`) and the bytes of their
//! protocol. Everything around them is simulated, on one clock: the ensemble (`lockkeeper_fake`), the
//! [`kernel`] with its processes and signals, the [`socket`] between guard and keeper and the [`door`] to it,
//! and the kubelet or service manager that restarts processes ([`pod`]).
//!
//! These are true of every history, whatever its faults:
//! * no two applications run at once that exclude each other, down to the last process of the tree;
//! * fencing tokens grow;
//! * nothing runs under a token whose contender the ensemble has deleted;
//! * when the faults have ended, every contender is served;
//! * when all keepers are gone, every grant ends.
//!
//! No contender is deleted by hand here, because Lockkeeper does not promise exclusion then.

#![warn(unreachable_pub)]

mod door;
mod doorway;
mod faults;
mod guard;
mod guards;
mod history;
mod keeper;
mod kernel;
mod ledger;
mod machine;
mod mailbox;
mod maybe;
mod plan;
mod pod;
mod series;
mod simulation;
mod socket;

pub use history::{Outcome, Summary, history};
pub use plan::{Hazard, Rules, Setup};
pub use series::{Failure, Series, series};
