//! Our identities in the ensemble.

use tokio::sync::watch;

/// Our identities in the ensemble.
#[derive(Clone)]
pub enum Credentials {
    /// No identity: every client has all rights on our nodes.
    Anonymous,
    /// A digest identity, `user:password`: only this identity has rights on our nodes.
    Digest(String),
    /// Several identities at once: each has rights on our nodes. A connection in use adds a new identity on its server
    /// too, and gives it rights on its contender. A removed identity is kept until the session ends.
    Digests(watch::Receiver<Vec<String>>),
}

impl Credentials {
    /// The identities at this moment.
    pub(super) fn identities(&self) -> Vec<String> {
        match self {
            Self::Anonymous => Vec::new(),
            Self::Digest(identity) => vec![identity.clone()],
            Self::Digests(identities) => identities.borrow().clone(),
        }
    }

    /// A receiver that announces further identities.
    pub(super) fn followed(&self) -> Option<watch::Receiver<Vec<String>>> {
        match self {
            Self::Digests(identities) => Some(identities.clone()),
            Self::Anonymous | Self::Digest(_) => None,
        }
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Digest(_) => "Digest(…)",
            Self::Digests(_) => "Digests(…)",
        })
    }
}
