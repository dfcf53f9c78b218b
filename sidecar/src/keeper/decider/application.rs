//! The application, as its guard reports it.

use std::time::Duration;

use lockkeeper_lock::{BootInstant, FencingToken};

use crate::probes::health::Running;
use crate::view::Survivors;

/// The shortest pause before an application that exits is started again, doubled at each exit...
const SHORTEST_BACK_OFF: Duration = Duration::from_millis(100);
/// ...up to this, and forgotten when it ran for as long.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum App {
    /// No guard, and nothing runs.
    Absent,
    Idle,
    /// It was granted a token, and may run.
    Granted {
        token: FencingToken,
        /// The guard has said that it runs.
        is_started: bool,
    },
    /// All of it was stopped by SIGSTOP at its deadline.
    Paused {
        token: FencingToken,
    },
    /// It is being ended: the guard's report is awaited.
    Stopping {
        token: FencingToken,
        cause: Cause,
        /// The guard has said that it ran.
        is_started: bool,
        /// What has outlived SIGKILL, once the guard has reported it.
        left: Option<Left>,
    },
    /// The guard's connection is lost, and something ran. The guard ends it at its deadline, which is unknown if
    /// another keeper gave it. If the guard's process `is_watched`, its end will be reported.
    OutOfSight {
        deadline: Option<BootInstant>,
        is_watched: bool,
        /// What had outlived SIGKILL before. A guard that is the first process of its container ends then, and the kernel
        /// keeps its process until the rest has gone.
        left: Option<Left>,
    },
}

/// Why the application is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The guard does it by itself.
    Deadline,
    /// The lock was lost in a way that the guard cannot know.
    Loss,
    /// A user wants it, or the keeper has to end it; what follows is decided already.
    Wish,
}

/// What the guard has seen to outlive SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// How many processes; 0 when the guard could not see everything.
    count: u32,
    /// The number of one of them; 0 when none was seen.
    pid: u32,
    /// The guard has counted some, or has reported it twice: on a starved machine a guard may not see all of `/proc`
    /// in time, and then see a moment later that nothing is left.
    is_sure: bool,
}

/// What is known of the application.
#[derive(Debug)]
pub(super) struct Application {
    app: App,
    /// When it was started, or continued.
    started_at: Option<BootInstant>,
    /// Starts of the application, and the process of the last one.
    starts: u64,
    process: Option<u32>,
    /// A user has given up what has outlived its deadline.
    is_given_up: bool,
    /// The deadline of a grant under which the guard started nothing.
    too_late: Option<BootInstant>,
    /// When it may be started again.
    start_at: Option<BootInstant>,
    back_off: Duration,
}

impl Application {
    pub(crate) fn absent() -> Self {
        Self {
            app: App::Absent,
            started_at: None,
            starts: 0,
            process: None,
            is_given_up: false,
            too_late: None,
            start_at: None,
            back_off: SHORTEST_BACK_OFF,
        }
    }

    pub(crate) fn state(&self) -> App {
        self.app
    }

    pub(crate) fn becomes(&mut self, app: App) {
        self.app = app;
    }

    /// Nothing of it runs. The next one that starts is another one, also if it gets the same process number: each
    /// container counts its processes anew.
    pub(crate) fn nothing_runs(&mut self) {
        self.app = App::Idle;
        self.process = None;
        self.is_given_up = false;
    }

    /// The guard reports that it runs.
    pub(crate) fn started(&mut self, pid: u32, now: BootInstant) {
        // An application that is continued after a pause is the same process.
        self.starts += u64::from(self.process.replace(pid) != Some(pid));
        self.started_at = Some(now);
        if let App::Granted { is_started, .. } | App::Stopping { is_started, .. } = &mut self.app {
            *is_started = true;
        }
    }

    /// A guard has connected under which it runs or is paused.
    pub(crate) fn found(&mut self, token: FencingToken, is_paused: bool, now: BootInstant) {
        self.started_at.get_or_insert(now);
        self.app = if is_paused {
            App::Paused { token }
        } else {
            App::Granted {
                token,
                is_started: true,
            }
        };
    }

    /// Ends it, if it may run.
    pub(crate) fn stop(&mut self, cause: Cause) {
        if let App::Granted { token, is_started } = self.app {
            self.app = App::Stopping {
                token,
                cause,
                is_started,
                left: None,
            };
        }
    }

    /// The guard reports how many processes outlive SIGKILL, and one of them.
    pub(crate) fn outlives(&mut self, count: u32, pid: u32) {
        let (token, cause, is_started, before) = match self.app {
            App::Granted { token, is_started } => (token, Cause::Deadline, is_started, None),
            App::Paused { token } => (token, Cause::Deadline, true, None),
            App::Stopping {
                token,
                cause,
                is_started,
                left,
            } => (token, cause, is_started, left),
            App::Absent | App::Idle | App::OutOfSight { .. } => return,
        };
        self.app = App::Stopping {
            token,
            cause,
            is_started,
            left: Some(Left {
                count,
                pid,
                is_sure: count > 0 || before.is_some(),
            }),
        };
    }

    /// What has outlived SIGKILL, as far as the guard has reported it.
    pub(crate) fn left(&self) -> Option<Left> {
        match self.app {
            App::Stopping { left, .. } | App::OutOfSight { left, .. } => left,
            App::Absent | App::Idle | App::Granted { .. } | App::Paused { .. } => None,
        }
    }

    /// A user gives up what has outlived its deadline.
    pub(crate) fn give_up(&mut self) {
        self.is_given_up = true;
    }

    /// The grant with this deadline came too late to start anything.
    pub(crate) fn was_too_late(&mut self, deadline: Option<BootInstant>) {
        self.too_late = deadline;
    }

    /// Whether a grant with this deadline has not come too late already.
    pub(crate) fn is_in_time(&self, deadline: BootInstant) -> bool {
        self.too_late != Some(deadline)
    }

    /// It has exited by itself. Returns when it may be started again.
    pub(crate) fn again_at(&mut self, now: BootInstant) -> BootInstant {
        let ran_long = self
            .started_at
            .is_some_and(|started| now.saturating_since(started) >= LONGEST_BACK_OFF);
        if ran_long {
            self.back_off = SHORTEST_BACK_OFF;
        }
        let again_at = now + self.back_off;
        self.back_off = (self.back_off * 2).min(LONGEST_BACK_OFF);
        again_at
    }

    /// It is not started before this moment; `None` is at once.
    pub(crate) fn wait_until(&mut self, start_at: Option<BootInstant>) {
        self.start_at = start_at;
    }

    /// When it may be started, while that is not over.
    pub(crate) fn start_at(&self) -> Option<BootInstant> {
        self.start_at
    }

    pub(crate) fn look_at_the_clock(&mut self, now: BootInstant) {
        self.start_at.take_if(|moment| *moment <= now);
    }

    /// The application, if it was reported to run and is not being ended.
    pub(crate) fn running(&self) -> Option<Running> {
        match self.app {
            App::Granted { is_started: true, .. } => Some(Running {
                start: self.starts,
                since: self.started_at?,
            }),
            _ => None,
        }
    }

    /// Whether something of it may be left, and its end will be reported.
    pub(crate) fn keeps_the_contender(&self) -> bool {
        let is_told = matches!(
            self.app,
            App::Granted { .. } | App::Stopping { .. } | App::OutOfSight { is_watched: true, .. }
        );
        is_told && !self.is_given_up
    }

    /// What has outlived its deadline.
    pub(crate) fn survivors(&self, now: BootInstant) -> Option<Survivors> {
        let (count, pid) = match self.app {
            App::Stopping {
                left: Some(Left { count, pid, .. }),
                ..
            } => (count, pid),
            App::OutOfSight {
                is_watched: true,
                left:
                    Some(Left {
                        count,
                        pid,
                        is_sure: true,
                    }),
                ..
            } => (count, pid),
            App::OutOfSight {
                deadline: Some(deadline),
                is_watched: true,
                ..
            } if deadline <= now => (0, 0),
            _ => return None,
        };
        Some(Survivors {
            processes: (count > 0).then_some(count),
            pid: (pid > 0).then_some(pid),
            given_up: self.is_given_up,
        })
    }

    /// Whether something is known to have outlived its deadline.
    pub(crate) fn has_survivors(&self, now: BootInstant) -> bool {
        match self.app {
            App::Stopping { left, .. } => left.is_some_and(|left| left.is_sure),
            _ => self.survivors(now).is_some(),
        }
    }
}

impl App {
    /// The token whose end the guard has not reported yet.
    pub(crate) fn token(self) -> Option<FencingToken> {
        match self {
            Self::Granted { token, .. } | Self::Paused { token } | Self::Stopping { token, .. } => {
                Some(token)
            }
            Self::Absent | Self::Idle | Self::OutOfSight { .. } => None,
        }
    }
}
