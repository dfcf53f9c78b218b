//! The real ensemble: `zookeeper-client` behind the traits of [`crate::ensemble`].
//!
//! Its client reconnects by itself, reports only the newest of its states, and adopts whatever
//! session a server hands out. So one client serves one [`Connection`] here, to one server, and is
//! ended at its first disconnection; see docs/safety.md, "What the client must not do".

mod address;
mod connection;
mod executor;
mod guarded;
mod listing;
mod onlooker;
mod rights;
mod tick;
#[cfg(feature = "tls")]
mod tls;

use std::time::Duration;

use tokio::sync::watch;
use zookeeper_client as zk;

pub use address::{ConnectString, InvalidConnectString, ServerAddress};
pub use connection::ZooKeeperConnection;
pub use guarded::AddressGuard;
pub use onlooker::Onlooker;
pub use rights::{InvalidReader, Reader};
#[cfg(feature = "fuzzing")]
pub(crate) use tick::parse as tick;
#[cfg(feature = "tls")]
pub use tls::InvalidTls;

use crate::ensemble::{Connection, Ensemble, EnsembleError, EnsembleResult};
use executor::Executor;
use rights::Rights;

/// How long a server may take to say what it has against us: a Java server on a busy machine needs
/// about a second for its first handshake.
#[cfg(feature = "tls")]
const PATIENCE_FOR_OBJECTIONS: Duration = Duration::from_secs(3);

/// Who we are to the ensemble.
#[derive(Clone)]
pub enum Credentials {
    /// Nobody: nodes are open to the world.
    Anonymous,
    /// A digest identity, `user:password`: nodes are open to it alone, and to nobody else.
    Digest(String),
    /// Several of them at once: nodes are open to each. What is added later is shown to the servers over
    /// connections in use too, and contenders are opened to it; what goes is kept until the session ends.
    Digests(watch::Receiver<Vec<String>>),
}

impl Credentials {
    /// The identities at this moment.
    fn identities(&self) -> Vec<String> {
        match self {
            Self::Anonymous => Vec::new(),
            Self::Digest(identity) => vec![identity.clone()],
            Self::Digests(identities) => identities.borrow().clone(),
        }
    }

    /// To wait for more.
    fn followed(&self) -> Option<watch::Receiver<Vec<String>>> {
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

/// How to reach a ZooKeeper ensemble.
#[derive(Clone, Debug)]
pub struct ZooKeeper {
    connect: ConnectString,
    session_timeout: Duration,
    credentials: Credentials,
    readers: Vec<Reader>,
    guard: Option<AddressGuard>,
    #[cfg(feature = "tls")]
    tls: Option<tls::Tls>,
}

impl ZooKeeper {
    /// The servers of `connect`, with a session timeout to ask for.
    pub fn new(connect: ConnectString, session_timeout: Duration) -> Self {
        Self {
            connect,
            session_timeout,
            credentials: Credentials::Anonymous,
            readers: Vec::new(),
            guard: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// The same with credentials.
    pub fn with_credentials(self, credentials: Credentials) -> Self {
        Self { credentials, ..self }
    }

    /// The same with others who may read the contenders, whoever made them.
    pub fn with_readers(self, readers: Vec<Reader>) -> Self {
        Self { readers, ..self }
    }

    /// The same, where the addresses behind the servers' names are looked at before an [`Onlooker`] connects.
    pub fn with_guard(self, guard: AddressGuard) -> Self {
        Self {
            guard: Some(guard),
            ..self
        }
    }

    /// The same with TLS for servers named `tcp+tls://…`. All is PEM: the authorities that sign the
    /// servers' certificates (the machine's own are not looked at), and the client's certificate
    /// chain and key, if it has them.
    ///
    /// # Errors
    /// When one of them cannot be used, or a server's name is none that a certificate could be for.
    #[cfg(feature = "tls")]
    pub fn with_tls(self, ca: &str, identity: Option<(&str, &str)>) -> Result<Self, InvalidTls> {
        for server in self.connect.servers().iter().filter(|server| server.tls) {
            tls::server_name(server)?;
        }
        Ok(Self {
            tls: Some(tls::Tls::new(ca, identity)?),
            ..self
        })
    }

    /// The answer to a four-letter word, if there is one.
    async fn ask(&self, server: &ServerAddress, word: &[u8]) -> Option<Vec<u8>> {
        let server = &self.guarded(server).await.ok()?;
        if !server.tls {
            return tick::ask(server, word).await.ok();
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.ask(server, word).await.ok();
        }
        None
    }

    fn connector(&self, identities: &[String]) -> zk::Connector {
        // Eager: one server is one attempt.
        let connector = zk::Client::connector()
            .with_fail_eagerly()
            .with_session_timeout(self.session_timeout);
        #[cfg(feature = "tls")]
        let connector = match &self.tls {
            Some(tls) => connector.with_tls(tls.options()),
            None => connector,
        };
        identities.iter().fold(connector, |connector, identity| {
            connector.with_auth("digest", identity.as_bytes())
        })
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
        let mut identities = self.credentials.identities();
        if let Some(resume) = resume {
            resume.retire();
            // Those that the contender is open to, whatever has come since.
            rights::join(&mut identities, resume.identities());
        }
        let mut connector = self.connector(&identities);
        if let Some(resume) = resume {
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
        let rights = Rights::new(&self.credentials, &self.readers);
        let connection = ZooKeeperConnection::new(client, executor, connector, target, chroot, rights);
        connection.follow(identities, self.credentials.followed(), resume);
        if resume.is_some_and(|resume| resume.session().id != connection.session().id) {
            // The old session is gone, whatever this server calls the new one.
            return Err(EnsembleError::SessionExpired);
        }
        Ok(connection)
    }

    /// What the servers that speak TLS have against us, or we against them; nothing when one of them
    /// accepts us.
    #[cfg(feature = "tls")]
    async fn objection(&self) -> Option<EnsembleError> {
        let tls = self.tls.as_ref()?;
        let mut objection = None;
        for server in self.connect.servers().iter().filter(|server| server.tls) {
            if self.guarded(server).await.is_err() {
                continue;
            }
            // `srvr`: the only word that is never switched off unless somebody takes care to.
            match tokio::time::timeout(PATIENCE_FOR_OBJECTIONS, tls.ask(server, b"srvr")).await {
                Ok(Ok(_)) => return None,
                Ok(Err(tls::Trouble::Lasting(reason))) => {
                    objection.get_or_insert(EnsembleError::Untrusted {
                        server: server.to_string(),
                        reason,
                    });
                }
                Ok(Err(tls::Trouble::Passing(reason))) => {
                    tracing::debug!(%server, reason, "Server not reached over TLS");
                }
                Err(_) => tracing::debug!(%server, "No answer over TLS"),
            }
        }
        objection
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
            zk::Error::Throttled => Self::Throttled,
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
