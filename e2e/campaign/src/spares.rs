//! Spare times: from the last instruction under the lock to the moment at which the leader deleted the node.

use std::time::Duration;

use lockkeeper_lock::Timing;

use crate::figures::{Figures, Violations};
use crate::sample::Sample;

/// The spare time of one holder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spare {
    /// Negative if something still ran when the node was deleted.
    pub seconds: f64,
    /// Whether its own keeper deleted the node. That needs a proof that nothing runs, and no margin of time.
    pub is_released: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Spares {
    /// Of holders whose session ended, or whose place another contender took.
    pub lapsed: Sample,
    /// Of holders whose keepers released the lock.
    pub released: Sample,
    /// The shortest that was allowed for any of the first, in seconds.
    allowed: Option<f64>,
}

/// The shortest spare time that is no violation, for a holder with these times: half of the margin between its
/// deadline and the end of its lease. The margin is for clocks of different rates, which the processes of one
/// machine do not have, and for the kernel to carry out a kill.
pub(crate) fn least_allowed(timing: &Timing) -> Duration {
    let lease = timing
        .lease()
        .map_or(timing.session_timeout, |lease| lease.min(timing.session_timeout));
    Timing::new(lease).margin() / 2
}

impl Spare {
    /// Records a violation if it is too short.
    pub(crate) fn judge(&self, who: &str, timing: &Timing, violations: &mut Violations) -> bool {
        let least = least_allowed(timing).as_secs_f64();
        if self.seconds <= 0.0 {
            violations.add(format!(
                "{who} ran {:.3} s longer than its node existed",
                -self.seconds
            ));
        } else if !self.is_released && self.seconds < least {
            violations.add(format!(
                "{who} was gone only {:.3} s before its node, and half of the margin is {least:.3} s",
                self.seconds
            ));
        } else {
            return true;
        }
        false
    }

    /// The end of its node, for people.
    pub(crate) fn end(&self) -> &'static str {
        if self.is_released {
            "its keeper released the lock"
        } else {
            "the leader deleted the node"
        }
    }
}

impl Spares {
    pub(crate) fn add(&mut self, spare: Spare, timing: &Timing) {
        if spare.is_released {
            self.released.add(spare.seconds);
            return;
        }
        let least = least_allowed(timing).as_secs_f64();
        self.allowed = Some(self.allowed.map_or(least, |other| other.min(least)));
        self.lapsed.add(spare.seconds);
    }

    /// The same, with how many these are of all holds: the last hold of a round goes on, and a deletion is not seen while
    /// there is no leader, or a new one is not known yet.
    pub(crate) fn tell_of(self, holds: usize, figures: &mut Figures) {
        let seen = self.lapsed.len() + self.released.len();
        self.tell(figures, &format!("{seen} of {holds} holds: everything gone"));
    }

    /// A row for each kind that there is, and the picture.
    pub(crate) fn tell(self, figures: &mut Figures, about: &str) {
        self.rows(figures, about);
        figures.spares = if self.lapsed.is_empty() {
            self.released
        } else {
            self.lapsed
        };
    }

    /// The rows alone.
    pub(crate) fn rows(&self, figures: &mut Figures, about: &str) {
        let before_deletion = format!("{about} before the leader deletes the node: spare");
        match self.allowed {
            Some(allowed) => figures.row(
                before_deletion,
                format!(
                    "{}; half of the margin is {allowed:.3} s (the least of all)",
                    self.lapsed
                ),
            ),
            None if self.released.is_empty() => figures.row(before_deletion, "none"),
            None => {}
        }
        if !self.released.is_empty() {
            figures.row(
                format!("{about} before its keeper releases the lock: spare"),
                self.released.to_string(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(seconds: f64, is_released: bool) -> bool {
        let timing = Timing::new(Duration::from_secs(15));
        let mut violations = Violations::default();
        let is_good = Spare { seconds, is_released }.judge("it", &timing, &mut violations);
        assert_eq!(violations.finish(Figures::default()).is_ok(), is_good);
        is_good
    }

    #[test]
    fn a_spare_below_half_of_the_margin_is_a_violation_unless_the_keeper_released_the_lock() {
        // L is 8.5 s, and the margin 285 ms.
        assert!(judged(0.143, false));
        assert!(!judged(0.142, false));
        assert!(judged(0.001, true));
        assert!(!judged(0.0, true) && !judged(-0.5, false));
    }
}
