//! The pauses before the first attempt to connect again, and between attempts.

use std::time::Duration;

/// Longest pause between two rounds over all servers, for contenders that hold, are next or have a request to answer:
/// they are served within a second after the servers come back.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Longest time over which waiters come back. If T is long and the lock has become free meanwhile, a waiter that stays
/// away for half of T would delay the next holder.
const LONGEST_SPREAD: Duration = Duration::from_secs(10);

/// Pause before leaving an overloaded server for the next one, which may be overloaded too: long enough that a queue of
/// thousands of contenders causes little load.
const OVERLOAD_PAUSE: Duration = Duration::from_millis(500);

/// How soon to take a session to the next connection. After an outage all clients come back at once. The requests of
/// waiters (a session moved, a listing) must not delay those of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haste {
    /// Contenders that hold, are next or have a request to answer: at once, and again and again.
    AtOnce,
    /// The last server did not carry out a request: after [`OVERLOAD_PAUSE`], then as [`Haste::AtOnce`].
    AfterOverload,
    /// Waiters: at a random moment within this time, and again after random pauses of up to this time ("full jitter":
    /// Brooker, Exponential Backoff And Jitter, 2015).
    Spread(Duration),
}

impl Haste {
    /// For a waiter. Half of T leaves its session alive: the library reports silence after two fifths of T (it pings
    /// every 3/20; `Session::reset_timeout` of `zookeeper-client`, which checks every 1/20), and one more attempt has
    /// to fit in before the end.
    pub(super) fn of_waiter(session_timeout: Duration, attempt: Duration) -> Self {
        Self::Spread((session_timeout / 2).saturating_sub(attempt).min(LONGEST_SPREAD))
    }

    /// How long to wait before the first attempt.
    pub(super) fn wait(self) -> Duration {
        match self {
            Self::AtOnce => Duration::ZERO,
            Self::AfterOverload => OVERLOAD_PAUSE.mul_f64(0.5 + fastrand::f64() / 2.0),
            Self::Spread(spread) => spread.mul_f64(fastrand::f64()),
        }
    }

    /// How long to wait between two attempts, with `pause` as the longest wait; and the limit to which `pause` may
    /// grow.
    pub(super) fn pause(self, pause: Duration) -> (Duration, Duration) {
        match self {
            Self::AtOnce | Self::AfterOverload => (pause.mul_f64(0.5 + fastrand::f64() / 2.0), LONGEST_PAUSE),
            Self::Spread(spread) => (pause.mul_f64(fastrand::f64()), spread.max(LONGEST_PAUSE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(15);

    #[test]
    fn waiters_come_back_at_any_moment_of_half_a_session_and_before_its_end() {
        let attempt = Duration::from_millis(900);
        let haste = Haste::of_waiter(T, attempt);
        let waits: Vec<_> = (0..10_000).map(|_| haste.wait()).collect();
        let within = |from: f64, to: f64| {
            let (from, to) = (T.mul_f64(from), T.mul_f64(to));
            waits.iter().filter(|wait| (from..to).contains(*wait)).count()
        };
        // Evenly spread: as many in each tenth of the session.
        for tenth in 0..4 {
            let from = f64::from(tenth) / 10.0;
            assert!((1_800..2_800).contains(&within(from, from + 0.1)), "{from}");
        }
        // The time until the library notices silence, the wait, and one attempt.
        let longest = *waits.iter().max().unwrap();
        assert!(T.mul_f64(9.0 / 20.0) + longest + attempt < T, "{longest:?}");
        assert_eq!(Haste::of_waiter(T * 100, attempt), Haste::Spread(LONGEST_SPREAD));
    }

    #[test]
    fn retries_of_waiters_have_full_jitter_and_those_of_holders_come_within_a_quarter_of_a_second() {
        let pause = Duration::from_secs(1);
        let spread = Duration::from_secs(7);
        let pauses: Vec<_> = (0..1_000).map(|_| Haste::Spread(spread).pause(pause)).collect();
        assert!(
            pauses
                .iter()
                .any(|(pause, _)| *pause < Duration::from_millis(100))
        );
        assert!(
            pauses
                .iter()
                .all(|(now, longest)| *now <= pause && *longest == spread)
        );
        assert_eq!(Haste::AtOnce.wait(), Duration::ZERO);
        for _ in 0..1_000 {
            let (now, longest) = Haste::AtOnce.pause(pause);
            assert!(now <= pause && longest == LONGEST_PAUSE);
        }
    }
}
