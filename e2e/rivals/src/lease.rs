//! When a lock is free of a holder that is silent.

use std::time::Duration;

/// The lease, session timeout, TTL or expiry of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// The one that all locks get that take any: `--lease`.
    Given,
    /// The lock is its holder's for as long as a connection lasts, or for ever.
    Never,
    /// Another one, which the lock demands, or which is its default.
    Own {
        /// After what time at the latest another one may have the lock.
        bound: Duration,
        /// For the page.
        words: &'static str,
    },
}

impl Lease {
    pub(crate) const fn own(bound_millis: u64, words: &'static str) -> Self {
        Self::Own {
            bound: Duration::from_millis(bound_millis),
            words,
        }
    }

    /// After what time at the latest another one may have the lock of a silent holder. Faults last longer than this.
    ///
    /// It is the harness's patience, and not what a driver gets: that is `given`, whatever its lock makes of it.
    pub fn bound(self, given: Duration) -> Duration {
        match self {
            Self::Given | Self::Never => given,
            Self::Own { bound, .. } => bound.max(given),
        }
    }

    /// For the page.
    pub(crate) fn words(self, given: f64) -> String {
        match self {
            Self::Given => format!("{given} s"),
            Self::Never => "none".to_owned(),
            Self::Own { words, .. } => words.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_lock::Timing;

    use super::*;
    use crate::systems::System;

    fn lease(name: &str) -> Lease {
        System::named(name).unwrap().lease
    }

    #[test]
    fn the_page_names_the_lease_that_our_own_settings_have() {
        let second = Duration::from_secs(1);
        let defaults = Timing::new(15 * second).lease().unwrap();
        assert_eq!(lease("lockkeeper").bound(4 * second), 15 * second);
        assert_eq!(
            lease("lockkeeper").words(4.0),
            format!("{} s; session {} s", defaults.as_secs_f64(), 15)
        );
        let short = Timing {
            tick_time: second,
            stop_grace: Duration::from_millis(200),
            ..Timing::new(4 * second)
        };
        assert_eq!(
            lease("lockkeeper-short").words(4.0),
            format!("{} s; session 4 s", short.lease().unwrap().as_secs_f64())
        );
        // The next one has it within the session, in any case.
        assert_eq!(lease("lockkeeper-short").bound(4 * second), 4 * second);
    }

    #[test]
    fn a_fault_lasts_longer_than_a_lease_of_its_own_and_a_driver_is_not_told() {
        let second = Duration::from_secs(1);
        assert_eq!(lease("shedlock").bound(4 * second), 30 * second);
        assert_eq!(lease("kazoo").bound(4 * second), 4 * second);
    }
}
