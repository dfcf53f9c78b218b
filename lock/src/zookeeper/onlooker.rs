//! A client for those who look after the tree around the locks: they watch it, make nodes and set
//! their rights. It holds no lock, so its session may go with its connection.

use std::ops::Deref;
use std::time::Duration;

use zookeeper_client as zk;

use super::executor::Executor;
use super::{ConnectString, ServerAddress, ZooKeeper};
use crate::ensemble::{Closed, EnsembleError, EnsembleResult};

/// One client on one connection. It is of no use after the first disconnection: the client behind it
/// would connect again, but not set its persistent watches again (zookeeper-client 0.11,
/// `resend_watches`), and nobody knows what happened in between. So one connects anew and reads anew.
///
/// Paths are those of the servers: [`ConnectString::chroot`] is not prefixed.
pub struct Onlooker {
    client: zk::Client,
    /// As of the moment when the session was confirmed: has changed once anything happened.
    state: zk::StateWatcher,
    /// The way here, and which of its servers this is: for questions over another connection.
    way: (ZooKeeper, usize),
    /// Ends the client's task when it is dropped.
    _executor: Executor,
}

impl ZooKeeper {
    /// Where the ensemble is.
    pub fn connect_string(&self) -> &ConnectString {
        &self.connect
    }

    /// Connects to the server with this index for looking and looking after.
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
        // Taken before the client's task runs for the first time: no change of state is missed.
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
    /// The way to the ensemble.
    pub(super) fn zookeeper(&self) -> &ZooKeeper {
        &self.way.0
    }

    /// The server that is at the other end.
    pub(super) fn server(&self) -> &ServerAddress {
        &self.way.0.connect.servers()[self.way.1]
    }

    /// Completes when the connection is gone, and says why.
    pub fn closed(&self) -> impl Future<Output = Closed> + Send + 'static {
        let mut state = self.state.clone();
        async move { state.changed().await.into() }
    }

    /// Whether the connection was never lost, so that answers and watches belong together.
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
