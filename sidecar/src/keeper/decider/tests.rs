//! What the keeper's decisions promise, without guard, lock or clock.

mod together;

use lockkeeper_lock::{BootInstant, FencingToken, LockState, LockStatus};

use super::*;
use crate::args::{OnExit, OnLoss, OnSuspect, Restart};
use crate::guard::protocol::FromGuard;
use crate::keeper::policy::Kind;

/// Session timeout; its margin is 350 ms ([`lockkeeper_lock::LockStatus::deadline`]).
const T: Duration = Duration::from_secs(15);

fn ms(millis: u64) -> BootInstant {
    BootInstant::from_nanos(millis * 1_000_000)
}

fn policy(kind: Kind) -> Policy {
    Policy {
        kind,
        on_loss: OnLoss::Kill,
        on_suspect: OnSuspect::Continue,
        on_exit: OnExit::Release,
        restart: if kind == Kind::Run {
            Restart::Never
        } else {
            Restart::Always
        },
        stop_grace: Duration::from_secs(3),
        lock_delay: Duration::ZERO,
        wait_timeout: None,
        session_timeout: T,
    }
}
