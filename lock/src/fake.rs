//! An in-memory ensemble on tokio's paused clock, for tests of whatever uses this crate.
//!
//! [`World`] is the ensemble and the network, [`Client`] one user of it (an [`Ensemble`]),
//! [`SkewedClock`] that user's clock. One seed decides all delays, so a history can be repeated.
//! What it keeps of ZooKeeper:
//! * writes are put in order by the leader and need a majority; each server carries them out when
//!   it hears of them, so reads and watch events of a follower are late, but never out of order on
//!   one connection, and a client sees its own writes;
//! * only the leader ends sessions, at the first tick after last touch + T; it learns of what a
//!   follower heard from the replies to its pings, every half tick, and when a session is taken to
//!   another server; what touches a session while the leader ends those of one tick, one by one,
//!   does not save it;
//! * a follower without its leader goes on answering reads for `sync_limit` ticks;
//! * a session has one connection: writes over an older one are refused;
//! * names of contenders get the number of children that their parent ever had.
//!
//! Left out: access control lists other than "forbidden" and "protected", threads of a server that are paused one by
//! one, and a leader that is paused at an awkward moment; `tests/lease_model.rs` has those. Creating
//! a path with its parents is one transaction here.
//!
//! ```
//! use lockkeeper_lock::ensemble::{Connection, Ensemble};
//! use lockkeeper_lock::fake::{Options, World};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let world = World::new(Options { seed: 7, ..Options::default() });
//! let client = world.client("a");
//! let connection = client.attach(0, None, std::time::Duration::from_secs(1)).await.unwrap();
//! connection.make_path("/locks/report", Vec::new()).await.unwrap();
//! assert_eq!(world.children("/locks"), ["report"]);
//! # }
//! ```
//!
//! [`Ensemble`]: crate::ensemble::Ensemble

mod client;
mod clock;
mod leader;
mod link;
mod record;
mod server;
mod state;
#[cfg(test)]
mod tests;
mod tree;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use self::client::Shared;
pub use self::client::{Client, FakeConnection};
pub use self::clock::{Freezable, SkewedClock};
pub use self::record::{Happened, Record};
use self::state::{Millis, NEVER, State};
use self::tree::Change;
use crate::ensemble::{Closed, Node};

/// The ensemble and its network.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides everything that is random.
    pub seed: u64,
    /// How many servers. Server 0 leads at first.
    pub servers: usize,
    /// `tickTime`.
    pub tick: Duration,
    /// `syncLimit`: after how many ticks without its leader a follower stops serving.
    pub sync_limit: u32,
    /// The session timeout that clients ask for; they get what fits between 2 and 20 ticks.
    pub session_timeout: Duration,
    /// A message takes up to this long; whole milliseconds.
    pub delay: Duration,
    /// A message of the leader takes up to this long to a follower.
    pub lag: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            servers: 3,
            tick: Duration::from_secs(2),
            sync_limit: 5,
            session_timeout: Duration::from_secs(15),
            delay: Duration::from_millis(3),
            lag: Duration::from_millis(20),
        }
    }
}

/// What a cut between a client and a server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// What the client sends.
    Requests,
    /// What the server sends.
    Answers,
    /// Both.
    Both,
}

/// The ensemble and its network. Lives while this value lives.
pub struct World {
    shared: Arc<Shared>,
    driver: tokio::task::AbortHandle,
}

impl World {
    /// A healthy ensemble with nothing in it.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(options: Options) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(options)),
            changed: Notify::new(),
            start: Instant::now(),
        });
        let driver = tokio::spawn(drive(Arc::clone(&shared))).abort_handle();
        Self { shared, driver }
    }

    /// A client; the same name is the same client.
    pub fn client(&self, name: impl Into<String>) -> Client {
        Client {
            shared: Arc::clone(&self.shared),
            name: name.into(),
        }
    }

    /// Time since the world began.
    pub fn now(&self) -> Duration {
        self.shared.start.elapsed()
    }

    // The truth.

    /// Everything that happened so far.
    pub fn records(&self) -> Vec<Record> {
        self.shared.state().records.clone()
    }

    /// Names of the children of a node at the leader; none when there is no such node.
    pub fn children(&self, path: &str) -> Vec<String> {
        let state = self.shared.state();
        state.servers[state.leader]
            .tree
            .children(path)
            .unwrap_or_default()
    }

    /// A node at the leader.
    pub fn node(&self, path: &str) -> Option<Node> {
        let state = self.shared.state();
        state.servers[state.leader].tree.node(path).ok()
    }

    /// Whether a session lives.
    pub fn is_alive(&self, session: i64) -> bool {
        self.shared.state().sessions.contains_key(&session)
    }

    /// When the leader last counted a session, and when it will end it if it does not again.
    pub fn counted(&self, session: i64) -> Option<(Duration, Duration)> {
        let state = self.shared.state();
        let record = state.sessions.get(&session)?;
        Some((
            Duration::from_millis(record.touched),
            Duration::from_millis(record.expires),
        ))
    }

    /// The server that leads.
    pub fn leader(&self) -> usize {
        self.shared.state().leader
    }

    /// The server that a client is connected to; the last one, if there are several.
    pub fn server_of(&self, client: &str) -> Option<usize> {
        let state = self.shared.state();
        let mut of = state
            .connections
            .values()
            .filter(|record| record.client == client && record.closed.borrow().is_none());
        of.next_back().map(|record| record.server)
    }

    // Faults of the network.

    /// Nothing gets through between a client and a server for a while.
    pub fn cut_client(&self, client: &str, server: usize, traffic: Traffic, length: Duration) {
        let mut state = self.shared.state();
        let until = until(&state, length);
        for requests in [true, false] {
            let is_cut = match traffic {
                Traffic::Requests => requests,
                Traffic::Answers => !requests,
                Traffic::Both => true,
            };
            if is_cut {
                state.cuts.insert((client.to_owned(), server, requests), until);
            }
        }
    }

    /// Nothing gets through between a client and any server for a while.
    pub fn isolate(&self, client: &str, length: Duration) {
        let servers = self.shared.state().servers.len();
        for server in 0..servers {
            self.cut_client(client, server, Traffic::Both, length);
        }
    }

    /// Nothing gets through between a server and the others for a while.
    pub fn cut_server(&self, server: usize, length: Duration) {
        let mut state = self.shared.state();
        let until = until(&state, length);
        state.servers[server].cut_until = until;
    }

    /// Breaks the connections of a client. What is on its way may be lost.
    pub fn disconnect(&self, client: &str) {
        let mut state = self.shared.state();
        let broken: Vec<u64> = state
            .connections
            .iter()
            .filter(|(_, record)| record.client == client)
            .map(|(number, _)| *number)
            .collect();
        for connection in broken {
            state.break_off(connection);
        }
    }

    /// Breaks a client's connection when its next write is committed: the write is carried out, and
    /// its answer is lost.
    pub fn lose_next_answer(&self, client: &str) {
        self.shared.state().breaks.insert(client.to_owned());
    }

    /// The next `requests` of a client come to an overloaded server, which answers that it does not carry
    /// them out.
    pub fn throttle(&self, client: &str, requests: u32) {
        self.shared.state().throttled.insert(client.to_owned(), requests);
    }

    /// Ends all cuts.
    pub fn heal(&self) {
        let mut state = self.shared.state();
        state.cuts.clear();
        for server in &mut state.servers {
            server.cut_until = 0;
        }
    }

    // Faults of servers.

    /// A server does nothing for a while, as when it is stopped by a signal or collects garbage.
    pub fn stall(&self, server: usize, length: Duration) {
        let mut state = self.shared.state();
        let until = until(&state, length);
        state.servers[server].stalled_until = until;
    }

    /// Stops a server. If it led, another one is elected within two ticks, if there is a majority.
    pub fn stop(&self, server: usize) {
        let mut state = self.shared.state();
        state.servers[server].is_up = false;
        state.leave(server);
    }

    /// Starts a server that was stopped; it follows as soon as it reaches a leader.
    pub fn start(&self, server: usize) {
        self.shared.state().servers[server].is_up = true;
    }

    /// Another server leads from now on, after an election of up to a tick. All clients are
    /// disconnected.
    pub fn elect(&self, leader: usize) {
        let mut state = self.shared.state();
        if state.servers[leader].is_up {
            let tick = state.tick();
            let takes = state.up_to(tick);
            state.elect(leader, takes);
        }
    }

    /// What the leader commits takes up to `lag` to this server.
    pub fn set_lag(&self, server: usize, lag: Duration) {
        self.shared.state().servers[server].lag = lag.as_millis() as Millis;
    }

    /// A server grants no longer session timeout than this (`maxSessionTimeout`), also to a session
    /// that is taken to it.
    pub fn limit_sessions(&self, server: usize, longest: Duration) {
        self.shared.state().servers[server].longest_session = longest;
    }

    // Faults of clients.

    /// A client stands still for a while. What it runs has to be run by [`Freezable`].
    pub fn freeze(&self, client: &str, length: Duration) {
        let mut state = self.shared.state();
        let until = until(&state, length);
        state.frozen.insert(client.to_owned(), until);
    }

    // What other people do.

    /// Ends a session by force.
    pub fn expire(&self, session: i64) {
        self.shared
            .state()
            .end_session(session, Happened::Expired { session });
    }

    /// Somebody creates a node; a persistent one.
    pub fn create(&self, path: &str, data: &[u8]) {
        self.create_owned(path, data, 0);
    }

    /// Another client creates a node, which is marked as that of a session of its own.
    pub fn create_owned(&self, path: &str, data: &[u8], owner: i64) {
        self.change(Change::Create {
            path: path.to_owned(),
            data: data.to_vec(),
            owner,
        });
    }

    /// Somebody changes a node's data.
    pub fn set_data(&self, path: &str, data: &[u8]) {
        self.change(Change::SetData {
            path: path.to_owned(),
            data: data.to_vec(),
        });
    }

    /// Somebody deletes a node, and nothing below it.
    pub fn delete(&self, path: &str) {
        self.change(Change::Delete {
            path: path.to_owned(),
        });
    }

    /// Nobody has any right to nodes whose path begins with `prefix`.
    pub fn forbid(&self, prefix: &str) {
        self.shared.state().forbidden.insert(prefix.to_owned());
    }

    /// Nobody has the right to write to nodes whose path begins with `prefix`.
    pub fn protect(&self, prefix: &str) {
        self.shared.state().protected.insert(prefix.to_owned());
    }

    /// Takes [`World::forbid`] back.
    pub fn allow(&self, prefix: &str) {
        self.shared.state().forbidden.remove(prefix);
    }

    fn change(&self, change: Change) {
        self.shared.state().commit(vec![change], None, None, None);
    }

    /// Closes every connection of a client as a server does that says that the session is over,
    /// though it is not.
    pub fn hang_up(&self, client: &str, why: Closed) {
        let mut state = self.shared.state();
        let connections: Vec<u64> = state
            .connections
            .iter()
            .filter(|(_, record)| record.client == client)
            .map(|(number, _)| *number)
            .collect();
        for connection in connections {
            state.hang_up(connection, why);
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn until(state: &State, length: Duration) -> Millis {
    let length = Millis::try_from(length.as_millis()).unwrap_or(NEVER);
    state.now.saturating_add(length)
}

/// Lets things happen when they are due.
async fn drive(shared: Arc<Shared>) {
    loop {
        let next = {
            let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.run(shared.start.elapsed().as_millis() as Millis)
        };
        let due = shared.start + Duration::from_millis(next.min(u64::from(u32::MAX)));
        tokio::select! {
            biased;
            () = shared.changed.notified() => {}
            () = tokio::time::sleep_until(due) => {}
        }
    }
}
