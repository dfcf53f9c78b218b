//! The configuration of an ensemble.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::java::Release;

/// The files with which the servers speak TLS. They read them at their first TLS connection, so a test can
/// write them when it knows the servers' addresses.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Certificate and key (PEM) of all servers.
    pub key_store: PathBuf,
    /// Certificates (PEM) of the authorities that clients' certificates must come from.
    pub trust_store: PathBuf,
}

#[derive(Clone, Debug)]
pub struct Config {
    /// How many servers at the start; a single one is a standalone server without a quorum.
    pub servers: usize,
    /// Their release at the start; [`Ensemble::upgrade`](super::Ensemble::upgrade) changes it.
    pub release: Release,
    /// ZooKeeper's `tickTime`, in whole milliseconds. Session timeouts are 2 to 20 of them.
    pub tick: Duration,
    /// Ticks without a message after which a leader and a follower give each other up.
    pub sync_limit: u32,
    /// Ticks that a follower may take to copy the leader's data after its start.
    pub init_limit: u32,
    /// Further lines of `zoo.cfg`.
    pub extra: Vec<(String, String)>,
    /// Further arguments of the Java machine, such as `-Dzookeeper.…`.
    pub java_arguments: Vec<String>,
    /// Also speak TLS, and demand a certificate from every client.
    pub tls: Option<TlsFiles>,
    /// Servers may come and go ([`Ensemble::add`](super::Ensemble::add)): ZooKeeper's `reconfigEnabled`. Needs a
    /// quorum.
    pub reconfigurable: bool,
    /// The leader's transaction counter can be set
    /// ([`Ensemble::set_counter`](super::Ensemble::set_counter)). Needs [`Release::V3_9`] and a quorum.
    pub settable_counter: bool,
    /// Use loopback addresses even if the kernel allows namespaces. Then connections cannot be cut.
    pub loopback: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            servers: 3,
            release: Release::of_this_run(),
            tick: Duration::from_secs(1),
            sync_limit: 10,
            init_limit: 10,
            extra: Vec::new(),
            java_arguments: Vec::new(),
            tls: None,
            reconfigurable: false,
            settable_counter: false,
            loopback: false,
        }
    }
}

/// The server with a counter that can be set; see there for the reason (`CounterServer.java`).
pub(super) const COUNTER_SERVER: &str = "lockkeeper.CounterServer";

/// The file in a server's directory with the counter that is to be set.
pub(super) const COUNTER_FILE: &str = "counter";

/// What [`COUNTER_SERVER`] needs, for a server with this directory.
pub(super) fn counter_arguments(directory: &Path) -> [String; 2] {
    [
        // All servers have to accept the gap.
        "-Dzookeeper.test.allowDiscontinuousProposals=true".to_owned(),
        format!("-Dlockkeeper.counter={}", directory.join(COUNTER_FILE).display()),
    ]
}
