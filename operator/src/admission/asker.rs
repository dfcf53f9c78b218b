//! On whose behalf others are asked.

use lockkeeper_daemon::places::Source;

/// Longest name of a namespace (DNS label, RFC 1123), in bytes. A longer name is not one.
const LONGEST_NAMESPACE: usize = 63;

/// The caller on whose behalf a registry or the API server is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Asker {
    namespace: String,
    /// Where the review came from, unless it was surely an API server.
    source: Option<Source>,
}

impl Asker {
    /// A namespace, and where the review came from, unless it was surely an API server.
    pub fn new(namespace: &str, source: Option<Source>) -> Self {
        let namespace = match namespace {
            long if long.len() > LONGEST_NAMESPACE => "",
            namespace => namespace,
        };
        Self {
            namespace: namespace.to_owned(),
            source,
        }
    }

    /// Where the review came from, unless it was surely an API server.
    pub(crate) fn source(&self) -> Option<Source> {
        self.source
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }
}
