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
pub(crate) const CLOCK_RATE_ERROR: f64 = 0.01;

/// The shortest and the longest session timeout that a server grants by default, in ticks
/// (`ZooKeeperServer.getMaxSessionTimeout`).
pub const SESSION_TIMEOUT_TICKS: std::ops::RangeInclusive<u32> = 2..=20;

/// The longest lease duration, and the longest that is believed of another contender: for longer its session is
/// trusted alone.
pub const LONGEST_LEASE: Duration = Duration::from_secs(60 * 60);

/// The lease duration, L: a holder that does not renew for L stops its application by itself, and the contender
/// behind it may take its place then, or when the session ends, if that is sooner (docs/safety.md, "The takeover
/// lease").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseDuration {
    /// Only the session decides: the place of a silent contender is free when the ensemble expires its session.
    Off,
    /// The shortest one with which as much time is left for lost answers as without: 8.5 s with the defaults.
    #[default]
    Auto,
    /// This one; at most [`LONGEST_LEASE`].
    Of(Duration),
}

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
    /// L: for how long a contender may be silent before the one behind it takes its place.
    pub lease_duration: LeaseDuration,
}

impl Timing {
    /// `session_timeout` with the defaults for everything else: a renewal every eighth of it.
    pub fn new(session_timeout: Duration) -> Self {
        Self {
            session_timeout,
            tick_time: Duration::from_secs(2),
            renew_interval: session_timeout / 8,
            stop_grace: Duration::from_secs(3),
            lease_duration: LeaseDuration::Auto,
        }
    }

    /// With the session timeout that a server has granted: a renew interval of an eighth of it stays an eighth.
    pub fn granted(self, session_timeout: Duration) -> Self {
        let renew_interval = if self.renew_interval == self.session_timeout / 8 {
            session_timeout / 8
        } else {
            self.renew_interval
        };
        Self {
            session_timeout,
            renew_interval,
            ..self
        }
    }

    /// L; `None` if only the session decides.
    pub fn lease(&self) -> Option<Duration> {
        match self.lease_duration {
            LeaseDuration::Off => None,
            LeaseDuration::Auto => Some(self.shortest_lease()),
            LeaseDuration::Of(lease) => Some(lease),
        }
    }

    /// The shortest lease that leaves as much time for lost answers as the session with the configured interval does,
    /// in tenths of a second. It has to cover one interval, the stop grace, the margin, and that time.
    fn shortest_lease(&self) -> Duration {
        let alone = self.without_lease();
        let rest = [self.stop_grace, KILL_ALLOWANCE, alone.spare().unwrap_or_default()];
        let rest: f64 = rest.iter().map(Duration::as_secs_f64).sum();
        // With an interval of an eighth of it, or with the configured one.
        let with_an_eighth = rest / (1.0 - CLOCK_RATE_ERROR - 1.0 / 8.0);
        let with_the_interval = (rest + self.renew_interval.as_secs_f64()) / (1.0 - CLOCK_RATE_ERROR);
        let tenths = |secs: f64| {
            let lease = Duration::try_from_secs_f64((secs * 10.0).ceil() / 10.0);
            lease.map_or(LONGEST_LEASE, |lease| lease.min(LONGEST_LEASE))
        };
        let lease = tenths(with_an_eighth.min(with_the_interval));
        let with_it = Self {
            lease_duration: LeaseDuration::Of(lease),
            ..*self
        };
        // Just below the age of a proof, a shorter interval makes it older ([`Timing::proven_age`]).
        match with_it.spare() < alone.spare() {
            true => tenths(self.renew_interval.as_secs_f64() * 8.0),
            false => lease,
        }
    }

    fn without_lease(&self) -> Self {
        Self {
            lease_duration: LeaseDuration::Off,
            ..*self
        }
    }

    /// Time between two renewals: the renew interval, or an eighth of L if that is shorter.
    pub fn interval(&self) -> Duration {
        interval(self.renew_interval, self.lease())
    }

    /// Time between the deadline, at which everything is killed, and the end of the lease: one
    /// per cent of T for clocks that run at different rates, and [`KILL_ALLOWANCE`].
    pub fn margin(&self) -> Duration {
        margin(self.session_timeout)
    }

    /// The end of the lease that lapses at this deadline, the inverse of [`crate::LockStatus::deadline`].
    pub fn lease_end(&self, deadline: BootInstant) -> BootInstant {
        deadline + self.margin()
    }

    /// Age of the newest proven renewal just before the next one is acknowledged. It is four intervals, or more if an
    /// interval is shorter than the times that have to lie between the first three renewals of a proof
    /// ([`crate::Lease`]): then the rule has to look further back.
    pub fn proven_age(&self) -> Duration {
        let interval = self.interval();
        let intervals = |time| div_ceil(time, interval).max(1);
        let first_to_third = intervals(proof_age(self.tick_time)).saturating_add(intervals(SLACK));
        // The fourth proves; the fifth is under way.
        interval.saturating_mul(first_to_third.saturating_add(2))
    }

    /// How long the holder may be without an answer before it has to begin to stop the application; `None` if no time
    /// is left for that.
    pub fn spare(&self) -> Option<Duration> {
        self.session_timeout
            .checked_sub(self.proven_age())?
            .checked_sub(self.stop_grace)?
            .checked_sub(self.margin())
    }

    /// The same for a holder that may be silent for `lease`: how long it may be without an answer beyond one interval
    /// before it has to begin to stop the application.
    fn spare_of_lease(&self, lease: Duration) -> Option<Duration> {
        lease
            .checked_sub(self.interval())?
            .checked_sub(self.stop_grace)?
            .checked_sub(margin(lease))
    }

    /// The same for the lease of the two that leaves less.
    pub fn least_spare(&self) -> Option<Duration> {
        match self.lease() {
            Some(lease) => Some(self.spare()?.min(self.spare_of_lease(lease)?)),
            None => self.spare(),
        }
    }

    /// The longest wait for one answer of an ensemble that is slow, where no lease depends on it: three servers may each
    /// be asked once while the session lasts.
    pub(crate) fn longest_patience(&self) -> Duration {
        self.session_timeout / 3
    }

    /// Whether the times fit together: at least a fifth of T, and of L, has to be left for lost and late answers. With
    /// less, they would stop the application for nothing.
    ///
    /// # Errors
    /// The arithmetic, in one sentence.
    pub fn check(&self) -> Result<(), UnsafeTiming> {
        // `auto` is at least as patient as the session alone, whose times have to fit then.
        let session = match self.lease_duration {
            LeaseDuration::Auto => self.without_lease(),
            _ => *self,
        };
        let unsafe_timing = |why| Err(UnsafeTiming { timing: session, why });
        if self.session_timeout.is_zero() || self.tick_time.is_zero() || self.renew_interval.is_zero() {
            return unsafe_timing(Why::Zero);
        }
        if let LeaseDuration::Of(lease) = self.lease_duration
            && (lease.is_zero() || lease > LONGEST_LEASE)
        {
            return unsafe_timing(Why::Lease(lease));
        }
        if session
            .spare()
            .is_none_or(|spare| spare < self.session_timeout / 5)
        {
            return unsafe_timing(Why::Session);
        }
        match self.lease() {
            Some(lease) if self.spare_of_lease(lease).is_none_or(|spare| spare < lease / 5) => {
                unsafe_timing(Why::Lease(lease))
            }
            _ => Ok(()),
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

/// The renew interval, or an eighth of the lease if that is shorter.
pub(crate) fn interval(renew_interval: Duration, lease: Option<Duration>) -> Duration {
    lease.map_or(renew_interval, |lease| renew_interval.min(lease / 8))
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
    why: Why,
}

/// What is wrong with refused times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// One of them is zero.
    Zero,
    /// Too little of T is left.
    Session,
    /// This L is zero or too long, or too little of it is left.
    Lease(Duration),
}

impl fmt::Display for UnsafeTiming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Timing {
            session_timeout,
            tick_time,
            renew_interval,
            stop_grace,
            ..
        } = self.timing;
        let interval = self.timing.interval();
        match self.why {
            Why::Zero => write!(
                f,
                "session timeout ({session_timeout:?}), tick time ({tick_time:?}) and renew interval \
                 ({renew_interval:?}) must all be longer than zero"
            ),
            Why::Session => write!(
                f,
                "session timeout {session_timeout:?} is too short: {:?} for four renewals (one every \
                 {interval:?}, tick time {tick_time:?}) + {stop_grace:?} stop grace + {:?} margin = \
                 {:?}, which must be at most four fifths of it ({:?}); raise the session timeout or lower \
                 the stop grace",
                self.timing.proven_age(),
                self.timing.margin(),
                self.timing
                    .proven_age()
                    .saturating_add(stop_grace)
                    .saturating_add(self.timing.margin()),
                session_timeout - session_timeout / 5,
            ),
            Why::Lease(lease) if lease.is_zero() || lease > LONGEST_LEASE => write!(
                f,
                "lease duration {lease:?} must be longer than zero and at most {LONGEST_LEASE:?}"
            ),
            Why::Lease(lease) => write!(
                f,
                "lease duration {lease:?} is too short: {interval:?} until the next renewal + {stop_grace:?} stop \
                 grace + {:?} margin = {:?}, which must be at most four fifths of it ({:?}); raise the lease duration \
                 or lower the stop grace",
                margin(lease),
                interval.saturating_add(stop_grace).saturating_add(margin(lease)),
                lease - lease / 5,
            ),
        }
    }
}

#[cfg(test)]
mod tests;
