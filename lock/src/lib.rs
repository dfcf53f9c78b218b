//! A distributed lock on ZooKeeper.
pub mod clock;
pub mod ensemble;
mod error;
#[cfg(feature = "fake")]
pub mod fake;
mod handle;
mod lease;
mod options;
mod participant;
pub mod path;
mod queue;
mod record;
mod state;
mod task;
mod timing;
mod token;
pub mod zookeeper;

pub use clock::{BootClock, BootInstant, Clock};
pub use error::LockError;
pub use handle::{Lock, LockView};
pub use lease::{Lease, Renewal};
pub use options::{LockOptions, Observer};
pub use participant::Participant;
pub use path::LockPath;
pub use queue::Mode;
pub use record::{CleanRelease, ContenderData, Control, Identity, Pod, YieldRequest};
pub use state::{LockState, LockStatus, LossReason};
pub use timing::{KILL_ALLOWANCE, SESSION_TIMEOUT_TICKS, SLACK, Timing, UnsafeTiming};
pub use token::FencingToken;
