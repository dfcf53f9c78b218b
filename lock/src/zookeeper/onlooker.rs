//! A client that maintains the nodes around the locks: it watches them, creates them and sets their rights. It holds no
//! lock, so its session may end with its connection.

use std::ops::Deref;
use std::time::Duration;

use zookeeper_client as zk;

use super::address::{ConnectString, ServerAddress};
use super::executor::Executor;
use super::servers::ZooKeeper;
use crate::ensemble::{Closed, EnsembleError, EnsembleResult};

/// One client on one connection. It is useless after the first disconnection: the client behind it would connect again,
/// but not set its persistent watches again (zookeeper-client 0.11, `resend_watches`), and events in between would be
/// missed. So its user connects anew and reads anew.
///
/// Paths are absolute paths of the servers: [`ConnectString::chroot`] is not prefixed.
pub struct Onlooker {
    client: zk::Client,
    /// The state from the moment when the session was confirmed; it changes with the first event.
    state: zk::StateWatcher,
    /// The ensemble, and the index of the connected server: for requests over another connection.
    way: (ZooKeeper, usize),
    /// Ends the client's task when it is dropped.
    _executor: Executor,
}

impl ZooKeeper {
    /// The servers and the chroot with which it was made.
    pub fn connect_string(&self) -> &ConnectString {
        &self.connect
    }

    /// Connects to the server with this index, for watching and maintaining nodes.
    ///
    /// # Errors
    /// When the server cannot be reached within `patience` or does not accept us.
    pub async fn onlooker(&self, index: usize, patience: Duration) -> EnsembleResult<Onlooker> {
        let server = &self.connect.servers()[index];
        let target = tokio::time::timeout(patience, self.guarded(server)).await;
        let server = server.to_string();
        let unreachable = |reason: String| EnsembleError::Unreachable {
            server: server.clone(),
            reason,
        };
        let silent = |_| unreachable(format!("no answer within {patience:?}"));
        let target = target.map_err(silent)??.to_string();
        let executor = Executor::default();
        let connector = self.connector(&self.credentials.identities());
        let connecting = executor.enter(connector.with_detached().connect(&target));
        let client = match tokio::time::timeout(patience, connecting).await {
            Ok(Ok(client)) => client,
            Ok(Err(zk::Error::AuthFailed)) => return Err(EnsembleError::AuthFailed),
            Ok(Err(error)) => return Err(unreachable(error.to_string())),
            Err(elapsed) => return Err(silent(elapsed)),
        };
        // Taken before the client's task first runs, so it sees every change of state.
        let state = client.state_watcher();
        executor.start();
        Ok(Onlooker {
            client,
            state,
            way: (self.clone(), index),
            _executor: executor,
        })
    }
}

impl Onlooker {
    /// How to reach the ensemble.
    pub(super) fn zookeeper(&self) -> &ZooKeeper {
        &self.way.0
    }

    pub(super) fn server(&self) -> &ServerAddress {
        &self.way.0.connect.servers()[self.way.1]
    }

    /// Waits until the connection is gone, and returns why.
    pub fn closed(&self) -> impl Future<Output = Closed> + Send + 'static {
        let mut state = self.state.clone();
        async move { state.changed().await.into() }
    }

    /// Whether the connection was never interrupted, so that answers and watches belong together.
    pub fn is_intact(&self) -> bool {
        use futures_util::FutureExt;
        self.state.clone().changed().now_or_never().is_none()
    }
}

impl Deref for Onlooker {
    type Target = zk::Client;

    fn deref(&self) -> &zk::Client {
        &self.client
    }
}

impl std::fmt::Debug for Onlooker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Onlooker")
            .field("session", &self.client.session_id())
            .finish_non_exhaustive()
    }
}
