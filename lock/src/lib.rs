//! A distributed lock on ZooKeeper.
pub mod clock;
pub mod ensemble;
mod lease;
mod state;
mod timing;
mod token;

pub use clock::{BootClock, BootInstant, Clock};
pub use lease::{Lease, Renewal};
pub use state::{LockState, LockStatus, LossReason};
pub use timing::{KILL_ALLOWANCE, SESSION_TIMEOUT_TICKS, SLACK, Timing, UnsafeTiming};
pub use token::FencingToken;
