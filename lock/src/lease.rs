//! When the holder's right to act ends: pure arithmetic. docs/safety.md has the argument.
//!
//! Not Curator's `Lease` (a semaphore's permit), not `coordination.k8s.io/Lease`.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::BootInstant;
use crate::timing::{self, SLACK, proof_age};

/// An acknowledged quorum write of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// When it was sent, or earlier.
    pub sent: BootInstant,
    /// When its acknowledgement was read, or later.
    pub acknowledged: BootInstant,
}

/// The lease of a session: until its end the ensemble cannot have expired the session.
///
/// Two things show that the leader has restarted the session's timeout, and the earliest moment at which it did so:
/// * a renewal that is *proven* by three later ones (the four steps);
/// * the first acknowledged write after the session was created on, or taken to, a server: the leader restarted the
///   timeout after that was requested.
///
/// They extend a lease that is still good. They do not yet extend one that has lapsed: the leader may have taken the
/// session out of its queue before it restarted the timeout, and then it ends the session all the same
/// (`SessionTrackerImpl.run`). It marks such a session within [`SLACK`], and a marked session cannot write. So a later
/// write, sent [`SLACK`] after the first one was acknowledged, has to be acknowledged as well.
///
/// Only a server that grants less time makes a lease shorter, and it does so for the rest of the session: the touches
/// that an earlier server has collected carry the time that it granted (`LearnerSessionTracker`), and may reach the
/// leader late.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The shortest session timeout that a server has granted to this session.
    session_timeout: Duration,
    /// Half a tick and [`SLACK`].
    proof_age: Duration,
    /// When the present connection was requested. The first acknowledged write consumes it.
    attached: Option<BootInstant>,
    /// What would extend the lease if it had not lapsed.
    unconfirmed: Option<Unconfirmed>,
    /// Acknowledged writes over the present connection, oldest first, thinned out.
    renewals: VecDeque<Renewal>,
    /// Before this moment the leader cannot have taken a newly created session out of its queue.
    created_until: Option<BootInstant>,
    end: Option<BootInstant>,
}

/// The leader has restarted the timeout of a session, but may have begun to end the session before.
#[derive(Clone, Copy, Debug)]
struct Unconfirmed {
    counted_from: BootInstant,
    /// When the write that showed it was acknowledged.
    acknowledged: BootInstant,
}

impl Lease {
    /// No lease, and no session yet. `session_timeout` is the one to ask for, `tick_time` the
    /// ensemble's.
    pub fn new(session_timeout: Duration, tick_time: Duration) -> Self {
        Self {
            session_timeout,
            proof_age: proof_age(tick_time),
            attached: None,
            unconfirmed: None,
            renewals: VecDeque::new(),
            created_until: None,
            end: None,
        }
    }

    /// A session was created, with `session_timeout` as negotiated. The client requested it at `asked` or later. The
    /// leader counts it from its creation on (`SessionTrackerImpl.trackSession`), so it cannot have taken it out of its
    /// queue before `asked + session_timeout`. Until then a new session has not lapsed, and its first write proves the
    /// lease by itself.
    pub fn create(&mut self, asked: BootInstant, session_timeout: Duration) {
        self.session_timeout = session_timeout;
        self.created_until = Some(asked + session_timeout);
        self.end = None;
        self.connect(asked);
    }

    /// The same session has a new connection, with `session_timeout` as negotiated anew. The client requested it at
    /// `asked` or later. Earlier writes prove nothing any more. A server that grants less time than before makes the
    /// lease shorter: the leader uses the timeout that it received last (`ExpiryQueue.update`).
    pub fn attach(&mut self, asked: BootInstant, session_timeout: Duration) {
        if session_timeout < self.session_timeout {
            self.session_timeout = session_timeout;
            for until in [&mut self.end, &mut self.created_until].into_iter().flatten() {
                *until = (*until).min(asked + session_timeout);
            }
        }
        self.connect(asked);
    }

    fn connect(&mut self, asked: BootInstant) {
        self.attached = Some(asked);
        self.unconfirmed = None;
        self.renewals.clear();
    }

    /// Takes an acknowledged quorum write into account and returns the end of the lease. Call it in the order in which
    /// the writes were acknowledged.
    pub fn acknowledge(&mut self, renewal: Renewal) -> Option<BootInstant> {
        let is_confirmed = |first: &mut Unconfirmed| first.acknowledged + SLACK <= renewal.sent;
        if let Some(first) = self.unconfirmed.take_if(is_confirmed) {
            self.extend(first.counted_from);
        }
        let acknowledged = renewal.acknowledged;
        let counted = self.attached.take().max(self.newest_proven(renewal.sent));
        match counted {
            Some(counted_from) if self.is_good(self.end.max(self.created_until), acknowledged) => {
                self.extend(counted_from);
            }
            Some(counted_from) if self.is_good(Some(counted_from + self.session_timeout), acknowledged) => {
                self.unconfirmed.get_or_insert(Unconfirmed {
                    counted_from,
                    acknowledged,
                });
            }
            _ => {}
        }
        self.remember(renewal);
        self.end
    }

    /// The end of the lease; `None` before the first one.
    pub fn end(&self) -> Option<BootInstant> {
        self.end
    }

    /// The moment at which the lease lapses, which is its end less the margin
    /// ([`crate::Timing::margin`]); `None` before the first one. The holder may act before that moment.
    pub fn deadline(&self) -> Option<BootInstant> {
        self.end.map(|end| timing::deadline(end, self.session_timeout))
    }

    /// The session timeout that the lease uses: the shortest one that a server has granted to this session.
    pub fn session_timeout(&self) -> Duration {
        self.session_timeout
    }

    /// Whether the present connection still waits for its first acknowledged write.
    pub(crate) fn is_attach_unproven(&self) -> bool {
        self.attached.is_some()
    }

    /// When the next write is due that proves something by itself: at once over a new connection, and [`SLACK`] after
    /// the acknowledgement that would have extended a lapsed lease. `None` if a proof takes four renewals.
    pub(crate) fn proof_due(&self) -> Option<BootInstant> {
        match self.attached {
            Some(_) => Some(BootInstant::from_nanos(0)),
            None => self.unconfirmed.map(|first| first.acknowledged + SLACK),
        }
    }

    /// Whether the lease is valid at `now`: from its deadline on it has lapsed.
    pub fn is_valid(&self, now: BootInstant) -> bool {
        self.is_good(self.end, now)
    }

    /// Whether a lease until `end` has not lapsed at `now`. It lapses at its deadline, since our clock may
    /// be slower than the leader's.
    fn is_good(&self, end: Option<BootInstant>, now: BootInstant) -> bool {
        end.is_some_and(|end| now < timing::deadline(end, self.session_timeout))
    }

    fn extend(&mut self, counted_from: BootInstant) {
        self.end = self.end.max(Some(counted_from + self.session_timeout));
    }

    /// The send time of the newest renewal that a write sent at `sent` proves once that write is acknowledged. Between
    /// the two there are two more:
    /// * the *witness*, acknowledged before the write was sent;
    /// * before it, one that was acknowledged [`SLACK`] before the witness was sent, and that was sent `proof_age`
    ///   after the renewal was acknowledged. It shows that a leader that was paused when its ping was due has been
    ///   awake since, long enough to ping before it committed the witness.
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

    /// Keeps what later writes may need. Forgetting a renewal is always safe: it only makes a lease shorter. So of many
    /// renewals in quick succession only some are kept.
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
        // This write looks furthest back: later ones need nothing older.
        if let Some(proven) = self.newest_proven(renewal.sent) {
            while self.renewals.front().is_some_and(|first| first.sent < proven) {
                self.renewals.pop_front();
            }
        }
    }
}
