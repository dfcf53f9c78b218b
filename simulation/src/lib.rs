//! The lock, the keeper and the guard together, in many random histories, each from one seed.
//!
//! What runs here is real where it decides: the task of the lock (`lock/src/task`), the keeper's
//! decider (`sidecar/src/keeper/decider`), the guard's schedule (`sidecar/src/guard/schedule`) and the
//! bytes of their protocol. What stands around it is simulated, on one clock: the ensemble
//! (`lockkeeper_lock::fake`), the [`kernel`] with its processes and signals, the [`socket`] between
//! guard and keeper and the [`door`] to it, and whoever starts again what has ended ([`pod`]).
//!
//! True of every history, whatever went wrong in it:
//! * no two applications run at once that exclude each other, down to the last process of the tree;
//! * fencing tokens grow;
//! * nothing runs under a token whose contender the ensemble has deleted;
//! * when the faults have ended everybody is served;
//! * when all keepers are gone, what was granted ends.
//!
//! Nobody deletes contenders by hand here: exclusion is not promised then.

mod door;
mod faults;
mod guard;
mod guards;
mod history;
mod keeper;
mod kernel;
mod ledger;
mod plan;
mod pod;
mod series;
mod socket;
mod stage;

pub use history::{Outcome, Summary, history};
pub use plan::{Hazard, Rules, Setup};
pub use series::{Failure, Series, series};
