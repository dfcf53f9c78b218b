//! What a reconciliation needs besides its object.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::controller::memory::Memories;
use crate::controller::turns::Turns;
use crate::controller::writer::Writers;
use crate::identity::secrets::Secrets;
use crate::kubernetes::pods::Pods;
use crate::kubernetes::reader::Reader;
use crate::metrics::Metrics;
use crate::node_fencing::{Fencing, Nodes};
use crate::work_queue::WorkQueue;
use crate::zookeeper::ensemble::Ensemble;
use crate::zookeeper::foreign::OtherEnsembles;

/// Shared by all reconciliations.
pub(crate) struct Context {
    pub(crate) reader: Reader,
    /// Hands out writers while this replica leads.
    pub(crate) writers: Arc<Writers>,
    /// The operator's own ensemble, in which its replicas elect the leader.
    pub(crate) own: Arc<Ensemble>,
    /// The ensembles that locks name in its place.
    pub(crate) other_ensembles: Arc<OtherEnsembles>,
    /// Locks that have to be looked at, in whichever ensemble.
    pub(crate) changes: Arc<WorkQueue>,
    pub(crate) pods: Arc<Pods>,
    /// The Secrets with the namespaces' identities.
    pub(crate) secrets: Arc<Secrets>,
    /// Where machines may be known to be off: what is known of them, and how nodes are read.
    pub(crate) fencing: Option<(Arc<Fencing>, Nodes)>,
    /// Namespaces whose identity has to be looked at.
    pub(crate) namespaces: WorkQueue<String>,
    /// The reconciliations under way, by namespace.
    pub(crate) turns: Turns,
    pub(crate) metrics: Metrics,
    /// The tick of the operator's ensemble, as configured.
    pub(crate) tick_time: Duration,
    pub(crate) memories: Memories,
    /// When this replica was started.
    pub(crate) started: Instant,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}
