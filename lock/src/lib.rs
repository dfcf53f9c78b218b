//! A distributed lock on ZooKeeper that is over for its holder *before* the ensemble can give it to
//! anybody else.
//!
//! A [`Lock`] is a place in the queue of a lock, with a session of its own: an exclusive lock, a
//! semaphore or one side of a read/write lock ([`Mode`]). Contenders stand in the queue with
//! ephemeral sequential nodes named as Apache Curator names them, so that its clients can stand in the
//! same queue; each watches the one before it, and nobody is woken who cannot act.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use lockkeeper_lock::zookeeper::ZooKeeper;
//! use lockkeeper_lock::{BootClock, Lock, LockOptions, Timing};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let timing = Timing::new(Duration::from_secs(15));
//! timing.check()?;
//! let ensemble = ZooKeeper::new("zk1:2181,zk2:2181,zk3:2181".parse()?, timing.session_timeout);
//! let lock = Lock::new(ensemble, BootClock, LockOptions::new("/locks/report", timing));
//!
//! lock.guarded(|token, _view| async move {
//!     // Nobody else is here. At the deadline this is cancelled, wherever it awaits.
//!     println!("held under the fencing token {token}");
//! })
//! .await?;
//! lock.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What holding means
//!
//! Whoever holds knows that nobody is before it *and* has a valid [`Lease`]: a moment on its own
//! `CLOCK_BOOTTIME` before which the leader of the ensemble cannot have ended its session. A lease is
//! extended by renewals, quorum writes that change nothing, and by nothing else: no ping, no read, no
//! state of the connection. When it ends without a proof of more, the lock is [`LockState::Lost`],
//! whatever the network says. What runs under the lock has to be gone a margin before that
//! ([`LockStatus::deadline`]); [`Lock::guarded`] sees to it for a future, the program `lockkeeper` for
//! whole processes. docs/safety.md has the argument, step by step.
//!
//! # What it does not promise
//!
//! That a lock is exclusive when somebody deletes the holder's contender by hand, or that what was sent before the
//! deadline does not arrive after it: a resource that matters checks the [`FencingToken`].
//!
//! # Dropping
//!
//! Nothing is released by a `Drop`. A [`Lock`] that goes, by a panic say, is abandoned: its contender
//! stays until the session expires, so that whatever still runs has until the end of its lease.
mod agreement;
pub mod clock;
pub mod ensemble;
mod error;
#[cfg(feature = "fake")]
pub mod fake;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
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

pub use agreement::{Agreement, Objection};
pub use clock::{BootClock, BootInstant, Clock};
pub use error::LockError;
pub use handle::{Lock, LockView};
pub use lease::{Lease, Renewal};
pub use options::{EnsembleId, LockOptions, Observer};
pub use participant::{Participant, arrange};
pub use path::LockPath;
pub use queue::{Mode, is_contender};
pub use record::{
    CleanRelease, ContenderData, Control, Holder, Identity, LONGEST_CONTENDER_DATA, LONGEST_CONTROL_DATA,
    Pod, YieldRequest,
};
pub use state::{LockState, LockStatus, LossReason};
pub use timing::{KILL_ALLOWANCE, SESSION_TIMEOUT_TICKS, SLACK, Timing, UnsafeTiming};
pub use token::FencingToken;
