//! The user's settings, as far as the keeper decides by them.

use std::time::Duration;

use lockkeeper_daemon::exit::Exit;

use crate::args::{OnExit, OnLoss, OnSuspect, Restart, RunSettings, Settings, SidecarSettings};

/// Where the guard is, and so how the application starts and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `lockkeeper run`: the guard is our parent, and ends with us.
    Run,
    /// First process of the application's container: it starts and ends with the container.
    Wrap,
    /// Beside the application's container, which it does not start.
    Signal,
}

#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Where the guard is.
    pub kind: Kind,
    pub on_loss: OnLoss,
    pub on_suspect: OnSuspect,
    pub on_exit: OnExit,
    pub restart: Restart,
    /// Time between SIGTERM and SIGKILL.
    pub stop_grace: Duration,
    /// Pause before the start after a holder that did not release cleanly.
    pub lock_delay: Duration,
    /// How long to wait for the lock; `None` for ever.
    pub wait_timeout: Option<Duration>,
    /// The exit code when others have the lock and `wait_timeout` is over; `None` for [`Exit::Busy`] and
    /// [`Exit::TimedOut`].
    pub conflict_code: Option<u8>,
    /// The exit code of a run after a loss.
    pub loss_code: u8,
    /// The session timeout that was asked for.
    pub session_timeout: Duration,
    /// From the first sign that the pod is ending to its end; nothing outside of pods.
    pub termination_grace: Option<Duration>,
}

impl Policy {
    pub(super) fn of_run(settings: &RunSettings) -> Self {
        let policy = Self::of_lock(&settings.lock, Kind::Run);
        Self {
            restart: settings.restart,
            wait_timeout: settings.wait_timeout,
            conflict_code: settings.conflict_code,
            loss_code: settings.loss_code,
            ..policy
        }
    }

    pub(super) fn of_sidecar(settings: &SidecarSettings, kind: Kind) -> Self {
        Self {
            termination_grace: Some(settings.pod.termination_grace),
            ..Self::of_lock(&settings.lock, kind)
        }
    }

    fn of_lock(settings: &Settings, kind: Kind) -> Self {
        Self {
            kind,
            on_loss: settings.on_loss,
            on_suspect: settings.on_suspect,
            on_exit: settings.on_exit,
            restart: Restart::Always,
            stop_grace: settings.timing.stop_grace,
            lock_delay: settings.lock_delay,
            wait_timeout: None,
            conflict_code: None,
            loss_code: Exit::LockLost.code(),
            session_timeout: settings.timing.session_timeout,
            termination_grace: None,
        }
    }

    /// The code to end with when the lock was lost and the application is gone; `None` when we queue
    /// again. An application that is only paused is continued once the lock is held again, in every mode.
    pub(super) fn code_after_a_loss(&self) -> Option<u8> {
        match (self.kind, self.restart) {
            (Kind::Run, Restart::Always) | (Kind::Wrap, _) => None,
            (Kind::Run, Restart::Never) => Some(self.loss_code),
            (Kind::Signal, _) => Some(Exit::GateAnew.code()),
        }
    }
}
