//! The client's end of a connection: what it receives, and how it closes.

use lockkeeper_lock::ensemble::Closed;

use crate::link::LinkId;
use crate::state::State;
use crate::time::Millis;

/// Time between two checks of a frozen client: it may be thawed early.
const THAW_LOOK: Millis = 100;

impl State {
    /// The client received something from its server.
    pub(crate) fn client_heard(&mut self, connection: u64) {
        let now = self.now;
        if let Some(record) = self.connections.get_mut(&connection) {
            record.last_heard = now;
        }
    }

    /// The client's end is closed: no answer and no event reaches the client any more.
    pub(crate) fn client_closes(&mut self, connection: u64, why: Closed) {
        let Some(record) = self.connections.get_mut(&connection) else {
            return;
        };
        if record.closed.borrow().is_some() {
            return;
        }
        record.closed.send_replace(Some(why));
        record.awaited.clear();
        record.watches.clear();
        if let Some(confirmed) = record.confirmed.take() {
            let _ = confirmed.send(Err(why));
        }
        self.drop_link(LinkId::Down(connection));
    }

    /// The client closes the connection. The server carries out requests that are on their way, then learns that the
    /// client does not wait for the answers.
    pub(crate) fn client_leaves(&mut self, connection: u64) {
        self.client_closes(connection, Closed::Disconnected);
        self.send(LinkId::Up(connection), move |state| state.end(connection));
    }

    /// The connection breaks: each request and answer that is on its way may be lost.
    pub(crate) fn break_off(&mut self, connection: u64) {
        if self.rng.bool() {
            self.drop_link(LinkId::Up(connection));
        }
        self.client_leaves(connection);
    }

    /// Both ends have closed.
    pub(crate) fn end(&mut self, connection: u64) {
        self.forget(connection);
        self.connections.remove(&connection);
    }

    pub(crate) fn frozen_until(&self, client: &str) -> Option<Millis> {
        self.frozen.get(client).copied().filter(|until| *until > self.now)
    }

    /// The client's library sends a ping every third of T, and gives up after two thirds of T without an answer.
    pub(crate) fn keep_alive(&mut self, connection: u64) {
        let Some(record) = self.connections.get(&connection) else {
            return;
        };
        let Some(session) = record.session else { return };
        if record.closed.borrow().is_some() {
            return;
        }
        let third = session.timeout.as_millis() as Millis / 3;
        if let Some(until) = self.frozen_until(&record.client) {
            // Messages that arrived meanwhile are read first.
            let delay = (until - self.now + 1).min(THAW_LOOK);
            return self.after(delay, move |state| state.keep_alive(connection));
        }
        let was_frozen = self
            .frozen
            .get(&record.client)
            .is_some_and(|until| *until + third > self.now);
        if self.now >= record.last_heard + 2 * third && !was_frozen {
            return self.client_leaves(connection);
        }
        self.send(LinkId::Up(connection), move |state| state.ping(connection));
        self.after(third, move |state| state.keep_alive(connection));
    }
}
