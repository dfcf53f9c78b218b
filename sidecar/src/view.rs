//! What socket, probes and metrics see of the lock. What is not known is not held.

use std::sync::Arc;

use lockkeeper_lock::{Agreement, BootInstant, FencingToken, LockState, LockStatus, Timing};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::args::{Access, OnLoss, OnSuspect, Settings};
use crate::guard::Containment;

/// The read side of a lock. A clone is cheap.
#[derive(Clone, Debug)]
pub struct LockView {
    status: watch::Receiver<LockStatus>,
    guarded: watch::Receiver<Guarded>,
    about: Arc<About>,
}

/// What the keeper knows of the application that is guarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guarded {
    /// What holds it together, once its guard has said so.
    pub containment: Option<Containment>,
    /// What of it has outlived its deadline.
    pub survivors: Option<Survivors>,
}

/// What does not change.
#[derive(Debug)]
struct About {
    lock: String,
    access: Access,
    timing: Timing,
    pauses: bool,
}

/// A lock at one moment: the JSON object of the socket. It gives remaining time and never a time of
/// day, since clocks of different processes, or of one machine at different times, may differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Path of the lock.
    pub lock: String,
    /// State of our place in its queue.
    pub state: LockState,
    /// `exclusive`, `semaphore`, `write` or `read`.
    pub access: String,
    /// How many may hold a semaphore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_holders: Option<u32>,
    /// The token to show to resources; only while the lock is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<FencingToken>,
    /// How many are before us, while it is known; 0 while the lock is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    /// Time until the application is killed, unless a renewal comes first; only while held. In milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_millis: Option<u64>,
    /// Time that the application gets between SIGTERM and SIGKILL, which is at the end of
    /// `remainingMillis`. In milliseconds.
    pub stop_budget_millis: u64,
    /// The application may be stopped for a while, and go on (`--on-suspect pause`, `--on-loss pause`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pauses: bool,
    /// What holds the application together: `cgroup`, `pidns`, `sweep` or `container`; once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containment: Option<String>,
    /// Why the lock cannot be had, in words; only then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What has outlived its deadline: the lock is kept for it, and held for nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survivors: Option<Survivors>,
    /// The session as ZooKeeper's tools write it, while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// What has outlived its deadline, as far as it is known. Nothing is started while it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Survivors {
    /// How many processes of the application the guard has seen to outlive SIGKILL. Absent when it could not see
    /// all, or when its own process has not ended and it does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// The process id of one of them, as the guard sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Somebody said that the lock is not to wait for it.
    pub given_up: bool,
}

// === impl LockView ===

impl LockView {
    /// A view of the lock whose task publishes into `status`, and whose keeper into `guarded`.
    pub fn new(
        status: watch::Receiver<LockStatus>,
        guarded: watch::Receiver<Guarded>,
        settings: &Settings,
    ) -> Self {
        Self {
            status,
            guarded,
            about: Arc::new(About {
                lock: settings.lock.clone(),
                access: settings.access,
                timing: settings.timing,
                pauses: settings.on_loss == OnLoss::Pause || settings.on_suspect == OnSuspect::Pause,
            }),
        }
    }

    /// The lock now.
    pub fn now(&self) -> Snapshot {
        let guarded = *self.guarded.borrow();
        self.about.snapshot(
            &self.status.borrow(),
            guarded,
            self.is_alive(),
            BootInstant::now(),
        )
    }

    /// What holds the application together, once its guard has said so.
    pub fn containment(&self) -> Option<Containment> {
        self.guarded.borrow().containment
    }

    /// How many may hold together with this one; `None` for a reader: any number.
    pub fn max_holders(&self) -> Option<u32> {
        match self.about.access {
            Access::Exclusive | Access::Write => Some(1),
            Access::Semaphore(holders) => Some(holders),
            Access::Read => None,
        }
    }

    /// Whether anybody is left who would publish a change.
    pub fn is_alive(&self) -> bool {
        self.status.has_changed().is_ok()
    }

    /// The lock now; [`LockView::changed`] then waits for what comes after it.
    pub(crate) fn take(&mut self) -> Snapshot {
        let alive = self.is_alive();
        let guarded = *self.guarded.borrow_and_update();
        let status = self.status.borrow_and_update();
        self.about.snapshot(&status, guarded, alive, BootInstant::now())
    }

    /// Waits for a change; false when there will be none.
    pub(crate) async fn changed(&mut self) -> bool {
        tokio::select! {
            changed = self.status.changed() => changed.is_ok(),
            Ok(()) = self.guarded.changed() => true,
        }
    }
}

// === impl About ===

impl About {
    fn snapshot(&self, status: &LockStatus, guarded: Guarded, alive: bool, now: BootInstant) -> Snapshot {
        let timing = Timing {
            session_timeout: status.session_timeout.unwrap_or(self.timing.session_timeout),
            ..self.timing
        };
        let remaining = status
            .lease_end
            .map(|end| end.saturating_sub(timing.margin()).saturating_since(now))
            .filter(|remaining| alive && status.is_held(now) && !remaining.is_zero());
        let state = match status.state {
            state if remaining.is_some() => state,
            LockState::Held | LockState::Suspended => LockState::Lost,
            LockState::Released => LockState::Released,
            _ if !alive => LockState::Lost,
            state => state,
        };
        let queued = matches!(state, LockState::Waiting | LockState::Held | LockState::Suspended);
        Snapshot {
            lock: self.lock.clone(),
            state,
            access: self.access.name().to_owned(),
            max_holders: match self.access {
                Access::Semaphore(holders) => Some(holders),
                Access::Exclusive | Access::Write | Access::Read => None,
            },
            fencing_token: status.token.filter(|_| remaining.is_some()),
            position: status.position.filter(|_| queued),
            remaining_millis: remaining.map(millis),
            stop_budget_millis: millis(self.timing.stop_grace),
            pauses: self.pauses,
            containment: guarded
                .containment
                .map(|containment| containment.name().to_owned()),
            reason: match (guarded.survivors, &status.refusal) {
                (Some(survivors), _) => Some(survivors.explain(status.contender.is_some())),
                (None, refusal) => refusal.as_ref().map(ToString::to_string),
            },
            survivors: guarded.survivors,
            session: status.session.filter(|_| alive).map(|id| format!("{id:#x}")),
        }
    }
}

// === impl Survivors ===

impl Survivors {
    /// What is there, and what of the lock; `is_kept` while our contender is in the queue.
    fn explain(&self, is_kept: bool) -> String {
        let pid = self
            .pid
            .map_or_else(String::new, |pid| format!(" (process {pid})"));
        let what = match self.processes {
            Some(1) => format!("1 process of the application has outlived SIGKILL{pid}"),
            Some(count) => format!("{count} processes of the application have outlived SIGKILL{pid}"),
            None => format!(
                "the guard has not seen that nothing of the application has outlived its deadline, or does not answer{pid}"
            ),
        };
        let lock = match (self.given_up, is_kept) {
            (true, _) => "it was given up by hand, and nothing is started here before it has gone",
            (false, true) => {
                "nobody else gets the lock before it has gone, or `lockkeeper release --abandon-survivors` gives it up"
            }
            (false, false) => {
                "the session is over, so that others may have the lock; nothing is started here before it has gone"
            }
        };
        format!("{what}; {lock}")
    }
}

// === impl Snapshot ===

impl Snapshot {
    /// Whether the application may run.
    pub fn is_held(&self) -> bool {
        matches!(self.state, LockState::Held | LockState::Suspended)
    }

    /// Whether our place in the queue is there and the session is not in doubt.
    pub fn is_queued(&self) -> bool {
        matches!(self.state, LockState::Waiting | LockState::Held)
    }

    /// What its contenders have agreed on; `None` if this version does not know it.
    pub fn agreement(&self) -> Option<Agreement> {
        let mode = match (self.access.as_str(), self.max_holders) {
            ("exclusive", None) => Access::Exclusive,
            ("semaphore", Some(holders)) => Access::Semaphore(holders),
            ("write", None) => Access::Write,
            ("read", None) => Access::Read,
            _ => return None,
        };
        Some(Agreement::of(mode.mode()))
    }

    /// The state in words.
    pub fn explain(&self) -> String {
        let state = self.explain_state();
        match &self.reason {
            Some(reason) => format!("{state} ({reason})"),
            None => state,
        }
    }

    fn explain_state(&self) -> String {
        match (self.state, self.position) {
            (LockState::Connecting, _) if self.reason.is_some() => {
                "waiting to be let into the queue".to_owned()
            }
            (LockState::Connecting, _) => "connecting to the ensemble".to_owned(),
            (LockState::Waiting, None) => "waiting in the queue".to_owned(),
            (LockState::Waiting, Some(before)) => format!("waiting in the queue, {before} before us"),
            (LockState::Held, _) => "held".to_owned(),
            (LockState::Suspended, _) => "held, and the connection to the ensemble is in doubt".to_owned(),
            (LockState::Lost, _) => "lost, and not yet in the queue again".to_owned(),
            (LockState::Releasing, _) => "being released".to_owned(),
            (LockState::Released, _) => "not in the queue".to_owned(),
        }
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn guarded(survivors: Survivors) -> Guarded {
        Guarded {
            survivors: Some(survivors),
            ..Guarded::default()
        }
    }

    fn about() -> About {
        About {
            lock: "/l".to_owned(),
            access: Access::Exclusive,
            timing: Timing::new(Duration::from_secs(15)),
            pauses: false,
        }
    }

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(millis * 1_000_000)
    }

    fn held_until(end: BootInstant) -> LockStatus {
        LockStatus {
            state: LockState::Held,
            token: Some(FencingToken(4_294_967_331)),
            position: Some(0),
            lease_end: Some(end),
            session: Some(0x1000_0abc),
            session_timeout: Some(Duration::from_secs(10)),
            ..LockStatus::new()
        }
    }

    #[test]
    fn the_remaining_time_ends_at_the_deadline_by_the_negotiated_session_timeout() {
        // 10 s were negotiated, 15 s wished for: the margin is 100 ms + 200 ms.
        let snapshot = about().snapshot(&held_until(at(9_000)), Guarded::default(), true, at(1_000));
        assert_eq!(snapshot.remaining_millis, Some(7_700));
        let json = r#"{"lock":"/l","state":"Held","access":"exclusive","fencingToken":4294967331,"position":0,"remainingMillis":7700,"stopBudgetMillis":3000,"session":"0x10000abc"}"#;
        assert_eq!(serde_json::to_string(&snapshot).unwrap(), json);
        assert_eq!(serde_json::from_str::<Snapshot>(json).unwrap(), snapshot);
    }

    #[test]
    fn a_lock_past_its_deadline_is_not_held_whatever_was_published() {
        for state in [LockState::Held, LockState::Suspended] {
            let status = LockStatus {
                state,
                ..held_until(at(9_000))
            };
            let before = about().snapshot(&status, Guarded::default(), true, at(8_699));
            assert_eq!((before.state, before.remaining_millis), (state, Some(1)));
            assert!(before.is_held());
            for now in [8_700, 9_000, 60_000] {
                let after = about().snapshot(&status, Guarded::default(), true, at(now));
                assert_eq!(after.state, LockState::Lost);
                assert_eq!(
                    (after.fencing_token, after.remaining_millis, after.position),
                    (None, None, None)
                );
            }
        }
    }

    #[test]
    fn nothing_is_held_once_the_task_of_the_lock_is_gone() {
        let status = held_until(at(9_000));
        let snapshot = about().snapshot(&status, Guarded::default(), false, at(1_000));
        assert_eq!(snapshot.state, LockState::Lost);
        assert_eq!((snapshot.fencing_token, snapshot.session), (None, None));
        let waiting = LockStatus {
            state: LockState::Waiting,
            ..status
        };
        assert_eq!(
            about()
                .snapshot(&waiting, Guarded::default(), false, at(1_000))
                .state,
            LockState::Lost
        );
        assert_eq!(
            about()
                .snapshot(&LockStatus::new(), Guarded::default(), false, at(1_000))
                .state,
            LockState::Released
        );
    }

    #[test]
    fn a_waiter_with_a_valid_lease_shows_its_position_and_no_token() {
        let heir = LockStatus {
            state: LockState::Waiting,
            position: Some(1),
            ..held_until(at(9_000))
        };
        let snapshot = about().snapshot(&heir, Guarded::default(), true, at(1_000));
        assert_eq!((snapshot.fencing_token, snapshot.remaining_millis), (None, None));
        assert_eq!(snapshot.position, Some(1));
        assert_eq!(snapshot.explain(), "waiting in the queue, 1 before us");
        assert!(snapshot.is_queued() && !snapshot.is_held());
    }

    #[test]
    fn what_has_outlived_its_deadline_is_named_with_what_becomes_of_the_lock() {
        let some = Survivors {
            processes: Some(2),
            pid: Some(4711),
            given_up: false,
        };
        let lost = LockStatus {
            state: LockState::Lost,
            contender: Some("_c_1-lock-0000000000".to_owned()),
            ..LockStatus::new()
        };
        let explain = |status: &LockStatus, survivors| {
            about()
                .snapshot(status, guarded(survivors), true, at(1_000))
                .explain()
        };
        assert_eq!(
            explain(&lost, some),
            "lost, and not yet in the queue again (2 processes of the application have outlived SIGKILL (process 4711); \
             nobody else gets the lock before it has gone, or `lockkeeper release --abandon-survivors` gives it up)"
        );
        let gone = LockStatus {
            contender: None,
            ..lost.clone()
        };
        assert!(explain(&gone, some).contains("the session is over"));
        let given_up = Survivors {
            given_up: true,
            ..some
        };
        assert!(explain(&lost, given_up).contains("given up by hand"));
        let snapshot = about().snapshot(&lost, guarded(some), true, at(1_000));
        let json = serde_json::to_string(&snapshot).unwrap();
        let part = r#""survivors":{"processes":2,"pid":4711,"givenUp":false}"#;
        assert!(json.contains(part), "{json}");
        assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot);
    }

    #[test]
    fn why_a_lock_cannot_be_had_is_shown_and_said() {
        use lockkeeper_lock::LockError;
        use lockkeeper_lock::ensemble::EnsembleError;

        let missing = LockStatus {
            state: LockState::Connecting,
            refusal: Some(LockError::NotProvided {
                path: "/l".to_owned(),
                error: EnsembleError::NoNode,
            }),
            ..LockStatus::new()
        };
        let snapshot = about().snapshot(&missing, Guarded::default(), true, at(1_000));
        assert_eq!(
            snapshot.explain(),
            "waiting to be let into the queue (/l is not provided: the node does not exist)"
        );
        let json = serde_json::to_string(&snapshot).unwrap();
        let part = r#""reason":"/l is not provided: the node does not exist""#;
        assert!(json.contains(part), "{json}");
        assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot);

        let refused = LockStatus {
            state: LockState::Released,
            refusal: Some(LockError::Refused {
                action: "cannot list /l".to_owned(),
                error: EnsembleError::NoAuth,
            }),
            ..LockStatus::new()
        };
        let snapshot = about().snapshot(&refused, Guarded::default(), true, at(1_000));
        assert_eq!(
            snapshot.explain(),
            "not in the queue (cannot list /l: no right to do this)"
        );
    }
}
