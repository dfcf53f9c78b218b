//! Elections: which server leads, which follow, and which have left.

use lockkeeper_lock::ensemble::Closed;

use crate::link::LinkId;
use crate::state::State;
use crate::time::Millis;

impl State {
    /// Starts the rounds of the leader, of the followers and of elections.
    pub(crate) fn start(&mut self) {
        self.after(0, Self::leader_round);
        self.after(0, Self::election_round);
        for server in 0..self.servers.len() {
            self.after(0, move |state| state.follower_round(server));
        }
    }

    /// A server stops serving: its clients are disconnected, and messages between it and the leader are lost.
    pub(crate) fn leave(&mut self, server: usize) {
        self.drop_link(LinkId::ToLeader(server));
        self.drop_link(LinkId::ToFollower(server));
        self.servers[server].is_in_sync = false;
        self.servers[server].touched.clear();
        for connection in std::mem::take(&mut self.servers[server].connections) {
            self.hang_up(connection, Closed::Disconnected);
        }
        self.servers[server].watches.clear();
    }

    /// A server catches up with the leader and serves again.
    pub(crate) fn join(&mut self, server: usize) {
        self.catch_up(server);
        self.servers[server].is_in_sync = true;
        self.servers[server].heard_leader = self.now;
    }

    fn catch_up(&mut self, server: usize) {
        while self.servers[server].applied < self.log.len() {
            self.apply(server);
        }
    }

    /// If a majority has no leader, or has left it, it elects one.
    pub(crate) fn election_round(&mut self) {
        let half = self.tick() / 2;
        self.after(half, Self::election_round);
        let leader = &self.servers[self.leader];
        if leader.is_in_sync && leader.can_elect(self.now) {
            return; // servers that do not follow it yet join it
        }
        let candidates: Vec<usize> = (0..self.servers.len())
            .filter(|&index| self.servers[index].can_elect(self.now))
            .filter(|&index| !leader.is_in_sync || !self.servers[index].is_in_sync)
            .collect();
        if !self.is_electing && candidates.len() > self.servers.len() / 2 {
            let leader = candidates[self.rng.usize(..candidates.len())];
            let takes = self.up_to(self.tick());
            self.elect(leader, takes);
        }
    }

    /// All servers leave the leader and follow another one, which restarts the timeout of every session.
    pub(crate) fn elect(&mut self, leader: usize, takes: Millis) {
        self.epoch += 1;
        self.is_electing = true;
        let epoch = self.epoch;
        self.pending.clear();
        for server in 0..self.servers.len() {
            self.leave(server);
        }
        self.leader = leader;
        // The elected server has everything that was committed, though it does not serve yet. Changes by hand meanwhile
        // apply to that state.
        self.catch_up(leader);
        self.after(takes, move |state| {
            if state.epoch != epoch {
                return;
            }
            state.is_electing = false;
            // The others follow as soon as they reach it.
            state.join(leader);
            // The epoch is the high half of a zxid.
            state.zxid = ((state.zxid >> 32) + 1) << 32;
            let sessions: Vec<i64> = state.sessions.keys().copied().collect();
            for session in sessions {
                if let Some(record) = state.sessions.get_mut(&session) {
                    record.is_taken = false;
                }
                state.touch(session);
            }
        });
    }
}
