//! A cluster whose nodes tests may break.

use super::build::Programs;
use super::launch::Supervisor;
use crate::Host;

/// The parts of a cluster on this machine.
#[derive(Debug)]
pub(crate) struct Own {
    pub programs: Programs,
    pub control_plane: Host,
    pub nodes: Vec<Host>,
    /// `None` when another process has started the cluster.
    pub supervisor: Option<Supervisor>,
}
