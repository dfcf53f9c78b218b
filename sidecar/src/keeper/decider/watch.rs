//! When a silent guard is taken as stopped.

use std::time::Duration;

use lockkeeper_lock::BootInstant;

/// How long after its deadline the guard may take to report that it has stopped everything: half of the fixed part of
/// the margin ([`lockkeeper_lock::KILL_ALLOWANCE`]), so that the other half is left for the next measure.
const PATIENCE_FOR_GUARD: Duration = Duration::from_millis(100);

/// How long it may take while the lock is held, so that nobody else can get it: the deadline is that of a stop that was
/// wished. A guard without a processor for a moment should not be killed then. With it goes the proof that nothing is
/// left, and beside a container the keeper itself.
const PATIENCE_WHILE_HELD: Duration = Duration::from_secs(2);

/// The guard's deadline, and since when it is silent after that.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// When the guard will have ended what runs, unless it gets another frame.
    deadline: Option<BootInstant>,
    /// Since when the guard is seen to be silent after its deadline.
    late_since: Option<BootInstant>,
    /// Since when it is, and the lock is not held any more.
    pressing_since: Option<BootInstant>,
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
        *self = Self {
            deadline: Some(now),
            ..Self::default()
        };
    }

    /// Whether the guard was silent for too long; true only once. `is_held`: nobody else can get the lock yet.
    ///
    /// Counted from when we look, not from the deadline: if we were stopped ourselves, its report is in the socket
    /// already.
    pub(crate) fn is_over(&mut self, now: BootInstant, is_held: bool) -> bool {
        if self.deadline.is_none_or(|deadline| deadline > now) {
            (self.late_since, self.pressing_since) = (None, None);
            return false;
        }
        self.late_since.get_or_insert(now);
        if is_held {
            self.pressing_since = None;
        } else {
            self.pressing_since.get_or_insert(now);
        }
        let is_over = self.kill_at().is_some_and(|moment| moment <= now);
        if is_over {
            *self = Self::default();
        }
        is_over
    }

    /// When a guard that is silent after its deadline is killed.
    fn kill_at(&self) -> Option<BootInstant> {
        let late = self.late_since? + PATIENCE_WHILE_HELD;
        Some(match self.pressing_since {
            Some(since) => late.min(since + PATIENCE_FOR_GUARD),
            None => late,
        })
    }

    pub(crate) fn wake_at(&self) -> Option<BootInstant> {
        self.kill_at().or(self.deadline)
    }
}
