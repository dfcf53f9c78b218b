//! When the holder's right to act ends. Pure arithmetic; docs/safety.md has the argument.
//!
//! Not Curator's `Lease` (a semaphore's permit), not `coordination.k8s.io/Lease`.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::BootInstant;
use crate::timing::{SLACK, proof_age};

/// An acknowledged quorum write of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// When it was sent, or earlier.
    pub sent: BootInstant,
    /// When its acknowledgement was read, or later.
    pub acknowledged: BootInstant,
}

/// The lease of a session: the moment before which the ensemble cannot have expired it.
///
/// Only two things extend it, and nothing but a server that grants less time shortens it:
/// * a renewal that is *proven* by three later ones (the four steps);
/// * the first acknowledged write after the session was created on, or taken to, a server: the
///   leader counted the session anew after that was asked for.
#[derive(Clone, Debug)]
pub struct Lease {
    session_timeout: Duration,
    /// Half a tick and [`SLACK`].
    proof_age: Duration,
    /// When the present connection was asked for; taken by its first acknowledged write.
    attached: Option<BootInstant>,
    /// Acknowledged writes over the present connection, oldest first, thinned out.
    renewals: VecDeque<Renewal>,
    end: Option<BootInstant>,
}

impl Lease {
    /// No lease yet. `session_timeout` is the negotiated one, `tick_time` the ensemble's.
    pub fn new(session_timeout: Duration, tick_time: Duration) -> Self {
        Self {
            session_timeout,
            proof_age: proof_age(tick_time),
            attached: None,
            renewals: VecDeque::new(),
            end: None,
        }
    }

    /// The same session is served over a new connection, with `session_timeout` as negotiated anew,
    /// which was asked for at `asked` or later. Earlier writes prove nothing more. A server that
    /// grants less time than before makes the lease shorter: the leader counts what it was told
    /// last (`ExpiryQueue.update`).
    pub fn attach(&mut self, asked: BootInstant, session_timeout: Duration) {
        if session_timeout < self.session_timeout {
            self.end = self.end.map(|end| end.min(asked + session_timeout));
        }
        self.session_timeout = session_timeout;
        self.attached = Some(asked);
        self.renewals.clear();
    }

    /// Takes an acknowledged quorum write into account and returns the end of the lease. Writes
    /// have to come in the order in which they were acknowledged.
    pub fn acknowledge(&mut self, renewal: Renewal) -> Option<BootInstant> {
        if let Some(asked) = self.attached.take() {
            self.extend(asked);
        }
        if let Some(proven) = self.newest_proven(renewal.sent) {
            self.extend(proven);
        }
        self.remember(renewal);
        self.end
    }

    /// The end of the lease; `None` before the first one.
    pub fn end(&self) -> Option<BootInstant> {
        self.end
    }

    /// Whether the present connection has not proven anything yet.
    pub fn is_attach_unproven(&self) -> bool {
        self.attached.is_some()
    }

    /// Whether the lease is valid at `now`.
    pub fn is_valid(&self, now: BootInstant) -> bool {
        self.end.is_some_and(|end| now < end)
    }

    fn extend(&mut self, counted_from: BootInstant) {
        self.end = self.end.max(Some(counted_from + self.session_timeout));
    }

    /// The send time of the newest renewal that a write sent at `sent` proves, once that is
    /// acknowledged. Between the two there are two more:
    /// * the *witness*, acknowledged before the write was sent;
    /// * before it, one that was acknowledged [`SLACK`] before the witness was sent, and that was sent
    ///   `proof_age` after the renewal was acknowledged. A leader that was paused when its ping was
    ///   due has been awake since, long enough to ping before it committed the witness.
    fn newest_proven(&self, sent: BootInstant) -> Option<BootInstant> {
        let witness = self.newest(|renewal| renewal.acknowledged <= sent)?;
        let awake = self.newest(|renewal| renewal.acknowledged + SLACK <= witness.sent)?;
        let proven = self.newest(|renewal| renewal.acknowledged + self.proof_age <= awake.sent)?;
        Some(proven.sent)
    }

    fn newest(&self, is_old_enough: impl Fn(&Renewal) -> bool) -> Option<Renewal> {
        self.renewals
            .iter()
            .rev()
            .find(|renewal| is_old_enough(renewal))
            .copied()
    }

    /// Keeps what later writes may need. Forgetting a renewal is always safe, it only makes a lease
    /// shorter; so of many in quick succession only some are kept.
    fn remember(&mut self, renewal: Renewal) {
        let spacing = self.proof_age / 16;
        if self
            .renewals
            .back()
            .is_some_and(|last| renewal.sent < last.sent + spacing)
        {
            return;
        }
        self.renewals.push_back(renewal);
        // No later write looks further back than this one does.
        if let Some(proven) = self.newest_proven(renewal.sent) {
            while self.renewals.front().is_some_and(|first| first.sent < proven) {
                self.renewals.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
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

    fn lease(renewals: &[(u64, u64)]) -> Option<BootInstant> {
        let mut lease = Lease::new(T, TICK);
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
        let mut lease = Lease::new(T, TICK);
        for sent in [0, 1_000, 2_000] {
            lease.acknowledge(renewal(sent, sent + 10));
        }
        assert_eq!(lease.acknowledge(renewal(3_000, 3_010)), Some(at(0) + T));
        assert_eq!(lease.acknowledge(renewal(4_000, 4_010)), Some(at(1_000) + T));
        assert!(lease.is_valid(at(4_999)));
        assert!(!lease.is_valid(at(5_000)));
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
    fn the_first_write_after_a_connection_counts_from_the_request_to_connect() {
        let mut lease = Lease::new(T, TICK);
        lease.attach(at(5_000), T);
        assert_eq!(lease.end(), None, "a connection alone proves nothing");
        assert!(lease.is_attach_unproven());
        assert_eq!(lease.acknowledge(renewal(5_020, 5_030)), Some(at(5_000) + T));
        assert!(!lease.is_attach_unproven());
        assert_eq!(lease.acknowledge(renewal(5_520, 5_530)), Some(at(5_000) + T));
    }

    #[test]
    fn a_new_connection_forgets_the_renewals_of_the_old_one_but_not_the_lease() {
        let mut lease = Lease::new(T, TICK);
        for i in 0..6 {
            lease.acknowledge(renewal(i * 1_000, i * 1_000 + 10));
        }
        let end = lease.end();
        lease.attach(at(1), T);
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
        lease.attach(at(0), T);
        lease.acknowledge(renewal(10, 20));
        lease.attach(at(1_000), T / 2);
        assert_eq!(lease.end(), Some(at(1_000) + T / 2));
        lease.attach(at(1_100), T);
        assert_eq!(lease.acknowledge(renewal(1_120, 1_130)), Some(at(1_100) + T));
    }

    #[test]
    fn hundreds_of_writes_a_second_need_little_memory_and_lose_little_lease() {
        let mut lease = Lease::new(T, TICK);
        for i in 0..20_000 {
            lease.acknowledge(renewal(i, i + 1));
        }
        assert!(lease.renewals.len() < 64, "{}", lease.renewals.len());
        let lost = lease.end().unwrap().saturating_since(at(0)).as_millis() as i64 - (19_999 + 4_000);
        assert!(lost > -1_100, "lease ends {lost} ms from the last write + T");
    }
}
