//! When the holder's right to act ends. Pure arithmetic; docs/safety.md has the argument.
//!
//! Not Curator's `Lease` (a semaphore's permit), not `coordination.k8s.io/Lease`.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::BootInstant;

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
/// Only two things extend it, and nothing shortens it:
/// * a renewal that is *proven* by two later ones (the three steps);
/// * the first acknowledged write after the session was created on, or taken to, a server: the
///   leader counted the session anew after that was asked for.
#[derive(Clone, Debug)]
pub struct Lease {
    session_timeout: Duration,
    proof_age: Duration,
    /// When the present connection was asked for; taken by its first acknowledged write.
    attached: Option<BootInstant>,
    /// Acknowledged writes over the present connection, oldest first, thinned out.
    renewals: VecDeque<Renewal>,
    end: Option<BootInstant>,
}

impl Lease {
    /// No lease yet. `session_timeout` is the negotiated one; `proof_age` is half a tick and some
    /// slack ([`crate::Timing::proof_age`]).
    pub fn new(session_timeout: Duration, proof_age: Duration) -> Self {
        Self {
            session_timeout,
            proof_age,
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
    /// acknowledged: there is another one between the two, sent `proof_age` after the
    /// acknowledgement of the first and acknowledged before the write was sent.
    fn newest_proven(&self, sent: BootInstant) -> Option<BootInstant> {
        let witness = self
            .renewals
            .iter()
            .rev()
            .find(|witness| witness.acknowledged <= sent)?;
        let newest = self
            .renewals
            .iter()
            .rev()
            .find(|renewal| renewal.acknowledged + self.proof_age <= witness.sent)?;
        Some(newest.sent)
    }

    /// Keeps what later writes may need. Forgetting a renewal is always safe, it only makes a lease
    /// shorter; so of many in quick succession only some are kept.
    fn remember(&mut self, renewal: Renewal) {
        let spacing = self.proof_age / 16;
        match self.renewals.back() {
            Some(last) if renewal.sent < last.sent + spacing => return,
            _ => self.renewals.push_back(renewal),
        }
        // What is older than the newest that is old enough for the newest is never needed again.
        while self.renewals.len() > 2
            && self.renewals[1].acknowledged + self.proof_age <= self.renewals[self.renewals.len() - 2].sent
        {
            self.renewals.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_millis(4_000);
    const AGE: Duration = Duration::from_millis(700);

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(millis * 1_000_000)
    }

    fn renewal(sent: u64, acknowledged: u64) -> Renewal {
        Renewal {
            sent: at(sent),
            acknowledged: at(acknowledged),
        }
    }

    #[test]
    fn one_and_two_acknowledged_renewals_prove_nothing() {
        let mut lease = Lease::new(T, AGE);
        assert_eq!(lease.acknowledge(renewal(0, 10)), None);
        assert_eq!(lease.acknowledge(renewal(1_000, 1_010)), None);
        assert!(!lease.is_valid(at(1_010)));
    }

    #[test]
    fn the_third_renewal_extends_the_lease_to_the_send_time_of_the_first() {
        let mut lease = Lease::new(T, AGE);
        lease.acknowledge(renewal(0, 10));
        lease.acknowledge(renewal(1_000, 1_010));
        assert_eq!(lease.acknowledge(renewal(2_000, 2_010)), Some(at(0) + T));
        assert_eq!(lease.acknowledge(renewal(3_000, 3_010)), Some(at(1_000) + T));
        assert!(lease.is_valid(at(4_999)));
        assert!(!lease.is_valid(at(5_000)));
    }

    #[test]
    fn a_witness_sent_less_than_half_a_tick_and_slack_after_the_acknowledgement_is_none() {
        let mut lease = Lease::new(T, AGE);
        lease.acknowledge(renewal(0, 301));
        lease.acknowledge(renewal(1_000, 1_010));
        assert_eq!(lease.acknowledge(renewal(2_000, 2_010)), None);
        let mut lease = Lease::new(T, AGE);
        lease.acknowledge(renewal(0, 300));
        lease.acknowledge(renewal(1_000, 1_010));
        assert_eq!(lease.acknowledge(renewal(2_000, 2_010)), Some(at(0) + T));
    }

    #[test]
    fn a_witness_acknowledged_after_the_last_was_sent_is_none() {
        let mut lease = Lease::new(T, AGE);
        lease.acknowledge(renewal(0, 10));
        lease.acknowledge(renewal(1_000, 2_001));
        assert_eq!(lease.acknowledge(renewal(2_000, 2_010)), None);
    }

    #[test]
    fn short_intervals_pick_an_older_renewal() {
        let mut lease = Lease::new(T, AGE);
        for i in 0..5 {
            lease.acknowledge(renewal(i * 500, i * 500 + 10));
        }
        // Last sent at 2.0 s; witness at 1.5 s; 0.7 s before that: the one of 0.5 s.
        assert_eq!(lease.end(), Some(at(500) + T));
    }

    #[test]
    fn the_first_write_after_a_connection_counts_from_the_request_to_connect() {
        let mut lease = Lease::new(T, AGE);
        lease.attach(at(5_000), T);
        assert_eq!(lease.end(), None, "a connection alone proves nothing");
        assert_eq!(lease.acknowledge(renewal(5_020, 5_030)), Some(at(5_000) + T));
        assert_eq!(lease.acknowledge(renewal(5_520, 5_530)), Some(at(5_000) + T));
    }

    #[test]
    fn a_new_connection_forgets_the_renewals_of_the_old_one_but_not_the_lease() {
        let mut lease = Lease::new(T, AGE);
        for i in 0..5 {
            lease.acknowledge(renewal(i * 1_000, i * 1_000 + 10));
        }
        let end = lease.end();
        lease.attach(at(1), T);
        assert_eq!(lease.end(), end);
        assert_eq!(
            lease.acknowledge(renewal(5_000, 5_010)),
            end,
            "a lease never gets shorter"
        );
        assert_eq!(lease.acknowledge(renewal(6_000, 6_010)), end);
    }

    #[test]
    fn a_server_that_grants_less_time_than_before_shortens_the_lease() {
        let mut lease = Lease::new(T, AGE);
        lease.attach(at(0), T);
        lease.acknowledge(renewal(10, 20));
        lease.attach(at(1_000), T / 2);
        assert_eq!(lease.end(), Some(at(1_000) + T / 2));
        lease.attach(at(1_100), T);
        assert_eq!(lease.acknowledge(renewal(1_120, 1_130)), Some(at(1_100) + T));
    }

    #[test]
    fn hundreds_of_writes_a_second_need_little_memory_and_lose_little_lease() {
        let mut lease = Lease::new(T, AGE);
        for i in 0..20_000 {
            lease.acknowledge(renewal(i, i + 1));
        }
        assert!(lease.renewals.len() < 64, "{}", lease.renewals.len());
        let lost = lease.end().unwrap().saturating_since(at(0)).as_millis() as i64 - (19_999 + 4_000);
        assert!(lost > -900, "lease ends {lost} ms from the last write + T");
    }
}
