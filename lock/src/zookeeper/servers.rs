//! The servers of an ensemble, and how to connect to one of them.

use std::time::Duration;

use zookeeper_client as zk;

use super::address::{ConnectString, ServerAddress};
use super::connection::ZooKeeperConnection;
use super::credentials::Credentials;
use super::executor::Executor;
use super::four_letter_word;
use super::guarded::AddressGuard;
use super::handshake;
use super::rights::{self, Reader, Rights};
#[cfg(feature = "tls")]
use super::tls::{self, InvalidTls};
use crate::ensemble::{Connection, Ensemble, EnsembleError, EnsembleResult};
use crate::ticket::SessionKey;

/// How long a server may take to give its reason for refusing us: a Java server on a busy machine needs about a second
/// for its first handshake.
#[cfg(feature = "tls")]
const PATIENCE_FOR_OBJECTIONS: Duration = Duration::from_secs(3);

/// How to reach a ZooKeeper ensemble.
#[derive(Clone, Debug)]
pub struct ZooKeeper {
    pub(super) connect: ConnectString,
    pub(super) session_timeout: Duration,
    pub(super) credentials: Credentials,
    pub(super) readers: Vec<Reader>,
    pub(super) guard: Option<AddressGuard>,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<tls::Tls>,
}

impl ZooKeeper {
    /// The servers of `connect`, with the session timeout to request.
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

    /// The same with credentials, where [`Self::new`] has [`Credentials::Anonymous`].
    pub fn with_credentials(self, credentials: Credentials) -> Self {
        Self { credentials, ..self }
    }

    /// The same with further identities that may read the contenders, whichever client created them.
    pub fn with_readers(self, readers: Vec<Reader>) -> Self {
        Self { readers, ..self }
    }

    /// The same with a guard, which checks the addresses behind the servers' names before an
    /// [`Onlooker`](super::Onlooker) connects.
    pub fn with_guard(self, guard: AddressGuard) -> Self {
        Self {
            guard: Some(guard),
            ..self
        }
    }

    /// The same with TLS for servers named `tcp+tls://…`. Everything is PEM: the authorities that sign the servers'
    /// certificates (the authorities of the machine do not count), and the client's certificate chain and key, if it
    /// has them.
    ///
    /// # Errors
    /// When one of them cannot be used, or a server's name cannot be the name in a certificate.
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

    /// The server to connect to, if its addresses are allowed.
    pub(super) async fn guarded(&self, server: &ServerAddress) -> EnsembleResult<ServerAddress> {
        match &self.guard {
            Some(guard) => guard.resolve(server).await,
            None => Ok(server.clone()),
        }
    }

    /// The answer to a four-letter word, if there is one.
    pub(super) async fn ask(&self, server: &ServerAddress, word: &[u8]) -> Option<Vec<u8>> {
        let server = &self.guarded(server).await.ok()?;
        if !server.tls {
            return four_letter_word::ask(server, word).await.ok();
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.ask(server, word).await.ok();
        }
        None
    }

    pub(super) fn connector(&self, identities: &[String]) -> zk::Connector {
        // Eager: each server gets one attempt.
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
        let mut identities = self.credentials.identities();
        if let Some(resume) = resume {
            resume.retire();
            // Keep all identities that have rights on the contender, even if they were removed since.
            rights::join(&mut identities, resume.identities());
        }
        // The negotiated timeout, not the requested one: it is negotiated anew.
        let session = resume.map(|resume| (resume.info().clone(), resume.session().timeout));
        let connection = self.open(index, session, &identities, patience).await?;
        connection.follow(identities, self.credentials.followed(), resume);
        Ok(connection)
    }

    async fn resume(
        &self,
        index: usize,
        session: &SessionKey,
        session_timeout: Duration,
        patience: Duration,
    ) -> EnsembleResult<Self::Connection> {
        // After that time the ensemble has ended the session of a keeper that does not come back.
        let session = handshake::make(session, session_timeout).await.map_err(|error| {
            tracing::warn!(%error, "Cannot go on with the session of another process; it is left to expire");
            EnsembleError::SessionExpired
        })?;
        let identities = self.credentials.identities();
        let connection = self
            .open(index, Some((session, session_timeout)), &identities, patience)
            .await?;
        connection.follow(identities, self.credentials.followed(), None);
        Ok(connection)
    }

    /// Why the TLS servers refuse us, or we refuse them; `None` if one of them accepts us.
    #[cfg(feature = "tls")]
    async fn objection(&self) -> Option<EnsembleError> {
        let tls = self.tls.as_ref()?;
        let mut objection = None;
        for server in self.connect.servers().iter().filter(|server| server.tls) {
            if self.guarded(server).await.is_err() {
                continue;
            }
            // `srvr`: the only word that is on by default.
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

impl ZooKeeper {
    /// Connects to a server, with this session and the timeout to ask for, or with a new session.
    async fn open(
        &self,
        index: usize,
        session: Option<(zk::SessionInfo, Duration)>,
        identities: &[String],
        patience: Duration,
    ) -> EnsembleResult<ZooKeeperConnection> {
        let server = &self.connect.servers()[index];
        let unreachable = |reason: String| EnsembleError::Unreachable {
            server: server.to_string(),
            reason,
        };
        let mut connector = self.connector(identities);
        let wanted = session.as_ref().map(|(session, _)| session.id());
        if let Some((session, timeout)) = session {
            connector = connector.with_session(session).with_session_timeout(timeout);
        }
        let target = server.to_string();
        let executor = Executor::default();
        // Detached: dropping the client does not close the session.
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
        // Taken before the client's task first runs, so it sees every change of state.
        let chroot = self.connect.chroot().to_owned();
        let rights = Rights::new(&self.credentials, &self.readers);
        let connection = ZooKeeperConnection::new(client, executor, connector, target, chroot, rights);
        if wanted.is_some_and(|wanted| wanted.0 != connection.session().id) {
            // The old session is gone: this server has created a new one.
            return Err(EnsembleError::SessionExpired);
        }
        Ok(connection)
    }
}
