//! When the holder's right to act ends. Pure arithmetic; docs/safety.md has the argument.
//!
//! Not Curator's `Lease` (a semaphore's permit), not `coordination.k8s.io/Lease`.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::BootInstant;
use crate::timing::{SLACK, margin, proof_age};

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
/// Two things show that the leader has counted the session anew, and how early at most:
/// * a renewal that is *proven* by three later ones (the four steps);
/// * the first acknowledged write after the session was created on, or taken to, a server: the
///   leader counted it after that was asked for.
///
/// A lease that is still good then is extended by them. One that has lapsed is not yet: the leader
/// may have taken the session out of its queue before it counted it anew, and end it all the same
/// (`SessionTrackerImpl.run`). It marks such a session within [`SLACK`], and no marked session can
/// write; so a later write that is sent [`SLACK`] after the first one was acknowledged has to be
/// acknowledged as well.
///
/// Nothing but a server that grants less time makes a lease shorter, and then for the rest of the
/// session: the touches that an earlier server has collected carry the time that it granted
/// (`LearnerSessionTracker`), and may reach the leader late.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The shortest one that a server has granted to this session.
    session_timeout: Duration,
    /// Half a tick and [`SLACK`].
    proof_age: Duration,
    /// When the present connection was asked for; taken by its first acknowledged write.
    attached: Option<BootInstant>,
    /// What would extend the lease, had it not lapsed.
    unconfirmed: Option<Unconfirmed>,
    /// Acknowledged writes over the present connection, oldest first, thinned out.
    renewals: VecDeque<Renewal>,
    /// Until then the session of a creation cannot have been taken out of the leader's queue.
    created_until: Option<BootInstant>,
    end: Option<BootInstant>,
}

/// The leader has counted a session of which it is not known whether it had begun to end it.
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

    /// A session was created, with `session_timeout` as negotiated, that was asked for at `asked` or
    /// later. The leader counts it from its creation on (`SessionTrackerImpl.trackSession`), so
    /// that before `asked + session_timeout` it cannot have taken it out of its queue: until then a
    /// new session has not lapsed, and its first write proves the lease by itself.
    pub fn create(&mut self, asked: BootInstant, session_timeout: Duration) {
        self.session_timeout = session_timeout;
        self.created_until = Some(asked + session_timeout);
        self.end = None;
        self.connect(asked);
    }

    /// The same session is served over a new connection, with `session_timeout` as negotiated anew,
    /// which was asked for at `asked` or later. Earlier writes prove nothing more. A server that
    /// grants less time than before makes the lease shorter: the leader counts what it was told
    /// last (`ExpiryQueue.update`).
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

    /// Takes an acknowledged quorum write into account and returns the end of the lease. Writes
    /// have to come in the order in which they were acknowledged.
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

    /// The timeout with which the lease is counted: the shortest one that a server has granted to
    /// this session.
    pub fn session_timeout(&self) -> Duration {
        self.session_timeout
    }

    /// Whether no write was acknowledged yet over the present connection.
    pub fn is_attach_unproven(&self) -> bool {
        self.attached.is_some()
    }

    /// When the next write is due that proves something by itself; `None` when there is none, and it
    /// takes four renewals. At once over a new connection, and [`SLACK`] after the acknowledgement
    /// that would have extended a lease which had lapsed.
    pub fn proof_due(&self) -> Option<BootInstant> {
        match self.attached {
            Some(_) => Some(BootInstant::from_nanos(0)),
            None => self.unconfirmed.map(|first| first.acknowledged + SLACK),
        }
    }

    /// Whether the lease is valid at `now`.
    pub fn is_valid(&self, now: BootInstant) -> bool {
        self.end.is_some_and(|end| now < end)
    }

    /// Whether a lease until `end` has not lapsed at `now`. It does so at its deadline: our clock may be
    /// slower than the leader's.
    fn is_good(&self, end: Option<BootInstant>, now: BootInstant) -> bool {
        end.is_some_and(|end| now + margin(self.session_timeout) < end)
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
