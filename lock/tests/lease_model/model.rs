//! One history: the events, the links and threads between which they happen, and the faults.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::client::Client;
use super::network::{Link, MS, NEVER, Time};
use super::plan::{Fault, Paused, Plan, Trigger, Which, between};
use super::server::{Server, thread};

/// A message. `epoch` is that of the leader, for messages between servers.
#[derive(Clone, Copy, Debug)]
pub enum Message {
    // From the client, and back.
    Connect {
        connection: u32,
    },
    Request {
        connection: u32,
        write: usize,
    },
    /// The second half of the touch by a request: into the table that existed at the first half.
    Touch {
        table: u64,
        origin: Origin,
    },
    Connected {
        connection: u32,
    },
    Answer {
        connection: u32,
        write: usize,
    },
    Closed {
        connection: u32,
    },
    // From a follower to its leader.
    PingReply {
        epoch: u32,
        touched: bool,
    },
    Accepted {
        epoch: u32,
        zxid: u64,
    },
    Forwarded {
        epoch: u32,
        origin: Origin,
    },
    Revalidate {
        epoch: u32,
        connection: u32,
    },
    // From a leader to a follower.
    Ping {
        epoch: u32,
    },
    Proposal {
        epoch: u32,
        zxid: u64,
    },
    Commit {
        epoch: u32,
        origin: Origin,
    },
    Revalidated {
        epoch: u32,
        connection: u32,
    },
}

/// The source of a write.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    pub server: usize,
    pub connection: u32,
    pub write: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// Check a link.
    Link(usize),
    /// Let a thread work.
    Thread { server: usize, thread: usize },
    /// A server has written something to its disk.
    Logged { server: usize, epoch: u32, zxid: u64 },
    /// The next round of a leader's ping loop.
    PingLoop { server: usize, epoch: u32 },
    /// A leader looks for expired sessions.
    ExpiryLoop { server: usize, epoch: u32 },
    /// A leader marks a session whose bucket it has taken.
    Mark { server: usize, epoch: u32 },
    /// A new leader begins.
    Lead { server: usize },
    /// An old leader, or its follower, notices the new one.
    StepDown { server: usize },
    /// The client's timer.
    Renew,
    /// The client comes back.
    Return,
    /// The client has waited long enough for something.
    Patience { connection: u32, write: usize },
    /// Fault with this number in the plan.
    Fault(usize),
    /// The last fault may begin.
    Arm,
    /// The last fault begins.
    Last,
}

/// The model of one history.
pub struct Model {
    pub plan: Plan,
    pub rng: fastrand::Rng,
    pub now: Time,
    pub servers: Vec<Server>,
    pub client: Client,
    /// The epoch whose leader has a quorum.
    pub epoch: u32,
    /// The leader of each epoch.
    pub leaders: Vec<usize>,
    /// When the ensemble ended the session.
    pub expired: Option<Time>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    sequence: u64,
    links: Vec<Link<Message>>,
    armed: Option<Time>,
    /// When the last fault began: from then on the client does not recover.
    pub last_fault: Option<Time>,
}

impl Model {
    pub fn new(plan: Plan, rng: fastrand::Rng, client: Client) -> Self {
        let servers = plan.servers;
        let mut model = Self {
            rng,
            now: 0,
            servers: (0..servers).map(|_| Server::new(servers)).collect(),
            client,
            epoch: 0,
            leaders: vec![0],
            expired: None,
            events: BinaryHeap::new(),
            sequence: 0,
            links: (0..servers * servers + 2 * servers)
                .map(|_| Link::default())
                .collect(),
            armed: None,
            last_fault: None,
            plan,
        };
        model.lead(0);
        for index in 0..model.plan.faults.len() {
            model.at(model.plan.faults[index].0, Event::Fault(index));
        }
        model.at(model.plan.last.0, Event::Arm);
        model.at(0, Event::Renew);
        let first = if model.plan.on_leader { 0 } else { 1 };
        model.connect(first);
        model
    }

    /// Runs all events, until further ones show nothing new.
    pub fn run(&mut self) {
        let limit = self.plan.last.0 + 6 * self.plan.session_timeout;
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            let over = self
                .expired
                .is_some_and(|at| time > at + self.plan.session_timeout / 2);
            if over || time > limit {
                break;
            }
            self.now = time;
            self.handle(event);
        }
    }

    pub fn at(&mut self, time: Time, event: Event) {
        if time == NEVER {
            return;
        }
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Link(link) => loop {
                match self.links[link].receive(self.now) {
                    Ok(message) => self.arrive(link, message),
                    Err(Some(later)) => break self.at(later, event),
                    Err(None) => break,
                }
            },
            Event::Thread { server, thread } => loop {
                match self.servers[server].threads[thread].next(self.now) {
                    Ok(message) => self.work(server, thread, message),
                    Err(Some(later)) => break self.at(later, event),
                    Err(None) => break,
                }
            },
            Event::Logged { server, epoch, zxid } => {
                let accepted = Message::Accepted { epoch, zxid };
                self.give(server, thread::LOG, accepted);
            }
            Event::PingLoop { server, epoch } => self.ping_loop(server, epoch),
            Event::ExpiryLoop { server, epoch } => self.expiry_loop(server, epoch),
            Event::Mark { server, epoch } => self.mark(server, epoch),
            Event::Lead { server } => self.lead(server),
            Event::StepDown { server } => self.step_down(server),
            Event::Renew => self.renew(),
            Event::Return => self.take_elsewhere(),
            Event::Patience { connection, write } => self.out_of_patience(connection, write),
            Event::Fault(index) => self.fault(self.plan.faults[index].1),
            Event::Arm => match self.plan.last.1 {
                Trigger::At => self.at(self.now, Event::Last),
                Trigger::AfterAnswer(delay) => {
                    self.armed = Some(delay);
                    // There may be no further answer.
                    self.at(self.now + self.plan.session_timeout, Event::Last);
                }
            },
            Event::Last => {
                if self.last_fault.is_none() {
                    self.last_fault = Some(self.now);
                    self.fault(self.plan.last.2);
                }
            }
        }
    }

    // Links.

    pub fn send(&mut self, from: usize, to: usize, message: Message) {
        let link = from * self.plan.servers + to;
        self.put(link, self.plan.spikes, message);
    }

    pub fn send_to_server(&mut self, server: usize, message: Message) {
        let n = self.plan.servers;
        self.put(n * n + server, self.plan.client_spikes, message);
    }

    pub fn send_to_client(&mut self, server: usize, message: Message) {
        let n = self.plan.servers;
        self.put(n * n + n + server, self.plan.client_spikes, message);
        if matches!(message, Message::Answer { .. })
            && let Some(delay) = self.armed.take()
        {
            self.at(self.now + delay, Event::Last);
        }
    }

    fn put(&mut self, link: usize, (share, spike): (f64, Time), message: Message) {
        let mut delay = between(&mut self.rng, MS / 10, MS);
        if self.rng.f64() < share {
            delay += between(&mut self.rng, 0, spike);
        }
        let arrival = self.links[link].send(self.now, delay, message);
        self.at(arrival, Event::Link(link));
    }

    fn arrive(&mut self, link: usize, message: Message) {
        let n = self.plan.servers;
        if link >= n * n + n {
            self.client_receives(link - n * n - n, message);
        } else if link >= n * n {
            self.give(link - n * n, thread::RECEIVE, message);
        } else {
            let (from, to) = (link / n, link % n);
            let leader = self.servers[to].leads.is_some();
            self.give(
                to,
                if leader {
                    thread::reader(from)
                } else {
                    thread::FROM_LEADER
                },
                message,
            );
        }
    }

    /// Gives a thread of a server some work, which it begins now if it can.
    pub fn give(&mut self, server: usize, thread: usize, message: Message) {
        self.servers[server].threads[thread].push(message);
        self.handle(Event::Thread { server, thread });
    }

    // Faults.

    fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Pause {
                which,
                paused,
                length,
            } => self.pause(which, paused, length),
            Fault::CutServer { length, up, down } => {
                let server = self.client.server;
                let leader = self.leaders[self.servers[server].epoch as usize];
                if server == leader {
                    // A leader can only be cut off from its quorum.
                    return self.elect(0, self.plan.tick, true);
                }
                let n = self.plan.servers;
                self.cut(server * n + leader, up, length);
                self.cut(leader * n + server, down, length);
            }
            Fault::CutClient { length, up, down } => {
                let n = self.plan.servers;
                self.cut(n * n + self.client.server, up, length);
                self.cut(n * n + n + self.client.server, down, length);
            }
            Fault::Move => self.take_elsewhere(),
            Fault::Away { length } => {
                self.leave();
                self.at(self.now + length, Event::Return);
            }
            Fault::NewLeader {
                election,
                unnoticed,
                mine,
            } => self.elect(election, unnoticed, mine),
        }
    }

    fn cut(&mut self, link: usize, wanted: bool, length: Time) {
        if wanted {
            self.links[link].cut(self.now.saturating_add(length));
        }
    }

    fn pause(&mut self, which: Which, paused: Paused, length: Time) {
        let server = match which {
            Which::Mine => self.client.server,
            Which::Leader => self.leaders[self.epoch as usize],
            Which::Any => self.rng.usize(..self.plan.servers),
        };
        let until = self.now + length;
        match paused {
            Paused::FromLeader => self.servers[server].threads[thread::FROM_LEADER].pause(until),
            Paused::Forward => self.servers[server].threads[thread::FORWARD].pause(until),
            Paused::Process => {
                for thread in 0..self.servers[server].threads.len() {
                    // They do not all wake at the same moment.
                    let late = match thread {
                        thread::PING => self.plan.ping_lag,
                        _ => between(&mut self.rng, 1, 2 * MS),
                    };
                    self.servers[server].threads[thread].pause(until + late);
                }
            }
        }
    }

    /// All servers that notice it form a new quorum; the old leader, and the client's server if `mine`, follow for
    /// `unnoticed`.
    fn elect(&mut self, election: Time, unnoticed: Time, mine: bool) {
        let old = self.leaders[self.epoch as usize];
        let fits = self.client.server == old || self.plan.servers == 5;
        let behind: Vec<usize> = (0..self.plan.servers)
            .filter(|&server| server == old || (mine && fits && server == self.client.server))
            .collect();
        let others: Vec<usize> = (0..self.plan.servers)
            .filter(|server| !behind.contains(server) && !self.servers[*server].down)
            .collect();
        if others.len() <= self.plan.servers / 2 {
            return; // no quorum without them
        }
        self.epoch += 1;
        let new = others[self.rng.usize(..others.len())];
        self.leaders.push(new);
        for &server in &others {
            self.join(server, self.epoch);
        }
        self.at(self.now + election, Event::Lead { server: new });
        for server in behind {
            self.at(self.now + unnoticed, Event::StepDown { server });
        }
    }
}
