//! The client: sends renewals by its own clock, and asks every rule for the end of its lease.

use lockkeeper_lock::{BootInstant, Renewal};

use super::model::{Event, Message, Model};
use super::network::{MS, NEVER, Time};
use super::plan::{RATE_ERROR, between};
use super::weaker::{self, Rule};

pub struct Client {
    pub server: usize,
    /// Number of the connection, so that messages of an older one are ignored.
    connection: u32,
    connected: bool,
    asked: BootInstant,
    /// The writes of this connection.
    sent: Vec<BootInstant>,
    answered: usize,
    rules: [Rule; weaker::COUNT],
    /// For each rule, until when (true time) it has let the client act.
    pub acts_until: [Option<Time>; weaker::COUNT],
    /// Position in the plan's rhythm.
    beat: usize,
}

impl Client {
    /// With a session that was created at the beginning of the history.
    pub fn new(mut rules: [Rule; weaker::COUNT]) -> Self {
        for rule in &mut rules {
            rule.create(BootInstant::from_nanos(CLOCK_START));
        }
        Self {
            server: 0,
            connection: 0,
            connected: false,
            asked: BootInstant::from_nanos(0),
            sent: Vec::new(),
            answered: 0,
            rules,
            acts_until: [None; weaker::COUNT],
            beat: 0,
        }
    }
}

/// The time on a clock at the beginning of the history: it has been running for some time before.
const CLOCK_START: u64 = 1_000_000_000_000;

impl Model {
    fn clock(&self) -> BootInstant {
        BootInstant::from_nanos(CLOCK_START + (self.now as f64 * self.plan.clock_rate) as u64)
    }

    /// The true time at which the application has ended for a lease that ends at `end`. Of the margin, the part for the
    /// clocks is taken off; the rest of it is for the kernel.
    fn gone_by(&self, end: BootInstant) -> Time {
        let margin = (self.plan.session_timeout as f64 * RATE_ERROR) as u64;
        let since = (end.as_nanos() - CLOCK_START).saturating_sub(margin);
        (since as f64 / self.plan.clock_rate) as Time
    }

    pub fn connect(&mut self, server: usize) {
        let asked = self.clock();
        let client = &mut self.client;
        client.server = server;
        client.connection += 1;
        client.connected = false;
        client.asked = asked;
        client.sent.clear();
        client.answered = 0;
        let connection = client.connection;
        self.send_to_server(server, Message::Connect { connection });
        self.expect(connection, 0);
    }

    /// Closes the connection; messages over it do not count any more.
    pub fn leave(&mut self) {
        self.client.connection += 1;
        self.client.connected = false;
    }

    fn expect(&mut self, connection: u32, write: usize) {
        let patience = self.plan.renew_interval * 2 + between(&mut self.rng, 0, 50 * MS);
        self.at(self.now + patience, Event::Patience { connection, write });
    }

    pub fn take_elsewhere(&mut self) {
        let n = self.plan.servers;
        let other = (self.client.server + 1 + self.rng.usize(..n - 1)) % n;
        self.connect(other);
    }

    /// The timer of the renewals.
    pub fn renew(&mut self) {
        // After the last fault the client goes on for a while, then it is dead.
        let dead = self
            .last_fault
            .is_some_and(|at| self.now > at + self.plan.session_timeout / 2);
        if dead {
            return;
        }
        let answered = self.client.answered == self.client.sent.len();
        if self.client.connected && (self.plan.pipelined || answered) {
            self.write();
        }
        if self.client.connected && !self.plan.rhythm.is_empty() {
            return; // the answer sets the timer
        }
        let interval = self.plan.renew_interval;
        let jitter = between(&mut self.rng, 0, interval / 20);
        self.at(self.now + interval + jitter, Event::Renew);
    }

    fn write(&mut self) {
        let now = self.clock();
        self.client.sent.push(now);
        let (server, connection) = (self.client.server, self.client.connection);
        let write = self.client.sent.len() - 1;
        self.send_to_server(server, Message::Request { connection, write });
        self.expect(connection, write + 1);
    }

    /// `write` answers were expected by now: 0 is the confirmation of the session.
    pub fn out_of_patience(&mut self, connection: u32, write: usize) {
        let client = &self.client;
        if client.connection != connection || self.last_fault.is_some() {
            return;
        }
        let late = if client.connected {
            client.answered < write
        } else {
            write == 0
        };
        if late && (self.plan.recovers || !client.connected) {
            self.take_elsewhere();
        }
    }

    pub fn client_receives(&mut self, server: usize, message: Message) {
        let now = self.clock();
        match message {
            Message::Connected { connection } if connection == self.client.connection => {
                debug_assert_eq!(server, self.client.server);
                self.client.connected = true;
                for rule in &mut self.client.rules {
                    rule.attach(self.client.asked);
                }
                self.leases();
                // As in the lock, the write that completes the proof follows at once.
                self.write();
            }
            Message::Answer { connection, write } if connection == self.client.connection => {
                let renewal = Renewal {
                    sent: self.client.sent[write],
                    acknowledged: now,
                };
                self.client.answered = write + 1;
                for rule in &mut self.client.rules {
                    rule.acknowledge(renewal);
                }
                self.leases();
                if self.rng.f64() < self.plan.burst {
                    self.write();
                } else if !self.plan.rhythm.is_empty() {
                    self.client.beat = (self.client.beat + 1) % self.plan.rhythm.len();
                    self.at(self.now + self.plan.rhythm[self.client.beat], Event::Renew);
                }
            }
            Message::Closed { connection } if connection == self.client.connection => {
                self.client.connected = false;
                if self.last_fault.is_none() {
                    self.take_elsewhere();
                }
            }
            _ => {}
        }
    }

    /// Records how long each rule lets the client act from now on.
    fn leases(&mut self) {
        for index in 0..weaker::COUNT {
            let end = self.client.rules[index].end().map_or(0, |end| self.gone_by(end));
            if end > self.now && end != NEVER {
                self.client.acts_until[index] = Some(end);
            }
        }
    }
}
