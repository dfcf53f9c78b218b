//! What a reconciliation needs besides its object.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::changes::Changes;
use crate::controller::memory::Memories;
use crate::controller::turns::Turns;
use crate::controller::writer::Writers;
use crate::fencing::{Fencing, Nodes};
use crate::identity::secrets::Secrets;
use crate::kubernetes::pods::Pods;
use crate::kubernetes::reader::Reader;
use crate::metrics::Metrics;
use crate::zookeeper::ensemble::Ensemble;
use crate::zookeeper::foreign::Others;

/// Shared by all reconciliations.
pub struct Context {
    /// Reads from the API server.
    pub reader: Reader,
    /// Hands out writers while this replica leads.
    pub writers: Arc<Writers>,
    /// The operator's own ensemble, in which its replicas elect the leader.
    pub own: Arc<Ensemble>,
    /// The ensembles that locks name in its place.
    pub others: Arc<Others>,
    /// Locks that have to be looked at, in whichever ensemble.
    pub changes: Arc<Changes>,
    /// The pods behind locks.
    pub pods: Arc<Pods>,
    /// The Secrets with the namespaces' identities.
    pub secrets: Arc<Secrets>,
    /// Where machines may be known to be off: what is known of them, and how nodes are read.
    pub fencing: Option<(Arc<Fencing>, Nodes)>,
    /// Namespaces whose identity has to be looked at.
    pub namespaces: Changes<String>,
    /// The reconciliations under way, by namespace.
    pub turns: Turns,
    /// What is counted.
    pub metrics: Metrics,
    /// The tick of the operator's ensemble, as configured.
    pub tick_time: Duration,
    /// What is remembered of each lock.
    pub memories: Memories,
    /// When this replica was started.
    pub started: Instant,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}
