//! Faults of a [`World`]: of its network, its servers and its clients.

use std::time::Duration;

use lockkeeper_lock::ensemble::Closed;

use crate::state::State;
use crate::time::{Millis, NEVER};
use crate::world::World;

/// The messages that a cut between a client and a server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Messages of the client.
    Requests,
    /// Messages of the server.
    Answers,
    Both,
}

impl World {
    // Faults of the network.

    /// Stops all messages between a client and a server for a while.
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

    /// Stops all messages between a client and every server for a while.
    pub fn isolate(&self, client: &str, length: Duration) {
        let servers = self.shared.state().servers.len();
        for server in 0..servers {
            self.cut_client(client, server, Traffic::Both, length);
        }
    }

    /// Stops all messages between a server and the others for a while.
    pub fn cut_server(&self, server: usize, length: Duration) {
        let mut state = self.shared.state();
        let until = until(&state, length);
        state.servers[server].cut_until = until;
    }

    /// Breaks the connections of a client. Messages on their way may be lost.
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

    /// The next `requests` of a client reach an overloaded server, which answers that it does not carry them out.
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

    /// Closes every connection of a client like a server that reports the end of the session, although the session
    /// lives.
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

    // Faults of servers.

    /// From now on the disks of all servers need so long for each transaction.
    pub fn slow_disks(&self, length: Duration) {
        self.shared.state().writing_takes = length.as_millis() as Millis;
    }

    /// Pauses a server for a while, as a signal or a garbage collection does.
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

    /// Makes another server the leader, after an election of up to a tick. All clients are disconnected.
    pub fn elect(&self, leader: usize) {
        let mut state = self.shared.state();
        if state.servers[leader].is_up {
            let tick = state.tick();
            let takes = state.up_to(tick);
            state.elect(leader, takes);
        }
    }

    /// The leader's commits take up to `lag` to this server.
    pub fn set_lag(&self, server: usize, lag: Duration) {
        self.shared.state().servers[server].lag = lag.as_millis() as Millis;
    }

    /// A server grants at most this session timeout (`maxSessionTimeout`), also to a session that moves to it.
    pub fn limit_sessions(&self, server: usize, longest: Duration) {
        self.shared.state().servers[server].longest_session = longest;
    }

    // Faults of clients.

    /// Freezes a client for a while. Its futures have to be run by [`Freezable`](crate::Freezable).
    pub fn freeze(&self, client: &str, length: Duration) {
        let mut state = self.shared.state();
        let until = until(&state, length);
        state.frozen.insert(client.to_owned(), until);
        self.shared.refrozen.notify_waiters();
    }

    pub fn is_frozen(&self, client: &str) -> bool {
        self.shared.state().frozen_until(client).is_some()
    }
}

fn until(state: &State, length: Duration) -> Millis {
    let length = Millis::try_from(length.as_millis()).unwrap_or(NEVER);
    state.now.saturating_add(length)
}
