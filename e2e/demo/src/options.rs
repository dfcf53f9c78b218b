//! The options of the demonstration, and its endings.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[derive(Clone, Debug)]
pub struct Options {
    pub act: Act,
    /// A further file for the picture.
    pub svg: Option<PathBuf>,
    /// The directory for picture, records and logs; `demo` in the build's target directory by default.
    pub results: Option<PathBuf>,
    /// Use loopback addresses, with which connections cannot be cut.
    pub loopback: bool,
    /// Set it to interrupt the demonstration.
    pub interrupted: Arc<AtomicBool>,
}

/// A part of the demonstration, complete in itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// `lockkeeper run`, without Kubernetes.
    Run,
    /// Pods on two nodes.
    Kubernetes,
}

/// How the demonstration ended; by then all that it started is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// No two applications ran at the same moment, and tokens grew.
    Clean,
    /// The checker has found a violation.
    Violated,
    Interrupted,
}
