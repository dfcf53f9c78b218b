//! What writes, closed unless the lease is valid: a client of the API server, and the ways into ensembles.
//!
//! Only the [`Writer`](super::Writer) opens them, for one write each time, with the term in which this replica leads. So
//! no write of the controller gets by without the check.

use kube::Client;
use lockkeeper_lock::CleanRelease;

use crate::leadership::{NotLeading, Term};
use crate::lock_key::LockKey;
use crate::zookeeper::client::Way;
use crate::zookeeper::nodes::{Ending, TreeError};

/// A client that writes to the API server.
pub(super) struct LeasedClient(Client);

/// A way into an ensemble. The whole controller reads over it, and only the writer writes.
#[derive(Clone, Debug)]
pub(crate) struct LeasedWay(Way);

// === impl LeasedClient ===

impl LeasedClient {
    pub(super) fn new(client: Client) -> Self {
        Self(client)
    }

    /// The client, for one write.
    ///
    /// # Errors
    /// When the term is over.
    pub(super) fn open(&self, term: Term<'_>) -> Result<Client, NotLeading> {
        term.check()?;
        Ok(self.0.clone())
    }

    /// The client, for the one write that takes no lease: see [`LossWriter`](super::LossWriter).
    pub(super) fn open_after_loss(&self) -> Client {
        self.0.clone()
    }
}

// === impl LeasedWay ===

impl LeasedWay {
    pub(crate) fn new(way: Way) -> Self {
        Self(way)
    }

    /// The way, for one write.
    ///
    /// # Errors
    /// When the term is over.
    pub(super) fn open(&self, term: Term<'_>) -> Result<&Way, NotLeading> {
        term.check()?;
        Ok(&self.0)
    }

    /// See [`Way::session`].
    pub(crate) fn session(&self) -> i64 {
        self.0.session()
    }

    /// See [`Way::endings`].
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn endings(
        &self,
        key: &LockKey,
        gone: &[CleanRelease],
    ) -> Result<Vec<Ending>, TreeError> {
        self.0.endings(key, gone).await
    }

    /// See [`Way::left_behind`].
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn left_behind(
        &self,
        namespace: &str,
        current: &str,
    ) -> Result<Vec<(LockKey, String)>, TreeError> {
        self.0.left_behind(namespace, current).await
    }
}
