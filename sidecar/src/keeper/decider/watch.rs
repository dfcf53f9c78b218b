//! When a silent guard is taken as stopped.

use std::time::Duration;

use lockkeeper_lock::BootInstant;

/// How long after its deadline the guard may take to report that it has stopped everything: half of the fixed part of
/// the margin ([`lockkeeper_lock::KILL_ALLOWANCE`]), so that the other half is left for the next measure.
const PATIENCE_FOR_GUARD: Duration = Duration::from_millis(100);

/// The guard's deadline, and the time of its kill if it is silent after that.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// When the guard will have ended what runs, unless it gets another frame.
    deadline: Option<BootInstant>,
    /// When a guard that is silent after its deadline is killed.
    kill_at: Option<BootInstant>,
}

impl Watch {
    /// When the guard will have ended what runs; `None` if another keeper told it, or if nothing is expected of it.
    pub(crate) fn deadline(&self) -> Option<BootInstant> {
        self.deadline
    }

    /// The guard has this deadline from now on.
    pub(crate) fn expect(&mut self, deadline: BootInstant) {
        self.deadline = Some(deadline);
    }

    /// The guard has this deadline, unless it has an earlier one.
    pub(crate) fn expect_at_latest(&mut self, deadline: BootInstant) {
        let earlier = self.deadline.map_or(deadline, |known| known.min(deadline));
        self.deadline = Some(earlier);
    }

    /// Nothing is expected of the guard at any moment.
    pub(crate) fn expect_nothing(&mut self) {
        self.deadline = None;
    }

    /// The guard reports that it is at work: its time starts anew.
    pub(crate) fn at_work(&mut self, now: BootInstant) {
        self.deadline = Some(now);
        self.kill_at = None;
    }

    /// Whether the guard was silent for too long; true only once.
    ///
    /// Counted from when we look, not from the deadline: if we were stopped ourselves, its report is in the socket
    /// already.
    pub(crate) fn is_over(&mut self, now: BootInstant) -> bool {
        if self.deadline.is_none_or(|deadline| deadline > now) {
            self.kill_at = None;
            return false;
        }
        let is_over = *self.kill_at.get_or_insert(now + PATIENCE_FOR_GUARD) <= now;
        if is_over {
            *self = Self::default();
        }
        is_over
    }

    pub(crate) fn wake_at(&self) -> Option<BootInstant> {
        self.kill_at.or(self.deadline)
    }
}
