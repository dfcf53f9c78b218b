//! One hold of the lock, and why it ended.

use std::time::Duration;

use anyhow::anyhow;
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::process::wait_for;

/// Bound for every step that has to happen.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

/// One grant of the lock, as the guarded program recorded it.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) token: i64,
    pub(crate) name: String,
    pub(crate) begin: BootInstant,
    /// The last moment at which any of its processes ran.
    pub(crate) last: BootInstant,
    pub(crate) pids: Vec<u32>,
}

/// Why a lock went from one worker to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// The holder was asked to release it.
    Released,
    /// Its guard was killed.
    Killed,
    /// There was no leader for too long.
    Election,
    /// Its server was cut off.
    CutOff,
    /// The demonstration was over.
    Over,
}

impl Run {
    /// Waits until none of its processes is left; the error names the remaining ones.
    pub(crate) fn wait_until_gone(&self) -> anyhow::Result<()> {
        let left = || -> Vec<u32> {
            self.pids
                .iter()
                .copied()
                .filter(|&pid| lockkeeper_testbed::owner::is_running(pid))
                .collect()
        };
        wait_for(BOUND, || left().is_empty().then_some(()))
            .ok_or_else(|| anyhow!("processes {:?} of {} are still there", left(), self.name))
    }
}

impl Reason {
    /// In a few words, for the table.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Released => "handed over by `lockkeeper release`",
            Self::Killed => "kill -9: released when nothing was left",
            Self::Election => "no leader for too long: stopped in time",
            Self::CutOff => "its server was cut off: stopped in time",
            Self::Over => "end of the demonstration",
        }
    }
}
