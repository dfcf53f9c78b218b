//! The whole state of the world: time, events, links, servers, sessions, and the true events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use lockkeeper_lock::ensemble::{Closed, NodeEvent, Session};
use tokio::sync::{oneshot, watch};

use crate::happened::Record;
use crate::link::{Link, LinkId};
use crate::messages::{Answer, Entry, Pending, Request};
use crate::options::Options;
use crate::time::{Millis, NEVER};
use crate::tree::Tree;

/// The effect of a message that arrives, or of a timer.
type Delivery = Box<dyn FnOnce(&mut State) + Send>;

/// A connection as both ends know it.
pub(crate) struct ConnectionRecord {
    pub(crate) client: String,
    pub(crate) server: usize,
    pub(crate) session: Option<Session>,
    // The client's end.
    pub(crate) confirmed: Option<oneshot::Sender<Result<Session, Closed>>>,
    pub(crate) closed: watch::Sender<Option<Closed>>,
    pub(crate) awaited: BTreeMap<u64, oneshot::Sender<Answer>>,
    pub(crate) watches: BTreeMap<u64, oneshot::Sender<NodeEvent>>,
    pub(crate) last_heard: Millis,
    // The server's end.
    /// Requests in order; a write stays until it is committed, and reads wait behind it.
    pub(crate) requests: VecDeque<(u64, Option<Request>)>,
}

pub(crate) struct Server {
    pub(crate) is_up: bool,
    /// Whether it follows (or is) the leader; otherwise it serves no client.
    pub(crate) is_in_sync: bool,
    pub(crate) stalled_until: Millis,
    /// Until then no message passes between it and other servers.
    pub(crate) cut_until: Millis,
    pub(crate) heard_leader: Millis,
    /// Longest time of a commit from the leader to this server.
    pub(crate) lag: Millis,
    /// The longest session timeout that it grants.
    pub(crate) longest_session: Duration,
    pub(crate) tree: Tree,
    pub(crate) applied: usize,
    /// Sessions that it heard from since the last reply to a ping.
    pub(crate) touched: BTreeSet<i64>,
    pub(crate) connections: BTreeSet<u64>,
    pub(crate) watches: Vec<Watch>,
}

/// A one-time watch at a server.
pub(crate) struct Watch {
    pub(crate) path: String,
    pub(crate) connection: u64,
    /// The request that set it.
    pub(crate) number: u64,
    /// Whether it is of the children: another one is an event then, and a change of the data is none.
    pub(crate) is_for_children: bool,
}

impl Server {
    /// Whether it can take part in an election.
    pub(crate) fn can_elect(&self, now: Millis) -> bool {
        self.is_up && self.cut_until <= now && self.stalled_until <= now
    }
}

/// A session at the leader.
pub(crate) struct SessionRecord {
    pub(crate) timeout: Millis,
    pub(crate) expires: Millis,
    pub(crate) touched: Millis,
    /// The leader is ending the session; a touch does not save it.
    pub(crate) is_taken: bool,
    /// The server that last confirmed the session.
    pub(crate) owner: usize,
}

pub(crate) struct State {
    pub(crate) options: Options,
    pub(crate) rng: fastrand::Rng,
    pub(crate) now: Millis,
    pub(crate) leader: usize,
    pub(crate) epoch: u64,
    pub(crate) is_electing: bool,
    pub(crate) zxid: i64,
    pub(crate) next_session: i64,
    pub(crate) servers: Vec<Server>,
    pub(crate) sessions: BTreeMap<i64, SessionRecord>,
    pub(crate) log: Vec<Entry>,
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) connections: BTreeMap<u64, ConnectionRecord>,
    pub(crate) next_number: u64,
    pub(crate) frozen: BTreeMap<String, Millis>,
    /// By client, server, and whether it stops requests (otherwise answers).
    pub(crate) cuts: BTreeMap<(String, usize, bool), Millis>,
    pub(crate) forbidden: BTreeSet<String>,
    /// Prefixes of paths that no client may write to.
    pub(crate) protected: BTreeSet<String>,
    /// Clients whose connection breaks when their next write is committed.
    pub(crate) breaks: BTreeSet<String>,
    /// How many requests of a client the server will refuse.
    pub(crate) throttled: BTreeMap<String, u32>,
    /// How long the disks need for a transaction.
    pub(crate) writing_takes: Millis,
    pub(crate) records: Vec<Record>,
    links: BTreeMap<LinkId, Link<Delivery>>,
    events: BinaryHeap<Reverse<(Millis, u64)>>,
    deliveries: BTreeMap<u64, Delivery>,
}

impl State {
    pub(crate) fn new(options: Options) -> Self {
        let server = || Server {
            is_up: true,
            is_in_sync: true,
            stalled_until: 0,
            cut_until: 0,
            heard_leader: 0,
            lag: options.lag.as_millis() as Millis,
            longest_session: Duration::MAX,
            tree: Tree::default(),
            applied: 0,
            touched: BTreeSet::new(),
            connections: BTreeSet::new(),
            watches: Vec::new(),
        };
        Self {
            rng: fastrand::Rng::with_seed(options.seed),
            now: 0,
            leader: 0,
            epoch: 1,
            is_electing: false,
            zxid: 1 << 32,
            next_session: 0x1000,
            servers: (0..options.servers).map(|_| server()).collect(),
            sessions: BTreeMap::new(),
            log: Vec::new(),
            pending: VecDeque::new(),
            connections: BTreeMap::new(),
            next_number: 0,
            frozen: BTreeMap::new(),
            cuts: BTreeMap::new(),
            forbidden: BTreeSet::new(),
            protected: BTreeSet::new(),
            breaks: BTreeSet::new(),
            throttled: BTreeMap::new(),
            writing_takes: 0,
            records: Vec::new(),
            links: BTreeMap::new(),
            events: BinaryHeap::new(),
            deliveries: BTreeMap::new(),
            options,
        }
    }

    pub(crate) fn tick(&self) -> Millis {
        self.options.tick.as_millis() as Millis
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// A duration of up to `most` milliseconds.
    pub(crate) fn up_to(&mut self, most: Millis) -> Millis {
        self.rng.u64(0..=most)
    }

    // Events.

    pub(crate) fn after(&mut self, delay: Millis, event: impl FnOnce(&mut Self) + Send + 'static) {
        let at = self.now.saturating_add(delay);
        if at == NEVER {
            return;
        }
        let number = self.number();
        self.deliveries.insert(number, Box::new(event));
        self.events.push(Reverse((at, number)));
    }

    /// Runs every event that is due at `now`, and returns when the next one is.
    pub(crate) fn run(&mut self, now: Millis) -> Millis {
        while let Some(Reverse((at, number))) = self.events.peek().copied() {
            if at > now {
                self.now = now;
                return at;
            }
            self.events.pop();
            self.now = self.now.max(at);
            if let Some(event) = self.deliveries.remove(&number) {
                event(self);
            }
        }
        self.now = now;
        NEVER
    }

    // Links.

    pub(crate) fn send(&mut self, link: LinkId, delivery: impl FnOnce(&mut Self) + Send + 'static) {
        let most = match link {
            LinkId::ToFollower(server) => self.servers[server].lag,
            _ => self.options.delay.as_millis() as Millis,
        };
        let arrival = self.now + self.up_to(most);
        let arrival = self
            .links
            .entry(link)
            .or_default()
            .push(arrival, Box::new(delivery));
        self.after(arrival - self.now, move |state| state.pump(link));
    }

    /// The moment until which a link delivers nothing.
    fn blocked(&self, link: LinkId) -> Millis {
        let client_cut = |connection: u64, requests: bool| {
            self.connections.get(&connection).map_or(0, |connection| {
                let key = (connection.client.clone(), connection.server, requests);
                self.cuts.get(&key).copied().unwrap_or(0)
            })
        };
        match link {
            LinkId::ToLeader(server) | LinkId::ToFollower(server) => {
                let (follower, leader) = (&self.servers[server], &self.servers[self.leader]);
                let receiver = match link {
                    LinkId::ToLeader(_) => leader,
                    _ => follower,
                };
                let cut = follower.cut_until.max(leader.cut_until);
                cut.max(receiver.stalled_until)
            }
            LinkId::Up(number) => {
                let server = self.connections.get(&number).map(|connection| connection.server);
                let stalled = server.map_or(0, |server| self.servers[server].stalled_until);
                client_cut(number, true).max(stalled)
            }
            LinkId::Down(number) => client_cut(number, false),
        }
    }

    fn pump(&mut self, link: LinkId) {
        while self.links.get(&link).is_some_and(|link| !link.is_empty()) {
            let until = self.blocked(link);
            if until > self.now {
                // A cut without an end may still be healed by hand: check from time to time.
                let later = (until - self.now).min(self.tick());
                return self.after(later, move |state| state.pump(link));
            }
            let now = self.now;
            let Some(delivery) = self.links.get_mut(&link).and_then(|link| link.pop(now)) else {
                return;
            };
            delivery(self);
        }
    }

    /// Loses all messages on their way.
    pub(crate) fn drop_link(&mut self, link: LinkId) {
        self.links.remove(&link);
    }
}
