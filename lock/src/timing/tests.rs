//! Which times fit together, and what the message says of others.

use super::*;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn the_defaults_fit_into_fifteen_seconds() {
    let defaults = Timing::new(ms(15_000));
    assert_eq!(defaults.check(), Ok(()));
    assert_eq!(defaults.lease(), Some(ms(8_500)));
    let timing = with_lease(LeaseDuration::Off);
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
        lease_duration: LeaseDuration::Off,
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
    let base = with_lease(LeaseDuration::Off);
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

fn with_lease(lease_duration: LeaseDuration) -> Timing {
    Timing {
        lease_duration,
        ..Timing::new(ms(15_000))
    }
}

#[test]
fn the_shortest_lease_leaves_as_much_time_for_lost_answers_as_the_session_alone() {
    let auto = with_lease(LeaseDuration::Auto);
    assert_eq!(auto.lease(), Some(ms(8_500)));
    assert_eq!(auto.interval(), Duration::from_micros(1_062_500));
    assert_eq!(auto.check(), Ok(()));
    let alone = with_lease(LeaseDuration::Off);
    assert_eq!(alone.interval(), alone.renew_interval);
    assert!(auto.least_spare() >= alone.spare());
    // With an interval just below the age of a proof, 1.2 s, the proof would be older.
    let older = Timing {
        renew_interval: ms(1_200),
        session_timeout: ms(12_000),
        ..auto
    };
    assert_eq!(older.lease(), Some(ms(9_600)));
    assert_eq!((older.interval(), older.check()), (ms(1_200), Ok(())));
    // A shorter interval of its own stays.
    let often = Timing {
        renew_interval: ms(700),
        tick_time: ms(500),
        ..auto
    };
    assert_eq!(often.interval(), ms(700));
    let shorter = Timing {
        lease_duration: LeaseDuration::Of(often.lease().unwrap() - ms(101)),
        ..often
    };
    let alone = Timing {
        lease_duration: LeaseDuration::Off,
        ..often
    };
    assert!(often.least_spare() >= alone.spare() && shorter.least_spare() < alone.spare());
    for stop_grace in [ms(3_000), Duration::MAX] {
        let endless = Timing {
            session_timeout: Duration::MAX,
            stop_grace,
            ..auto
        };
        assert_eq!(endless.lease(), Some(LONGEST_LEASE));
    }
}

#[test]
fn a_lease_of_which_a_fifth_is_left_is_accepted_and_a_shorter_one_is_refused_with_the_arithmetic() {
    // An eighth, 1 %, 3 s and 0.2 s are four fifths of it.
    let shortest = Duration::from_nanos(4_812_030_076);
    assert_eq!(with_lease(LeaseDuration::Of(shortest)).check(), Ok(()));
    let shorter = with_lease(LeaseDuration::Of(shortest - Duration::from_nanos(10)));
    assert!(shorter.check().is_err());
    let message = with_lease(LeaseDuration::Of(ms(4_000)))
        .check()
        .unwrap_err()
        .to_string();
    assert!(message.contains("lease duration 4s is too short"), "{message}");
    assert!(
        message.contains("500ms until the next renewal + 3s stop grace + 240ms margin = 3.74s"),
        "{message}"
    );
    assert!(message.contains("four fifths of it (3.2s)"), "{message}");
    for lease in [Duration::ZERO, LONGEST_LEASE + ms(1), Duration::MAX] {
        let message = with_lease(LeaseDuration::Of(lease))
            .check()
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("longer than zero and at most 3600s"),
            "{message}"
        );
    }
}
