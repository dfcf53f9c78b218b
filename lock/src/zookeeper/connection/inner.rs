//! The data that a connection shares with its calls and watches.

use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use zookeeper_client as zk;

use crate::zookeeper::executor::Executor;
use crate::zookeeper::rights::Rights;

/// Shared with the futures of calls and watches, to keep it alive as long as they need it: the client panics if a watch
/// is polled after the client's task has ended.
pub(super) struct Inner {
    pub(super) client: zk::Client,
    /// The state from the moment when the session was confirmed; it changes with the first event.
    pub(super) state: zk::StateWatcher,
    /// Makes clients that close their session when they are dropped.
    pub(super) ending: zk::Connector,
    pub(super) target: String,
    /// Prefix of every path. The client's own chroot is not used: with it we could not create the chroot node itself.
    pub(super) chroot: String,
    pub(super) acls: Rights,
    /// The identities that were shown to the servers over this connection.
    pub(super) identities: Mutex<Vec<String>>,
    /// Our contender, once it is created: its ACL follows [`Inner::identities`].
    pub(super) contender: Mutex<Option<String>>,
    pub(super) executor: Executor,
}

impl Inner {
    pub(super) fn whole(&self, path: &str) -> String {
        format!("{}{path}", self.chroot)
    }

    pub(super) fn is_intact(&self) -> bool {
        // The state channel keeps only the newest state, but records whether there was a newer one.
        self.state.clone().changed().now_or_never().is_none()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
