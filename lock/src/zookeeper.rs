//! The real ensemble: `zookeeper-client` behind the traits of [`crate::ensemble`].
//!
//! Its client reconnects by itself, reports only the newest of its states, and adopts whatever
//! session a server hands out. So one client serves one [`Connection`] here, to one server, and is
//! ended at its first disconnection; see docs/safety.md, "What the client must not do".

mod address;
mod connection;
mod executor;
mod tick;

use std::time::Duration;

use zookeeper_client as zk;

pub use address::{ConnectString, InvalidConnectString, ServerAddress};
pub use connection::ZooKeeperConnection;
pub use tick::tick_time;

use crate::ensemble::{Connection, Ensemble, EnsembleError, EnsembleResult};
use executor::Executor;

/// Who we are to the ensemble.
#[derive(Clone)]
pub enum Credentials {
    /// Nobody: nodes are open to the world.
    Anonymous,
    /// A digest identity, `user:password`: nodes are open to it alone, and to nobody else.
    Digest(String),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Digest(_) => "Digest(…)",
        })
    }
}

/// How to reach a ZooKeeper ensemble.
#[derive(Clone, Debug)]
pub struct ZooKeeper {
    connect: ConnectString,
    session_timeout: Duration,
    credentials: Credentials,
    #[cfg(feature = "tls")]
    tls: Option<zk::TlsOptions>,
}

impl ZooKeeper {
    /// The servers of `connect`, with a session timeout to ask for.
    pub fn new(connect: ConnectString, session_timeout: Duration) -> Self {
        Self {
            connect,
            session_timeout,
            credentials: Credentials::Anonymous,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// The same with credentials.
    pub fn with_credentials(self, credentials: Credentials) -> Self {
        Self { credentials, ..self }
    }

    /// The same with TLS for servers named `tcp+tls://…`. All is PEM: the authorities that sign the
    /// servers' certificates (the machine's own are not looked at), and the client's certificate
    /// chain and key, if it has them.
    ///
    /// # Errors
    /// When one of them cannot be read as PEM.
    #[cfg(feature = "tls")]
    pub fn with_tls(self, ca: &str, identity: Option<(&str, &str)>) -> EnsembleResult<Self> {
        let bad = |what: &str, error: zk::Error| EnsembleError::Other(format!("{what}: {error}"));
        let mut options = zk::TlsOptions::new()
            .with_pem_ca(ca)
            .map_err(|error| bad("authorities", error))?;
        if let Some((certificate, key)) = identity {
            options = options
                .with_pem_identity(certificate, key)
                .map_err(|error| bad("client certificate and key", error))?;
        }
        Ok(Self {
            tls: Some(options),
            ..self
        })
    }

    fn connector(&self) -> zk::Connector {
        // Eager: one server is one attempt.
        let connector = zk::Client::connector()
            .with_fail_eagerly()
            .with_session_timeout(self.session_timeout);
        #[cfg(feature = "tls")]
        let connector = match &self.tls {
            Some(tls) => connector.with_tls(tls.clone()),
            None => connector,
        };
        match &self.credentials {
            Credentials::Anonymous => connector,
            Credentials::Digest(identity) => connector.with_auth("digest", identity.as_bytes()),
        }
    }

    fn acls(&self) -> zk::Acls<'static> {
        match self.credentials {
            Credentials::Anonymous => zk::Acls::anyone_all(),
            // "auth": whoever made the node, by all its identities. World has no right at all.
            Credentials::Digest(_) => zk::Acls::creator_all(),
        }
    }
}

impl Ensemble for ZooKeeper {
    type Connection = ZooKeeperConnection;

    fn servers(&self) -> usize {
        self.connect.servers().len()
    }

    fn server(&self, index: usize) -> String {
        self.connect.servers()[index].to_string()
    }

    async fn attach(
        &self,
        index: usize,
        resume: Option<&Self::Connection>,
        patience: Duration,
    ) -> EnsembleResult<Self::Connection> {
        let server = &self.connect.servers()[index];
        let unreachable = |reason: String| EnsembleError::Unreachable {
            server: server.to_string(),
            reason,
        };
        let mut connector = self.connector();
        if let Some(resume) = resume {
            resume.retire();
            // The negotiated timeout, not the one asked for: it is negotiated anew.
            connector = connector
                .with_session(resume.info().clone())
                .with_session_timeout(resume.session().timeout);
        }
        let target = server.to_string();
        let executor = Executor::default();
        // Detached: dropping the client closes no session.
        let connecting = executor.enter(connector.clone().with_detached().connect(&target));
        let client = match tokio::time::timeout(patience, connecting).await {
            Ok(Ok(client)) => client,
            Ok(Err(zk::Error::SessionExpired)) => return Err(EnsembleError::SessionExpired),
            Ok(Err(zk::Error::AuthFailed)) => return Err(EnsembleError::AuthFailed),
            Ok(Err(zk::Error::BadArguments(reason))) => {
                return Err(EnsembleError::Other((*reason).to_owned()));
            }
            Ok(Err(error)) => return Err(unreachable(error.to_string())),
            Err(_) => return Err(unreachable(format!("no answer within {patience:?}"))),
        };
        // Taken before the client's task runs for the first time: no change of state is missed.
        let chroot = self.connect.chroot().to_owned();
        let connection = ZooKeeperConnection::new(client, executor, connector, target, chroot, self.acls());
        if resume.is_some_and(|resume| resume.session().id != connection.session().id) {
            // The old session is gone, whatever this server calls the new one.
            return Err(EnsembleError::SessionExpired);
        }
        Ok(connection)
    }
}

impl From<zk::Error> for EnsembleError {
    fn from(error: zk::Error) -> Self {
        match error {
            zk::Error::ConnectionLoss | zk::Error::ClientClosed | zk::Error::Timeout | zk::Error::NoHosts => {
                Self::ConnectionLoss
            }
            zk::Error::SessionExpired => Self::SessionExpired,
            zk::Error::SessionMoved => Self::SessionMoved,
            zk::Error::AuthFailed => Self::AuthFailed,
            zk::Error::NoAuth => Self::NoAuth,
            zk::Error::NoNode => Self::NoNode,
            zk::Error::NodeExists => Self::NodeExists,
            zk::Error::BadVersion => Self::BadVersion,
            zk::Error::NotEmpty => Self::NotEmpty,
            // An I/O error ends the connection; the client wraps it.
            zk::Error::Custom(_) => Self::ConnectionLoss,
            other => Self::Other(other.to_string()),
        }
    }
}
