//! What the errors of `zookeeper-client` mean.

use zookeeper_client as zk;

use crate::ensemble::{Closed, EnsembleError};

impl From<zk::Error> for EnsembleError {
    fn from(error: zk::Error) -> Self {
        match error {
            zk::Error::ConnectionLoss | zk::Error::ClientClosed | zk::Error::Timeout | zk::Error::NoHosts => {
                Self::ConnectionLoss
            }
            zk::Error::SessionExpired => Self::SessionExpired,
            zk::Error::SessionMoved => Self::SessionMoved,
            zk::Error::Throttled => Self::Throttled,
            zk::Error::AuthFailed => Self::AuthFailed,
            zk::Error::NoAuth => Self::NoAuth,
            zk::Error::NoNode => Self::NoNode,
            zk::Error::NodeExists => Self::NodeExists,
            zk::Error::BadVersion => Self::BadVersion,
            zk::Error::NotEmpty => Self::NotEmpty,
            // An I/O error ends the connection; the client wraps it. A leader says that it cannot marshal a request when it
            // fails at one for any reason of its own, such as a session that another client is ending at that moment
            // (`PrepRequestProcessor.pRequest`).
            zk::Error::Custom(_) | zk::Error::MarshallingError => Self::ConnectionLoss,
            // Persistent watches came with 3.6.0 (ZOOKEEPER-1416); nothing else that is asked is younger than 3.5.
            zk::Error::Unimplemented => Self::Other(
                "the server does not know persistent watches: ZooKeeper 3.6 or newer is needed".to_owned(),
            ),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<zk::SessionState> for Closed {
    fn from(state: zk::SessionState) -> Self {
        match state {
            zk::SessionState::Expired => Self::Expired,
            zk::SessionState::AuthFailed => Self::AuthFailed,
            _ => Self::Disconnected,
        }
    }
}
