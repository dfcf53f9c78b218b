//! A distributed lock on ZooKeeper: it ends for its holder *before* the ensemble can give it to another client.
//!
//! A [`Lock`] is a place in the queue of a lock, with a session of its own: an exclusive lock, a
//! semaphore or one side of a read/write lock ([`Mode`]). Contenders stand in the queue with
//! ephemeral sequential nodes named as Apache Curator names them, so that its clients can stand in the
//! same queue. Each watches the one before it, so a change wakes only a contender that can act.
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
//!     // No other holder is here. At the deadline this is cancelled, wherever it awaits.
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
//! A holder knows that no contender is before it *and* has a valid [`Lease`]: a moment on its own
//! `CLOCK_BOOTTIME` before which the leader of the ensemble cannot have ended its session. Only renewals extend a
//! lease: quorum writes that change nothing. Pings, reads and the state of the connection do not. The *deadline*
//! ([`LockStatus::deadline`]) is a margin before the end of the lease. If it comes before a further proof, the lock is
//! [`LockState::Lost`], whatever the state of the network, and [`LockView::is_held`] is false. With a
//! [`LeaseDuration`] the next contender may replace a silent one before its session ends; the deadline comes before
//! that. Everything under the lock has to have ended by then: [`Lock::guarded`] cancels a future in time, and the program
//! `lockkeeper` stops whole processes. docs/safety.md has the argument, step by step.
//!
//! # What it does not promise
//!
//! * That a lock is exclusive when a user deletes the holder's contender by hand.
//! * That data sent before the deadline does not arrive after it. A resource that matters checks the [`FencingToken`].
//!
//! # Dropping
//!
//! No `Drop` releases anything. A [`Lock`] that is dropped, for example by a panic, is abandoned: its contender stays
//! until the session expires, so everything that still runs has until the end of its lease.

#![warn(missing_docs)]
// Without the feature, what only the module `fuzzing` shows would be reported.
#![cfg_attr(feature = "fuzzing", warn(unreachable_pub))]

mod agreement;
mod clock;
pub mod ensemble;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handle;
mod lease;
mod loss;
mod options;
mod participant;
pub mod path;
mod queue;
mod record;
mod state;
mod takeover_lease;
mod task;
mod ticket;
mod timing;
mod token;
pub mod zookeeper;

pub use agreement::{Agreement, Objection};
pub use clock::{BootClock, BootInstant, Clock};
pub use error::LockError;
pub use handle::{Lock, LockView};
pub use lease::{Lease, Renewal};
pub use loss::LossReason;
pub use options::{EnsembleId, LockOptions, Observer};
pub use participant::{Participant, arrange};
pub use path::LockPath;
pub use queue::{Mode, is_contender};
pub use record::{
    CleanRelease, ContenderData, Control, HOLDS_KEPT, Hold, HoldEnd, Holder, HolderPod, Identity,
    LONGEST_CONTENDER_DATA, LONGEST_CONTROL_DATA, Pod, Survivors, TookOver, YieldRequest,
};
pub use state::{LockState, LockStatus};
pub use ticket::{SESSION_PASSWORD_LEN, SessionKey, Ticket};
pub use timing::{
    KILL_ALLOWANCE, LONGEST_LEASE, LeaseDuration, SESSION_TIMEOUT_TICKS, SLACK, Timing, UnsafeTiming,
};
pub use token::FencingToken;
