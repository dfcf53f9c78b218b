//! What extends a lease, what does not, and what makes it shorter.

use super::*;

const T: Duration = Duration::from_millis(4_000);
const TICK: Duration = Duration::from_millis(1_000);

fn at(millis: u64) -> BootInstant {
    BootInstant::from_nanos(millis * 1_000_000)
}

fn renewal(sent: u64, acknowledged: u64) -> Renewal {
    Renewal {
        sent: at(sent),
        acknowledged: at(acknowledged),
    }
}

/// The lease of a session that was created a moment before the first renewal, over another connection than the
/// renewals: the creation proves nothing for them.
fn created() -> Lease {
    let mut lease = Lease::new(T, TICK);
    lease.create(at(0), T);
    lease.attached = None;
    lease
}

fn lease(renewals: &[(u64, u64)]) -> Option<BootInstant> {
    let mut lease = created();
    for &(sent, acknowledged) in renewals {
        lease.acknowledge(renewal(sent, acknowledged));
    }
    lease.end()
}

#[test]
fn three_acknowledged_renewals_prove_nothing() {
    assert_eq!(lease(&[(0, 10)]), None);
    assert_eq!(lease(&[(0, 10), (1_000, 1_010), (2_000, 2_010)]), None);
}

#[test]
fn the_fourth_renewal_extends_the_lease_to_the_send_time_of_the_first() {
    let mut lease = created();
    for sent in [0, 800, 1_600] {
        lease.acknowledge(renewal(sent, sent + 10));
    }
    assert_eq!(lease.acknowledge(renewal(2_400, 2_410)), Some(at(0) + T));
    assert_eq!(lease.acknowledge(renewal(3_200, 3_210)), Some(at(800) + T));
    // It lapses the margin before: 1 % of 4 s, and 200 ms.
    assert_eq!(lease.deadline(), Some(at(4_560)));
    assert!(lease.is_valid(at(4_559)));
    assert!(!lease.is_valid(at(4_560)));
}

#[test]
fn the_second_has_to_be_sent_half_a_tick_and_slack_after_the_answer_to_the_first() {
    assert_eq!(
        lease(&[(0, 301), (1_000, 1_010), (2_000, 2_010), (3_000, 3_010)]),
        None
    );
    assert_eq!(
        lease(&[(0, 300), (1_000, 1_010), (2_000, 2_010), (3_000, 3_010)]),
        Some(at(0) + T)
    );
}

#[test]
fn the_third_has_to_be_sent_slack_after_the_answer_to_the_second() {
    assert_eq!(
        lease(&[(0, 10), (1_000, 1_801), (2_000, 2_010), (3_000, 3_010)]),
        None
    );
    assert_eq!(
        lease(&[(0, 10), (1_000, 1_800), (2_000, 2_010), (3_000, 3_010)]),
        Some(at(0) + T)
    );
}

#[test]
fn the_fourth_has_to_be_sent_after_the_answer_to_the_third() {
    assert_eq!(
        lease(&[(0, 10), (1_000, 1_010), (2_000, 3_001), (3_000, 3_010)]),
        None
    );
    assert_eq!(
        lease(&[(0, 10), (1_000, 1_010), (2_000, 3_000), (3_000, 3_010)]),
        Some(at(0) + T)
    );
}

#[test]
fn short_intervals_pick_an_older_renewal() {
    let renewals: Vec<_> = (0..6).map(|i| (i * 500, i * 500 + 10)).collect();
    // Last sent at 2.5 s, witness at 2.0 s, awake at 1.5 s; 0.7 s before that: the one of 0.5 s.
    assert_eq!(lease(&renewals), Some(at(500) + T));
}

#[test]
fn the_first_write_of_a_new_session_counts_from_the_request_to_create_it() {
    let mut lease = Lease::new(T, TICK);
    lease.create(at(5_000), T);
    assert_eq!(lease.end(), None, "a connection alone proves nothing");
    assert!(lease.is_attach_unproven());
    assert_eq!(lease.acknowledge(renewal(5_020, 5_030)), Some(at(5_000) + T));
    assert!(!lease.is_attach_unproven());
    assert_eq!(lease.acknowledge(renewal(5_520, 5_530)), Some(at(5_000) + T));
}

#[test]
fn a_new_connection_forgets_the_renewals_of_the_old_one_but_not_the_lease() {
    let mut lease = Lease::new(4 * T, TICK);
    lease.create(at(0), 4 * T);
    for i in 0..6 {
        lease.acknowledge(renewal(i * 1_000, i * 1_000 + 10));
    }
    let end = lease.end();
    lease.attach(at(1), 4 * T);
    assert_eq!(lease.end(), end);
    for i in 6..9 {
        assert_eq!(
            lease.acknowledge(renewal(i * 1_000, i * 1_000 + 10)),
            end,
            "a lease never gets shorter"
        );
    }
    assert!(lease.acknowledge(renewal(9_000, 9_010)) > end);
}

#[test]
fn a_server_that_grants_less_time_than_before_shortens_the_lease() {
    let mut lease = Lease::new(T, TICK);
    lease.create(at(0), T);
    lease.acknowledge(renewal(10, 20));
    lease.attach(at(1_000), T / 2);
    assert_eq!(lease.end(), Some(at(1_000) + T / 2));
    assert_eq!(lease.session_timeout(), T / 2);
}

#[test]
fn a_session_is_counted_with_the_shortest_timeout_that_a_server_granted_until_it_ends() {
    let mut lease = Lease::new(T, TICK);
    lease.create(at(0), T);
    lease.acknowledge(renewal(10, 20));
    lease.attach(at(1_000), T / 2);
    // Touches that the server before has collected may still reach the leader.
    lease.attach(at(1_100), T);
    assert_eq!(lease.acknowledge(renewal(1_120, 1_130)), Some(at(1_100) + T / 2));
    lease.create(at(2_000), T);
    assert_eq!(lease.acknowledge(renewal(2_010, 2_020)), Some(at(2_000) + T));
}

#[test]
fn a_lapsed_lease_is_good_again_only_after_a_second_write_sent_slack_after_the_first_answer() {
    let lapsed = || {
        let mut lease = Lease::new(T, TICK);
        lease.create(at(0), T);
        assert_eq!(lease.acknowledge(renewal(10, 20)), Some(at(0) + T));
        lease.attach(at(6_000), T);
        assert_eq!(lease.proof_due(), Some(at(0)));
        lease.acknowledge(renewal(6_010, 6_020));
        assert!(!lease.is_valid(at(6_020)), "one write");
        assert!(!lease.is_attach_unproven());
        assert_eq!(lease.proof_due(), Some(at(6_220)));
        lease
    };
    let mut lease = lapsed();
    lease.acknowledge(renewal(6_219, 6_300));
    assert!(
        !lease.is_valid(at(6_300)),
        "a second write that was sent too early"
    );
    let mut lease = lapsed();
    assert_eq!(lease.acknowledge(renewal(6_220, 6_230)), Some(at(6_000) + T));
    assert_eq!(lease.proof_due(), None);
    lease.attach(at(7_000), T);
    assert_eq!(lease.acknowledge(renewal(7_010, 7_020)), Some(at(7_000) + T));
}

#[test]
fn a_lease_past_its_deadline_counts_as_lapsed() {
    // 1 % of T and 200 ms before its end.
    for (acknowledged, is_extended) in [(3_759, true), (3_760, false)] {
        let mut lease = Lease::new(T, TICK);
        lease.create(at(0), T);
        lease.acknowledge(renewal(10, 20));
        lease.attach(at(3_000), T);
        let end = lease.acknowledge(renewal(3_010, acknowledged));
        let extended = Some(at(3_000) + T);
        assert_eq!(end == extended, is_extended, "acknowledged at {acknowledged}");
    }
}

#[test]
fn four_renewals_of_a_lapsed_lease_need_a_fifth() {
    let mut lease = created();
    for sent in [9_000, 10_000, 11_000, 12_000] {
        lease.acknowledge(renewal(sent, sent + 10));
    }
    assert_eq!(lease.end(), None);
    assert_eq!(lease.proof_due(), Some(at(12_210)));
    assert!(lease.acknowledge(renewal(12_210, 12_220)) > Some(at(9_000) + T));
}

#[test]
fn a_connection_that_is_lost_takes_the_half_of_a_proof_with_it() {
    let mut lease = created();
    lease.attach(at(6_000), T);
    lease.acknowledge(renewal(6_010, 6_020));
    lease.attach(at(6_100), T);
    assert_eq!(lease.acknowledge(renewal(6_300, 6_310)), None);
    assert_eq!(lease.acknowledge(renewal(6_510, 6_520)), Some(at(6_100) + T));
}

#[test]
fn a_new_session_whose_first_answer_comes_after_its_timeout_has_lapsed() {
    let mut lease = Lease::new(T, TICK);
    lease.create(at(0), T);
    assert_eq!(lease.acknowledge(renewal(10, 4_100)), None);
    assert_eq!(lease.proof_due(), None, "that lease would be over");
    lease.attach(at(4_200), T);
    assert_eq!(lease.acknowledge(renewal(4_210, 4_220)), None);
    assert_eq!(lease.acknowledge(renewal(4_420, 4_430)), Some(at(4_200) + T));
}

#[test]
fn hundreds_of_writes_a_second_need_little_memory_and_lose_little_lease() {
    let mut lease = created();
    for i in 0..20_000 {
        lease.acknowledge(renewal(i, i + 1));
    }
    assert!(lease.renewals.len() < 64, "{}", lease.renewals.len());
    let lost = lease.end().unwrap().saturating_since(at(0)).as_millis() as i64 - (19_999 + 4_000);
    assert!(lost > -1_100, "lease ends {lost} ms from the last write + T");
}
