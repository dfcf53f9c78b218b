//! A lock at one moment: the JSON object of the socket, and its words.

use lockkeeper_lock::{Agreement, FencingToken, LockState, TookOver};
use serde::{Deserialize, Serialize};

use crate::access::Access;

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
    /// How long we may be silent before the next contender takes our place; only while we are in the queue, and absent
    /// if only the session decides (`--lease-duration off`). In milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_millis: Option<u64>,
    /// Whose place we have taken in the queue, and how long that one had been silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_over: Option<TookOver>,
    /// The application may be stopped for a while, and go on (`--on-suspect pause`, `--on-loss pause`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pauses: bool,
    /// What holds the application together: `cgroup`, `pidns`, `sweep` or `container`; once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containment: Option<String>,
    /// Why the lock cannot be had, in words; only then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What has outlived its deadline: the lock is kept because of it, and nothing runs under it.
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
    /// A user said that the lock is not to wait for it.
    pub given_up: bool,
}

impl Snapshot {
    /// Whether the application may run.
    pub fn is_held(&self) -> bool {
        matches!(self.state, LockState::Held | LockState::Suspended)
    }

    /// Whether our place in the queue is there and the session is not in doubt.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.state, LockState::Waiting | LockState::Held)
    }

    /// What its contenders have agreed on; `None` if this version does not know it.
    pub(crate) fn agreement(&self) -> Option<Agreement> {
        let mode = match (self.access.as_str(), self.max_holders) {
            ("exclusive", None) => Access::Exclusive,
            ("semaphore", Some(holders)) => Access::Semaphore(holders),
            ("write", None) => Access::Write,
            ("read", None) => Access::Read,
            _ => return None,
        };
        Some(Agreement::of(mode.mode()))
    }

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

impl From<Survivors> for lockkeeper_lock::Survivors {
    fn from(Survivors { processes, pid, .. }: Survivors) -> Self {
        Self { processes, pid }
    }
}

impl Survivors {
    /// What is there, and what of the lock; `is_kept` while our contender is in the queue.
    pub(super) fn explain(&self, is_kept: bool) -> String {
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
                "no other contender gets the lock until it has gone, or until `lockkeeper release \
                 --abandon-survivors` gives it up"
            }
            (false, false) => {
                "the session is over, so that others may have the lock; nothing is started here before it has gone"
            }
        };
        format!("{what}; {lock}")
    }
}
