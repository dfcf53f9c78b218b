//! One stay under the lock, and why it ended.

use anyhow::anyhow;
use lockkeeper_lock::BootInstant;

use super::stage::BOUND;
use crate::process::wait_for;

/// One grant of the lock, as the guarded program wrote it down.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) token: i64,
    pub(super) name: String,
    pub(super) begin: BootInstant,
    /// The last moment at which any of its processes ran.
    pub(super) last: BootInstant,
    pub(super) pids: Vec<u32>,
}

/// Why a lock went from one worker to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// It was asked to release it.
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
    /// Waits until none of its processes is left; tells which are if they stay.
    pub(super) fn wait_until_gone(&self) -> anyhow::Result<()> {
        let left = || -> Vec<u32> {
            self.pids
                .iter()
                .copied()
                .filter(|&pid| crate::owner::is_running(pid))
                .collect()
        };
        wait_for(BOUND, || left().is_empty().then_some(()))
            .ok_or_else(|| anyhow!("processes {:?} of {} are still there", left(), self.name))
    }
}

impl Reason {
    /// In a few words, for the table.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Released => "handed over by `lockkeeper release`",
            Self::Killed => "kill -9: the session timeout has to pass",
            Self::Election => "no leader for too long: stopped in time",
            Self::CutOff => "its server was cut off: stopped in time",
            Self::Over => "end of the demonstration",
        }
    }
}
