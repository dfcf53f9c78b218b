//! The times of contenders: those of most trials, and those that fit the campaign's `--lease-duration`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use lockkeeper_daemon::duration;
use lockkeeper_lock::{LeaseDuration, SESSION_TIMEOUT_TICKS, Timing};

/// T of most trials. With a tick of 1 s that is twice the least timeout that servers grant.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(4);

/// T of contenders with the default times, as the programs have them: longer than each lease duration of a trial.
pub(crate) const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(15);

/// The stop grace of most trials.
pub(crate) const STOP_GRACE: Duration = Duration::from_millis(400);

/// The `tickTime` of the servers.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// T of contenders that must keep the lock on a busy machine: they tolerate 9.2 s without an answer, and with
/// [`SESSION_TIMEOUT`] 0.9 s (`lockkeeper_lock::Timing::spare`).
pub(crate) const CALM: Duration = Duration::from_secs(20);

/// The shortest stop grace that a contender gets: the recorder ends within a period of 5 ms, and the guard
/// should see that on a busy machine, too.
const LEAST_GRACE: Duration = Duration::from_millis(100);

/// The lease duration that trials hand to contenders for which they state none themselves. Without one, these
/// have the product's default, `auto`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseOption(Option<LeaseDuration>);

impl LeaseOption {
    /// The times of a contender that would have these without the option.
    ///
    /// T is at least twice a stated L, so that L decides about a silent holder, and not the end of its session.
    /// The stop grace is the longest that L leaves room for, if that is shorter.
    pub(crate) fn timing(self, session_timeout: Duration, stop_grace: Duration) -> Timing {
        let (session_timeout, stop_grace) = match self.0 {
            Some(LeaseDuration::Of(lease)) => (
                session_timeout.max(lease.saturating_mul(2)),
                stop_grace.min(longest_grace(lease)),
            ),
            Some(LeaseDuration::Auto | LeaseDuration::Off) | None => (session_timeout, stop_grace),
        };
        Timing {
            tick_time: TICK,
            stop_grace,
            lease_duration: self.0.unwrap_or_default(),
            ..Timing::new(session_timeout)
        }
    }

    /// The value for `lockkeeper run` and for a `DistributedLock`, if there is one.
    pub(crate) fn value(self) -> Option<String> {
        self.0.map(|_| self.to_string())
    }

    /// Whether the user states one. A holder with it may have less patience than the trial would give it, so
    /// that a busy machine costs it the lock.
    pub(crate) fn is_stated(self) -> bool {
        self.0.is_some()
    }

    fn check(self) -> Result<(), String> {
        let longest = TICK * *SESSION_TIMEOUT_TICKS.end();
        match self.0 {
            Some(LeaseDuration::Of(lease)) if lease > longest / 2 => Err(format!(
                "a trial's session timeout is at least twice the lease duration, and its servers grant at most \
                 {longest:?}: take {:?} or less",
                longest / 2
            )),
            _ => {
                let timing = self.timing(SESSION_TIMEOUT, STOP_GRACE);
                timing.check().map_err(|error| error.to_string())
            }
        }
    }
}

/// The longest stop grace with which a fifth of L is left for lost answers ([`Timing::check`]).
fn longest_grace(lease: Duration) -> Duration {
    let margin = Timing::new(lease).margin();
    let rest = (lease * 4 / 5).saturating_sub(lease / 8 + margin);
    Duration::from_millis(rest.as_millis() as u64).max(LEAST_GRACE)
}

impl FromStr for LeaseOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lease = match text {
            "auto" => LeaseDuration::Auto,
            "off" => LeaseDuration::Off,
            text => {
                let lease = duration::parse(text).map_err(|error| format!("{error}; or auto, or off"))?;
                LeaseDuration::Of(lease)
            }
        };
        let option = Self(Some(lease));
        option.check()?;
        Ok(option)
    }
}

impl fmt::Display for LeaseOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None | Some(LeaseDuration::Auto) => f.write_str("auto"),
            Some(LeaseDuration::Off) => f.write_str("off"),
            Some(LeaseDuration::Of(lease)) => write!(f, "{}ms", lease.as_millis()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fit_each_lease_duration_that_is_taken() {
        for text in ["auto", "off", "10s", "4s", "2s", "1s", "500ms"] {
            let option: LeaseOption = text.parse().unwrap();
            // Of processes, and of pods on nodes.
            let processes = [4, 6, 8, 20].map(|seconds| (seconds, STOP_GRACE));
            let pods = [6, 15].map(|seconds| (seconds, Duration::from_millis(600)));
            for (seconds, stop_grace) in processes.into_iter().chain(pods) {
                let timing = option.timing(Duration::from_secs(seconds), stop_grace);
                assert_eq!(timing.check(), Ok(()), "{text} {timing:?}");
                assert!(timing.session_timeout <= Duration::from_secs(20), "{timing:?}");
            }
        }
    }

    #[test]
    fn a_session_outlives_a_stated_lease_so_that_the_lease_decides() {
        let option: LeaseOption = "8s".parse().unwrap();
        let timing = option.timing(SESSION_TIMEOUT, STOP_GRACE);
        assert_eq!(timing.session_timeout, Duration::from_secs(16));
        assert_eq!(timing.lease(), Some(Duration::from_secs(8)));
        assert_eq!(option.value().as_deref(), Some("8000ms"));
        assert_eq!(LeaseOption::default().value(), None);
    }

    #[test]
    fn a_lease_duration_that_cannot_fit_is_refused_with_a_sentence() {
        let refused = |text: &str| text.parse::<LeaseOption>().unwrap_err();
        assert!(refused("400ms").contains("lease duration 400ms is too short"));
        assert!(refused("0").contains("must be longer than zero"));
        assert!(refused("11s").contains("take 10s or less"), "{}", refused("11s"));
        assert!(refused("soon").ends_with("; or auto, or off"));
    }
}
