//! The leader: puts writes in order, and expires sessions.

use std::time::Duration;

use lockkeeper_lock::FencingToken;
use lockkeeper_lock::SESSION_TIMEOUT_TICKS;
use lockkeeper_lock::ensemble::{Created, EnsembleError, MultiError, Session};

use crate::happened::{Happened, Record};
use crate::link::LinkId;
use crate::messages::{Answer, Entry, Origin, Outcome, Pending};
use crate::state::{SessionRecord, State};
use crate::time::Millis;
use crate::tree::{Change, Done};

/// How long the leader takes at most to end the sessions of one tick. It is less than the slack of the lease
/// ([`lockkeeper_lock::SLACK`]), because the clients' clocks may be fast.
const LONGEST_MARKING: Millis = 190;

impl State {
    /// Restarts the timeout of a session; returns whether it is alive. `ExpiryQueue.update`: the next tick after now +
    /// T.
    pub(crate) fn touch(&mut self, session: i64) -> bool {
        let (now, tick) = (self.now, self.tick());
        let Some(record) = self.sessions.get_mut(&session) else {
            return false;
        };
        record.touched = now;
        record.expires = ((now + record.timeout) / tick + 1) * tick;
        let delay = record.expires - now;
        self.after(delay, move |state| state.expire_if_due(session));
        true
    }

    /// Checks whether a session is over. A leader that is stalled or has no quorum checks later.
    fn expire_if_due(&mut self, session: i64) {
        let (now, can_commit) = (self.now, self.can_commit());
        let Some(record) = self.sessions.get_mut(&session) else {
            return;
        };
        if record.expires > now || record.is_taken {
            return; // touched since, or being ended already
        }
        if !can_commit {
            let later = self.up_to(5) + 1;
            return self.after(later, move |state| state.expire_if_due(session));
        }
        record.is_taken = true;
        let (epoch, others) = (self.epoch, self.up_to(LONGEST_MARKING));
        self.after(others, move |state| state.end_taken(epoch, session));
    }

    /// `SessionTrackerImpl.run` takes all sessions of a tick at once, and ends them one by one. Until then such a
    /// session may be touched and may write, but it is ended all the same.
    fn end_taken(&mut self, epoch: u64, session: i64) {
        if self.epoch != epoch {
            return; // the next leader restarts its timeout
        }
        if !self.can_commit() {
            let later = self.up_to(5) + 1;
            return self.after(later, move |state| state.end_taken(epoch, session));
        }
        self.end_session(session, Happened::Expired { session });
    }

    pub(crate) fn end_session(&mut self, session: i64, why: Happened) {
        if self.sessions.remove(&session).is_none() {
            return;
        }
        self.record(why);
        let tree = &self.servers[self.leader].tree;
        let changes = tree
            .owned(session)
            .into_iter()
            .map(|path| Change::Delete { path })
            .collect();
        self.commit(changes, None, None, Some(session));
    }

    fn record(&mut self, happened: Happened) {
        let at = Duration::from_millis(self.now);
        self.records.push(Record { at, happened });
    }

    /// Whether the leader runs, and has a majority.
    pub(crate) fn can_commit(&self) -> bool {
        let leader = &self.servers[self.leader];
        let with = (0..self.servers.len()).filter(|&index| {
            let server = &self.servers[index];
            server.is_in_sync && (index == self.leader || server.can_elect(self.now))
        });
        let is_alone = leader.cut_until > self.now;
        leader.is_up
            && leader.is_in_sync
            && leader.stalled_until <= self.now
            && !is_alone
            && with.count() > self.servers.len() / 2
    }

    /// Queues a transaction, which is committed in order as soon as there is a quorum for it.
    pub(crate) fn submit(&mut self, pending: Pending) {
        self.pending.push_back(pending);
        let delay = self.options.delay.as_millis() as Millis;
        let delay = self.up_to(delay) + self.writing_takes;
        let epoch = self.epoch;
        self.after(delay, move |state| state.commit_next(epoch));
    }

    fn commit_next(&mut self, epoch: u64) {
        if self.epoch != epoch {
            return; // a former leader: its uncommitted transactions are lost
        }
        if !self.can_commit() {
            let later = self.up_to(5) + 1;
            return self.after(later, move |state| state.commit_next(epoch));
        }
        match self.pending.pop_front() {
            None => {}
            Some(Pending::NewSession { connection, server }) => self.new_session(connection, server),
            Some(Pending::CloseSession { origin, session }) => {
                self.commit(Vec::new(), Some((origin, Ok(Outcome::Done))), None, None);
                self.end_session(session, Happened::Closed { session });
            }
            Some(Pending::Write {
                origin,
                session,
                write,
            }) => {
                let planned = match self.sessions.get(&session) {
                    None => Err(EnsembleError::SessionExpired),
                    Some(record) if record.owner != origin.server => Err(EnsembleError::SessionMoved),
                    Some(_) => Ok(()),
                };
                let planned = planned
                    .map_err(|error| MultiError { index: 0, error })
                    .and_then(|()| self.servers[self.leader].tree.plan(&write, session));
                let planned = planned.and_then(|(changes, done)| {
                    match changes.iter().position(|change| self.is_protected(change.path())) {
                        Some(index) => Err(MultiError {
                            index,
                            error: EnsembleError::NoAuth,
                        }),
                        None => Ok((changes, done)),
                    }
                });
                match planned {
                    Err(failed) => self.commit(Vec::new(), Some((origin, Err(failed))), None, None),
                    Ok((changes, done)) => {
                        let outcome = match done {
                            Done::Nothing => Outcome::Done,
                            Done::Created(path) => Outcome::Created(Created {
                                path,
                                czxid: FencingToken(self.zxid + 1),
                                owner: session,
                            }),
                        };
                        let answer = Ok(outcome);
                        self.commit(changes, Some((origin, answer)), None, None);
                    }
                }
            }
        }
    }

    /// The session timeout that a server grants to a client, which always asks for the same one.
    pub(crate) fn negotiated(&self, server: usize) -> Duration {
        let tick = self.options.tick;
        let allowed = tick * *SESSION_TIMEOUT_TICKS.start()..=tick * *SESSION_TIMEOUT_TICKS.end();
        self.options
            .session_timeout
            .min(self.servers[server].longest_session)
            .clamp(*allowed.start(), *allowed.end())
    }

    fn new_session(&mut self, connection: u64, server: usize) {
        let timeout = self.negotiated(server);
        self.next_session += 1;
        let id = self.next_session;
        let record = SessionRecord {
            timeout: timeout.as_millis() as Millis,
            expires: 0,
            touched: 0,
            is_taken: false,
            owner: server,
        };
        self.sessions.insert(id, record);
        self.touch(id);
        self.record(Happened::Opened { session: id });
        let session = Session { id, timeout };
        self.commit(Vec::new(), None, Some((connection, session)), None);
    }

    /// Gives a transaction its number and sends it to every server.
    pub(crate) fn commit(
        &mut self,
        changes: Vec<Change>,
        origin: Option<(Origin, Answer)>,
        began: Option<(u64, Session)>,
        ended: Option<i64>,
    ) {
        self.zxid += 1;
        for change in &changes {
            let path = change.path().to_owned();
            self.record(match change {
                Change::Create { owner, .. } => Happened::Created {
                    path,
                    session: *owner,
                    zxid: self.zxid,
                },
                Change::SetData { .. } => Happened::Changed { path },
                Change::Delete { .. } => Happened::Deleted { path },
            });
        }
        self.log.push(Entry {
            zxid: self.zxid,
            changes,
            origin,
            began,
            ended,
        });
        self.apply(self.leader);
        for server in 0..self.servers.len() {
            if server != self.leader && self.servers[server].is_up && self.servers[server].is_in_sync {
                self.send(LinkId::ToFollower(server), move |state| {
                    state.servers[server].heard_leader = state.now;
                    state.apply(server);
                });
            }
        }
    }

    /// The leader pings its followers every half tick; their replies name the sessions that they heard from.
    pub(crate) fn leader_round(&mut self) {
        let late = self.up_to(self.tick() / 100);
        let half = self.tick() / 2;
        self.after(half + late, Self::leader_round);
        let leader = &self.servers[self.leader];
        if !leader.is_up || !leader.is_in_sync || leader.stalled_until > self.now {
            return;
        }
        for server in 0..self.servers.len() {
            if server == self.leader || !self.servers[server].is_up || !self.servers[server].is_in_sync {
                continue;
            }
            self.send(LinkId::ToFollower(server), move |state| {
                state.servers[server].heard_leader = state.now;
                let touched = std::mem::take(&mut state.servers[server].touched);
                state.send(LinkId::ToLeader(server), move |state| {
                    for session in touched {
                        state.touch(session);
                    }
                });
            });
        }
    }

    /// A follower without its leader for `syncLimit` ticks stops serving, and follows again when it can.
    pub(crate) fn follower_round(&mut self, server: usize) {
        let half = self.tick() / 2;
        self.after(half, move |state| state.follower_round(server));
        let limit = Millis::from(self.options.sync_limit) * self.tick();
        let follower = &self.servers[server];
        if server == self.leader || !follower.is_up || follower.stalled_until > self.now {
            return;
        }
        if follower.is_in_sync && self.now > follower.heard_leader + limit {
            self.leave(server);
        }
        let leader = &self.servers[self.leader];
        let is_reachable = leader.is_in_sync && leader.can_elect(self.now);
        let follower = &self.servers[server];
        if !follower.is_in_sync && is_reachable && follower.cut_until <= self.now {
            self.join(server);
        }
    }
}
