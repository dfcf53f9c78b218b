//! All that the world is: time, events, links, servers, sessions, and what really happened.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::link::{Delivery, Link, LinkId};
use super::tree::{Change, Tree, Write};
use super::{Options, Record};
use crate::ensemble::{Children, Closed, Created, MultiError, Node, NodeEvent, Session};

/// True time in whole milliseconds since the world began: tokio's timers know nothing finer.
pub(super) type Millis = u64;

/// For ever.
pub(super) const NEVER: Millis = Millis::MAX;

/// A request over a connection.
pub(super) enum Request {
    Write(Write),
    Children(String),
    Node(String),
    /// A node, and an event later, under the number of the request.
    Watch(String),
    /// Whether a node is there, and an event later if not.
    WatchCreation(String),
    CloseSession,
    /// One of the others, which the server has too much to do for.
    Throttled,
}

/// A good answer.
#[derive(Clone)]
pub(super) enum Outcome {
    Done,
    Created(Created),
    Children(Children),
    Node(Node),
    Missing,
}

pub(super) type Answer = Result<Outcome, MultiError>;

/// A connection as both ends know it.
pub(super) struct Connection {
    pub(super) client: String,
    pub(super) server: usize,
    pub(super) session: Option<Session>,
    // The client's end.
    pub(super) confirmed: Option<oneshot::Sender<Result<Session, Closed>>>,
    pub(super) closed: watch::Sender<Option<Closed>>,
    pub(super) awaited: BTreeMap<u64, oneshot::Sender<Answer>>,
    pub(super) watches: BTreeMap<u64, oneshot::Sender<NodeEvent>>,
    pub(super) last_heard: Millis,
    // The server's end.
    /// Requests in order; a write stays until it is committed, and reads wait behind it.
    pub(super) requests: VecDeque<(u64, Option<Request>)>,
}

/// Who asked for a transaction.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    pub(super) connection: u64,
    pub(super) server: usize,
    pub(super) number: u64,
}

/// One committed transaction.
pub(super) struct Entry {
    pub(super) zxid: i64,
    pub(super) changes: Vec<Change>,
    pub(super) origin: Option<(Origin, Answer)>,
    /// A session that began, for the connection that asked for it, or that ended.
    pub(super) began: Option<(u64, Session)>,
    pub(super) ended: Option<i64>,
}

/// Waits for the leader to commit it.
pub(super) enum Pending {
    Write {
        origin: Origin,
        session: i64,
        write: Write,
    },
    NewSession {
        connection: u64,
        server: usize,
    },
    CloseSession {
        origin: Origin,
        session: i64,
    },
}

pub(super) struct Server {
    pub(super) is_up: bool,
    /// Whether it follows (or is) the leader; else it serves nobody.
    pub(super) is_in_sync: bool,
    pub(super) stalled_until: Millis,
    /// Nothing between it and other servers until then.
    pub(super) cut_until: Millis,
    pub(super) heard_leader: Millis,
    /// How long what the leader commits takes to it, at most.
    pub(super) lag: Millis,
    /// The longest session timeout that it grants.
    pub(super) longest_session: Duration,
    pub(super) tree: Tree,
    pub(super) applied: usize,
    /// Sessions heard of since the last reply to a ping.
    pub(super) touched: BTreeSet<i64>,
    pub(super) connections: BTreeSet<u64>,
    pub(super) watches: Vec<(String, u64, u64)>,
}

impl Server {
    /// Whether it can take part in an election.
    pub(super) fn can_elect(&self, now: Millis) -> bool {
        self.is_up && self.cut_until <= now && self.stalled_until <= now
    }
}

/// A session at the leader.
pub(super) struct SessionRecord {
    pub(super) timeout: Millis,
    pub(super) expires: Millis,
    pub(super) touched: Millis,
    /// It is being ended, whatever touches it meanwhile.
    pub(super) is_taken: bool,
    /// The server that it was last confirmed to.
    pub(super) owner: usize,
}

pub(super) struct State {
    pub(super) options: Options,
    pub(super) rng: fastrand::Rng,
    pub(super) now: Millis,
    pub(super) leader: usize,
    pub(super) epoch: u64,
    pub(super) is_electing: bool,
    pub(super) zxid: i64,
    pub(super) next_session: i64,
    pub(super) servers: Vec<Server>,
    pub(super) sessions: BTreeMap<i64, SessionRecord>,
    pub(super) log: Vec<Entry>,
    pub(super) pending: VecDeque<Pending>,
    pub(super) connections: BTreeMap<u64, Connection>,
    pub(super) next_number: u64,
    pub(super) frozen: BTreeMap<String, Millis>,
    /// By client, server, and whether requests (else answers).
    pub(super) cuts: BTreeMap<(String, usize, bool), Millis>,
    pub(super) forbidden: BTreeSet<String>,
    /// Prefixes of paths that nobody may write to.
    pub(super) protected: BTreeSet<String>,
    /// Clients whose connection breaks when their next write is committed.
    pub(super) breaks: BTreeSet<String>,
    /// How many requests of a client will not be carried out.
    pub(super) throttled: BTreeMap<String, u32>,
    pub(super) records: Vec<Record>,
    links: BTreeMap<LinkId, Link>,
    events: BinaryHeap<Reverse<(Millis, u64)>>,
    deliveries: BTreeMap<u64, Delivery>,
}

impl State {
    pub(super) fn new(options: Options) -> Self {
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
        let mut state = Self {
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
            records: Vec::new(),
            links: BTreeMap::new(),
            events: BinaryHeap::new(),
            deliveries: BTreeMap::new(),
            options,
        };
        state.after(0, Self::leader_round);
        state.after(0, Self::election_round);
        for server in 0..state.servers.len() {
            state.after(0, move |state| state.follower_round(server));
        }
        state
    }

    pub(super) fn tick(&self) -> Millis {
        self.options.tick.as_millis() as Millis
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// A duration of up to `most` milliseconds.
    pub(super) fn up_to(&mut self, most: Millis) -> Millis {
        self.rng.u64(0..=most)
    }

    // Events.

    pub(super) fn after(&mut self, delay: Millis, event: impl FnOnce(&mut Self) + Send + 'static) {
        let at = self.now.saturating_add(delay);
        if at == NEVER {
            return;
        }
        let number = self.number();
        self.deliveries.insert(number, Box::new(event));
        self.events.push(Reverse((at, number)));
    }

    /// Lets everything happen that is due at `now`, and returns when the next thing is.
    pub(super) fn run(&mut self, now: Millis) -> Millis {
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

    pub(super) fn send(&mut self, link: LinkId, delivery: impl FnOnce(&mut Self) + Send + 'static) {
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

    /// Until when nothing arrives over a link.
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
                // A cut without an end may still be healed by hand: look now and then.
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

    /// Loses what is on its way.
    pub(super) fn drop_link(&mut self, link: LinkId) {
        self.links.remove(&link);
    }
}
