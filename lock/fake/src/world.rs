//! The ensemble and its network as a whole, and its true state.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkeeper_lock::ensemble::Node;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::client::Client;
use crate::happened::Record;
use crate::options::Options;
use crate::shared::Shared;
use crate::state::State;
use crate::time::Millis;

/// The ensemble and its network. Lives while this value lives.
pub struct World {
    pub(crate) shared: Arc<Shared>,
    driver: tokio::task::AbortHandle,
}

impl World {
    /// A healthy ensemble without nodes.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(options: Options) -> Self {
        let mut state = State::new(options);
        state.start();
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Notify::new(),
            refrozen: Notify::new(),
            start: Instant::now(),
        });
        let driver = tokio::spawn(drive(Arc::clone(&shared))).abort_handle();
        Self { shared, driver }
    }

    /// A client; calls with the same name return the same client.
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

    pub fn records(&self) -> Vec<Record> {
        self.shared.state().records.clone()
    }

    /// Names of the children of a node at the leader; none if the node does not exist.
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

    pub fn is_alive(&self, session: i64) -> bool {
        self.shared.state().sessions.contains_key(&session)
    }

    /// When the leader last restarted a session's timeout, and when it will end the session without another touch.
    pub fn counted(&self, session: i64) -> Option<(Duration, Duration)> {
        let state = self.shared.state();
        let record = state.sessions.get(&session)?;
        Some((
            Duration::from_millis(record.touched),
            Duration::from_millis(record.expires),
        ))
    }

    /// The index of the leader.
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
}

impl Drop for World {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Runs events when they are due.
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
