//! How the session timeout is divided, and which settings are refused.

use std::fmt;
use std::time::Duration;

use crate::clock::BootInstant;

/// Allowance for two threads of the leader whose work its commits do not wait for.
///
/// The first is its ping loop: it may be late, and wake up later than the threads that commit after a pause of the
/// whole leader (docs/safety.md, "The rule"). The second is its expirer, which takes all sessions that end with a tick
/// out of its queue at once, and then marks them one by one (`SessionTrackerImpl.run`; docs/safety.md, "A lease that
/// has lapsed").
pub const SLACK: Duration = Duration::from_millis(200);

/// The fixed part of the margin between the deadline and the end of the lease: the time that the
/// kernel may take to deliver SIGKILL to a tree of processes on a loaded machine.
pub const KILL_ALLOWANCE: Duration = Duration::from_millis(200);

/// The largest share by which the clocks of two machines may differ in rate.
pub const CLOCK_RATE_ERROR: f64 = 0.01;

/// The shortest and the longest session timeout that a server grants by default, in ticks
/// (`ZooKeeperServer.getMaxSessionTimeout`).
pub const SESSION_TIMEOUT_TICKS: std::ops::RangeInclusive<u32> = 2..=20;

/// The times of one lock. [`Timing::check`] decides which fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// T: how long the ensemble keeps the lock of a silent holder.
    pub session_timeout: Duration,
    /// The ensemble's `tickTime`.
    pub tick_time: Duration,
    /// Time between two renewals.
    pub renew_interval: Duration,
    /// Time between SIGTERM and SIGKILL.
    pub stop_grace: Duration,
}

impl Timing {
    /// `session_timeout` with the defaults for everything else: a renewal every eighth of it.
    pub fn new(session_timeout: Duration) -> Self {
        Self {
            session_timeout,
            tick_time: Duration::from_secs(2),
            renew_interval: session_timeout / 8,
            stop_grace: Duration::from_secs(3),
        }
    }

    /// Time between the deadline, at which everything is killed, and the end of the lease: one
    /// per cent of T for clocks that run at different rates, and [`KILL_ALLOWANCE`].
    pub fn margin(&self) -> Duration {
        margin(self.session_timeout)
    }

    /// Age of the newest proven renewal just before the next one is acknowledged. It is four intervals, or more if an
    /// interval is shorter than the times that have to lie between the first three renewals of a proof
    /// ([`crate::Lease`]): then the rule has to look further back.
    pub fn proven_age(&self) -> Duration {
        let intervals = |time| div_ceil(time, self.renew_interval).max(1);
        let first_to_third = intervals(proof_age(self.tick_time)).saturating_add(intervals(SLACK));
        // The fourth proves; the fifth is under way.
        self.renew_interval
            .saturating_mul(first_to_third.saturating_add(2))
    }

    /// How long the holder may be without an answer before it has to begin to stop the application; `None` if no time
    /// is left for that.
    pub fn spare(&self) -> Option<Duration> {
        self.session_timeout
            .checked_sub(self.proven_age())?
            .checked_sub(self.stop_grace)?
            .checked_sub(self.margin())
    }

    /// Whether the times fit together: at least a fifth of T has to be left for lost and late answers. With less, they
    /// would stop the application for nothing.
    ///
    /// # Errors
    /// The arithmetic, in one sentence.
    pub fn check(&self) -> Result<(), UnsafeTiming> {
        if self.session_timeout.is_zero() || self.tick_time.is_zero() || self.renew_interval.is_zero() {
            return Err(UnsafeTiming { timing: *self });
        }
        match self.spare() {
            Some(spare) if spare >= self.session_timeout / 5 => Ok(()),
            _ => Err(UnsafeTiming { timing: *self }),
        }
    }
}

/// How long after the acknowledgement of a renewal the next one of its proof has to be sent: the
/// leader pings its followers every half tick.
pub(crate) fn proof_age(tick_time: Duration) -> Duration {
    tick_time / 2 + SLACK
}

/// The deadline: a program under the lease may act until then, when the lease lapses.
pub(crate) fn deadline(lease_end: BootInstant, session_timeout: Duration) -> BootInstant {
    lease_end.saturating_sub(margin(session_timeout))
}

fn margin(session_timeout: Duration) -> Duration {
    session_timeout.mul_f64(CLOCK_RATE_ERROR) + KILL_ALLOWANCE
}

fn div_ceil(a: Duration, b: Duration) -> u32 {
    u32::try_from(a.as_nanos().div_ceil(b.as_nanos().max(1))).unwrap_or(u32::MAX)
}

/// Times that leave too little time for a lost answer. The message shows the arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UnsafeTiming {
    /// The refused times.
    pub timing: Timing,
}

impl fmt::Display for UnsafeTiming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Timing {
            session_timeout,
            tick_time,
            renew_interval,
            stop_grace,
        } = self.timing;
        if session_timeout.is_zero() || tick_time.is_zero() || renew_interval.is_zero() {
            return write!(
                f,
                "session timeout ({session_timeout:?}), tick time ({tick_time:?}) and renew interval \
                 ({renew_interval:?}) must all be longer than zero"
            );
        }
        write!(
            f,
            "session timeout {session_timeout:?} is too short: {:?} for four renewals (one every \
             {renew_interval:?}, tick time {tick_time:?}) + {stop_grace:?} stop grace + {:?} margin = \
             {:?}, which must be at most four fifths of it ({:?}); raise the session timeout or lower \
             the stop grace",
            self.timing.proven_age(),
            self.timing.margin(),
            self.timing
                .proven_age()
                .saturating_add(stop_grace)
                .saturating_add(self.timing.margin()),
            session_timeout - session_timeout / 5,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_defaults_fit_into_fifteen_seconds() {
        let timing = Timing::new(ms(15_000));
        assert_eq!(timing.margin(), ms(350));
        assert_eq!(timing.proven_age(), ms(4 * 1_875));
        assert_eq!(timing.spare(), Some(ms(15_000 - 4 * 1_875 - 3_000 - 350)));
        assert_eq!(timing.check(), Ok(()));
    }

    #[test]
    fn an_interval_below_the_age_of_a_proof_goes_further_back() {
        let timing = Timing {
            session_timeout: ms(4_000),
            tick_time: ms(1_000),
            renew_interval: ms(500),
            stop_grace: ms(400),
        };
        // 0.7 s are two intervals, 0.2 s one, and two more as always.
        assert_eq!(timing.proven_age(), ms(2_500));
        assert_eq!(timing.check(), Ok(()));
    }

    #[test]
    fn a_stop_grace_beyond_the_session_timeout_is_refused_with_the_arithmetic() {
        let timing = Timing {
            stop_grace: ms(20_000),
            ..Timing::new(ms(15_000))
        };
        let message = timing.check().unwrap_err().to_string();
        assert!(message.contains("7.5s for four renewals"), "{message}");
        assert!(
            message.contains("20s stop grace + 350ms margin = 27.85s"),
            "{message}"
        );
        assert!(message.contains("four fifths of it (12s)"), "{message}");
    }

    #[test]
    fn exactly_a_fifth_left_is_accepted_and_a_nanosecond_less_is_not() {
        let base = Timing::new(ms(15_000));
        let longest = base.session_timeout - base.session_timeout / 5 - base.proven_age() - base.margin();
        assert_eq!(
            Timing {
                stop_grace: longest,
                ..base
            }
            .check(),
            Ok(())
        );
        let over = Timing {
            stop_grace: longest + Duration::from_nanos(1),
            ..base
        };
        assert!(over.check().is_err());
    }

    #[test]
    fn zero_and_endless_times_are_refused_and_do_not_overflow() {
        for time in [Duration::ZERO, Duration::MAX] {
            assert!(
                Timing {
                    renew_interval: time,
                    ..Timing::new(ms(15_000))
                }
                .check()
                .is_err()
            );
            assert!(
                Timing {
                    tick_time: time,
                    ..Timing::new(ms(15_000))
                }
                .check()
                .is_err()
            );
        }
        assert!(
            Timing {
                stop_grace: Duration::MAX,
                ..Timing::new(ms(15_000))
            }
            .check()
            .is_err()
        );
        assert!(
            !Timing {
                stop_grace: Duration::MAX,
                ..Timing::new(ms(15_000))
            }
            .check()
            .unwrap_err()
            .to_string()
            .is_empty()
        );
    }
}
