//! The servers: the parts of ZooKeeper that decide when a session ends.

use std::collections::VecDeque;

use super::model::{Event, Message, Model, Origin};
use super::network::{MS, Thread, Time};
use super::plan::between;

/// The threads of a server.
pub mod thread {
    /// Receives from the client, and touches its session.
    pub const RECEIVE: usize = 0;
    /// Thread B: forwards requests to the leader.
    pub const FORWARD: usize = 1;
    /// Thread A: handles messages from the leader, in order.
    pub const FROM_LEADER: usize = 2;
    /// Reports to the leader what is on disk.
    pub const LOG: usize = 3;
    /// Leader: turns requests into proposals.
    pub const PREPARE: usize = 4;
    /// Leader: sends pings.
    pub const PING: usize = 5;
    /// Leader: expires sessions.
    pub const EXPIRY: usize = 6;
    /// Leader: reads the messages of `follower`, in order.
    pub const fn reader(follower: usize) -> usize {
        7 + follower
    }
}

pub struct Server {
    pub threads: Vec<Thread<Message>>,
    pub epoch: u32,
    pub down: bool,
    /// The client's connection, while this server serves it.
    pub connection: Option<u32>,
    /// The table for the next reply to a ping: its number, and whether our session is in it.
    pub table: u64,
    pub touched: bool,
    pub leads: Option<Leader>,
}

pub struct Leader {
    /// The client's session: the bucket in which it expires, until it is marked as closing.
    bucket: Option<Time>,
    /// The expirer has taken the session's bucket, and will mark the session, even if it is touched meanwhile.
    taken: bool,
    /// The server that last confirmed the session.
    owner: Option<usize>,
    proposals: VecDeque<Proposal>,
    next_zxid: u64,
}

struct Proposal {
    zxid: u64,
    accepted: u32,
    origin: Origin,
}

impl Server {
    pub fn new(servers: usize) -> Self {
        Self {
            threads: (0..thread::reader(servers)).map(|_| Thread::default()).collect(),
            epoch: 0,
            down: false,
            connection: None,
            table: 0,
            touched: false,
            leads: None,
        }
    }
}

impl Model {
    /// A thread of a server handles a message.
    pub fn work(&mut self, server: usize, thread: usize, message: Message) {
        if self.servers[server].down {
            return;
        }
        let current = self.servers[server].epoch;
        let leader = self.leaders[current as usize];
        match message {
            Message::Connect { connection } => {
                // Without a leader there is no service, and no answer.
                if self.servers[leader].leads.is_none() {
                    return;
                }
                self.servers[server].connection = Some(connection);
                if server != leader {
                    let revalidate = Message::Revalidate {
                        epoch: current,
                        connection,
                    };
                    self.send(server, leader, revalidate);
                } else if self.revalidate(server, server) {
                    self.send_to_client(server, Message::Connected { connection });
                }
            }
            Message::Request { connection, write } => {
                if self.servers[server].connection != Some(connection) {
                    return;
                }
                let origin = Origin {
                    server,
                    connection,
                    write,
                };
                if server == leader {
                    self.touch(server);
                    let epoch = current;
                    self.give(server, thread::PREPARE, Message::Forwarded { epoch, origin });
                } else {
                    self.get_table(server, origin);
                }
            }
            Message::Touch { table, origin } => {
                // Only this server knows of it, until a ping's reply carries it.
                let follower = &mut self.servers[server];
                follower.touched |= follower.table == table;
                let epoch = current;
                self.give(server, thread::FORWARD, Message::Forwarded { epoch, origin });
            }
            Message::Forwarded { epoch, origin } if epoch == current => match thread {
                thread::FORWARD => self.send(server, leader, message),
                thread::PREPARE => self.propose(server, origin),
                _ => self.give(server, thread::PREPARE, message),
            },
            Message::PingReply { epoch, touched: true } if epoch == current => {
                self.touch(server);
            }
            Message::Accepted { epoch, zxid } if epoch == current => match thread {
                thread::LOG => self.send(server, leader, message),
                _ => self.accepted(server, thread - thread::reader(0), zxid),
            },
            Message::Revalidate { epoch, connection } if epoch == current => {
                let follower = thread - thread::reader(0);
                if self.revalidate(server, follower) {
                    self.send(server, follower, Message::Revalidated { epoch, connection });
                }
            }
            Message::Ping { epoch } if epoch == current => {
                let touched = std::mem::take(&mut self.servers[server].touched);
                self.servers[server].table += 1;
                self.send(server, leader, Message::PingReply { epoch, touched });
            }
            Message::Proposal { epoch, zxid } if epoch == current => {
                let disk = between(&mut self.rng, MS / 10, 2 * MS);
                self.at(self.now + disk, Event::Logged { server, epoch, zxid });
            }
            Message::Commit { epoch, origin } if epoch == current => self.answer(server, origin),
            Message::Revalidated { epoch, connection }
                if epoch == current && self.servers[server].connection == Some(connection) =>
            {
                self.send_to_client(server, Message::Connected { connection });
            }
            // A reply without touches, or a message of a former connection.
            _ => {}
        }
    }

    /// `LearnerSessionTracker.touchSession`: gets the table, and puts the session into it. Between the two steps the
    /// reply to a ping may have taken the table (`snapshot`).
    fn get_table(&mut self, server: usize, origin: Origin) {
        let table = self.servers[server].table;
        let touch = Message::Touch { table, origin };
        let (share, longest) = self.plan.torn_touches;
        if self.rng.f64() >= share {
            return self.work(server, thread::RECEIVE, touch);
        }
        let until = self.now + between(&mut self.rng, 0, longest);
        let receiver = &mut self.servers[server].threads[thread::RECEIVE];
        receiver.pause(until);
        receiver.push_first(touch);
    }

    fn answer(&mut self, server: usize, origin: Origin) {
        if origin.server == server && self.servers[server].connection == Some(origin.connection) {
            self.send_to_client(
                server,
                Message::Answer {
                    connection: origin.connection,
                    write: origin.write,
                },
            );
        }
    }

    // Followers of a leader.

    fn followers(&self, leader: usize) -> impl Iterator<Item = usize> + use<> {
        let epoch = self.servers[leader].epoch;
        let followers: Vec<usize> = (0..self.plan.servers)
            .filter(|&other| {
                other != leader && !self.servers[other].down && self.servers[other].epoch == epoch
            })
            .collect();
        followers.into_iter()
    }

    /// A server leaves its leader for another: its clients are disconnected, and messages on their way are lost.
    pub fn join(&mut self, server: usize, epoch: u32) {
        self.servers[server].epoch = epoch;
        self.servers[server].touched = false;
        self.servers[server].leads = None;
        self.disconnect(server);
    }

    /// A server that was left behind notices it, and stops.
    pub fn step_down(&mut self, server: usize) {
        self.disconnect(server);
        self.servers[server].down = true;
    }

    fn disconnect(&mut self, server: usize) {
        if let Some(connection) = self.servers[server].connection.take() {
            self.send_to_client(server, Message::Closed { connection });
        }
    }

    // The leader.

    /// Begins to lead: restarts the timeout of every session.
    pub fn lead(&mut self, server: usize) {
        let epoch = self.servers[server].epoch;
        if self.leaders[epoch as usize] != server {
            return; // there is a newer leader already
        }
        self.servers[server].leads = Some(Leader {
            bucket: self.expired.is_none().then_some(0),
            taken: false,
            owner: None,
            proposals: VecDeque::new(),
            next_zxid: 1,
        });
        self.touch(server);
        self.at(self.now, Event::PingLoop { server, epoch });
    }

    fn leader(&mut self, server: usize) -> &mut Leader {
        self.servers[server]
            .leads
            .as_mut()
            .expect("only a leader does this")
    }

    /// `SessionTrackerImpl.touchSession` and `ExpiryQueue.update`: whole milliseconds, then the next tick after now +
    /// T. Returns whether the session is alive.
    fn touch(&mut self, server: usize) -> bool {
        let epoch = self.servers[server].epoch;
        let (phase, tick) = (self.plan.phase, self.plan.tick);
        let now = (self.now + phase) / MS * MS;
        let expiry = ((now + self.plan.session_timeout) / tick + 1) * tick;
        match self.leader(server).bucket {
            None => false,
            Some(before) if before == expiry => true,
            Some(_) => {
                self.leader(server).bucket = Some(expiry);
                self.at(expiry - phase, Event::ExpiryLoop { server, epoch });
                true
            }
        }
    }

    fn revalidate(&mut self, server: usize, owner: usize) -> bool {
        let alive = self.touch(server);
        if alive {
            self.leader(server).owner = Some(owner);
        }
        alive
    }

    /// `Leader.lead`: pings every half tick, counted from the last round.
    pub fn ping_loop(&mut self, server: usize, epoch: u32) {
        if self.servers[server].down || self.servers[server].epoch != epoch {
            return;
        }
        if let Some(until) = self.servers[server].threads[thread::PING].paused(self.now) {
            return self.at(until, Event::PingLoop { server, epoch });
        }
        for follower in self.followers(server) {
            self.send(server, follower, Message::Ping { epoch });
        }
        let late = if self.rng.f64() < self.plan.ping_late {
            between(&mut self.rng, self.plan.ping_jitter / 2, self.plan.ping_jitter)
        } else {
            between(&mut self.rng, 0, self.plan.ping_jitter.min(2 * MS))
        };
        let next = self.now + self.plan.tick / 2 + late;
        self.at(next, Event::PingLoop { server, epoch });
    }

    /// `SessionTrackerImpl.run` takes a whole bucket, and then marks the sessions in it one by one. Until then a
    /// session can be touched and can write, but it is ended all the same.
    pub fn expiry_loop(&mut self, server: usize, epoch: u32) {
        if self.servers[server].down || self.servers[server].epoch != epoch {
            return;
        }
        if let Some(until) = self.servers[server].threads[thread::EXPIRY].paused(self.now) {
            return self.at(until, Event::ExpiryLoop { server, epoch });
        }
        let now = self.now + self.plan.phase;
        let leader = self.leader(server);
        if leader.bucket.is_some_and(|bucket| bucket <= now) && !leader.taken {
            leader.taken = true;
            let others = between(&mut self.rng, 0, self.plan.mark_delay);
            self.at(self.now + others, Event::Mark { server, epoch });
        }
    }

    /// `setSessionClosing`. Only the leader with the quorum can end a session. It marks the session before any other
    /// client can see its end.
    pub fn mark(&mut self, server: usize, epoch: u32) {
        if self.servers[server].down || self.servers[server].epoch != epoch {
            return;
        }
        if let Some(until) = self.servers[server].threads[thread::EXPIRY].paused(self.now) {
            return self.at(until, Event::Mark { server, epoch });
        }
        self.leader(server).bucket = None;
        if self.epoch == epoch && self.expired.is_none() {
            self.expired = Some(self.now);
        }
    }

    fn propose(&mut self, server: usize, origin: Origin) {
        let leader = self.leader(server);
        // The session has expired or moved: an error, which renews nothing.
        if leader.bucket.is_none() || leader.owner != Some(origin.server) {
            return;
        }
        let zxid = leader.next_zxid;
        leader.next_zxid += 1;
        leader.proposals.push_back(Proposal {
            zxid,
            accepted: 1 << server,
            origin,
        });
        let epoch = self.servers[server].epoch;
        for follower in self.followers(server) {
            self.send(server, follower, Message::Proposal { epoch, zxid });
        }
    }

    fn accepted(&mut self, server: usize, follower: usize, zxid: u64) {
        let quorum = self.plan.servers as u32 / 2 + 1;
        let epoch = self.servers[server].epoch;
        if let Some(proposal) = self
            .leader(server)
            .proposals
            .iter_mut()
            .find(|proposal| proposal.zxid == zxid)
        {
            proposal.accepted |= 1 << follower;
        }
        while let Some(front) = self.leader(server).proposals.front() {
            if front.accepted.count_ones() < quorum {
                break;
            }
            let origin = front.origin;
            self.leader(server).proposals.pop_front();
            for follower in self.followers(server) {
                self.send(server, follower, Message::Commit { epoch, origin });
            }
            self.answer(server, origin);
        }
    }
}
