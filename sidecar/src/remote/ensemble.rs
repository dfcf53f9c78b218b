//! A connection to the ensemble for questions. Whatever other clients have written there is read within bounds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper_daemon::exit::{Exit, Failure};
use lockkeeper_lock::ensemble::{Ensemble as _, EnsembleError};
use lockkeeper_lock::zookeeper::{Credentials, Onlooker, ZooKeeper};
use tokio::sync::watch;

use crate::args::EnsembleArgs;

/// As a keeper asks for: the client waits two fifths of it for an answer (zookeeper-client 0.11), and a slow ensemble is to
/// be seen too. The session ends so long after this process.
const SESSION_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a server may take to accept a connection, or to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest list of children that is read, in bytes: as for the operator, some 80,000 of our contenders.
const LONGEST_LIST: usize = 4 << 20;

/// Most children that are listed over the connection in use, which reads answers of any length: each name may have
/// nearly 1 MB (`jute.maxbuffer`).
const FEW: i32 = 16;

/// A node.
pub(super) struct Node {
    /// Its data; empty if they are longer than was asked for, or may not be read.
    pub(super) data: Vec<u8>,
    /// Whether we may read its data.
    pub(super) is_readable: bool,
    /// None if we may not read it. Servers before 3.9.3 tell it to every client (ZOOKEEPER-2590).
    pub(super) stat: Option<zookeeper_client::Stat>,
}

/// One connection, below the chroot of the connect string.
pub(super) struct Ensemble {
    pub(super) connection: Onlooker,
    chroot: String,
    /// An answer has not come within [`PATIENCE`].
    is_late: AtomicBool,
    /// The last list of children: its node, the last change of the list (`pzxid`), and the names. A long list costs a
    /// session of its own.
    last: Mutex<Option<(String, i64, Vec<String>)>>,
}

impl Ensemble {
    /// Connects to the first server that accepts us, beginning with any.
    pub(super) async fn connect(args: EnsembleArgs) -> Result<Self, Failure> {
        let zookeeper = zookeeper(args)?;
        let servers = zookeeper.connect_string().servers().len();
        let chroot = zookeeper.connect_string().chroot().to_owned();
        let first = fastrand::usize(..servers);
        let mut refusal = None;
        for index in (first..servers).chain(0..first) {
            match zookeeper.onlooker(index, PATIENCE).await {
                Ok(connection) => {
                    let last = Mutex::default();
                    return Ok(Self {
                        connection,
                        chroot,
                        is_late: AtomicBool::new(false),
                        last,
                    });
                }
                Err(error @ EnsembleError::AuthFailed) => return Err(failure(&error, "the ensemble")),
                Err(error) => refusal = Some(error),
            }
        }
        if let Some(objection) = zookeeper.objection().await {
            return Err(failure(&objection, "cannot connect to the ensemble"));
        }
        let refusal = refusal.map_or_else(String::new, |error| format!("; the last one: {error}"));
        Err(Failure::unavailable(format!(
            "no server of --connect {} answers{refusal}",
            zookeeper.connect_string()
        )))
    }

    /// The path of the servers.
    pub(super) fn whole(&self, path: &str) -> String {
        match (self.chroot.as_str(), path) {
            ("", path) => path.to_owned(),
            (chroot, "/") => chroot.to_owned(),
            (chroot, path) => format!("{chroot}{path}"),
        }
    }

    /// The changes of a node and of all below it, from now on.
    pub(super) async fn watch(&self, path: &str) -> Result<zookeeper_client::PersistentWatcher, Failure> {
        let whole = self.whole(path);
        let watching = async {
            let mode = zookeeper_client::AddWatchMode::PersistentRecursive;
            Ok(self.connection.watch(&whole, mode).await?)
        };
        let watcher = self.answer(watching).await;
        watcher.map_err(|error| failure(&error, &format!("cannot watch {path}")))
    }

    /// A node; `None` if there is none. Data of more than `longest` bytes are not read.
    pub(super) async fn node(&self, path: &str, longest: usize) -> Result<Option<Node>, EnsembleError> {
        self.answer(async {
            let whole = self.whole(path);
            let unreadable = |stat| {
                Ok(Some(Node {
                    data: Vec::new(),
                    is_readable: false,
                    stat,
                }))
            };
            let stat = match self.connection.check_stat(&whole).await {
                Ok(Some(stat)) => stat,
                Ok(None) => return Ok(None),
                Err(zookeeper_client::Error::NoAuth) => return unreadable(None),
                Err(error) => return Err(error.into()),
            };
            let is_short =
                |length: i32| usize::try_from(length).is_ok_and(|length| (1..=longest).contains(&length));
            let (data, stat) = if is_short(stat.data_length) {
                match self.connection.get_data(&whole).await {
                    Ok(node) => node,
                    Err(zookeeper_client::Error::NoAuth) => return unreadable(Some(stat)),
                    Err(zookeeper_client::Error::NoNode) => return Ok(None),
                    Err(error) => return Err(error.into()),
                }
            } else {
                (Vec::new(), stat)
            };
            Ok(Some(Node {
                data: if data.len() <= longest { data } else { Vec::new() },
                is_readable: true,
                stat: Some(stat),
            }))
        })
        .await
    }

    /// The names of a node's children; `None` if there is no node.
    pub(super) async fn children(&self, path: &str) -> Result<Option<Vec<String>>, EnsembleError> {
        let whole = self.whole(path);
        let stat = self.answer(async { Ok(self.connection.check_stat(&whole).await?) });
        let Some(stat) = stat.await? else {
            return Ok(None);
        };
        let listed = match stat.num_children {
            0 => return Ok(Some(Vec::new())),
            ..=FEW => {
                let listing = async { Ok(self.connection.list_children(&whole).await?) };
                return match self.answer(listing).await {
                    Err(EnsembleError::NoNode) => Ok(None),
                    listed => listed.map(Some),
                };
            }
            _ => match self.known(path, stat.pzxid) {
                Some(names) => return Ok(Some(names)),
                None => self.connection.list_within(&whole, LONGEST_LIST, PATIENCE).await,
            },
        };
        match listed {
            Ok(Some(names)) => {
                *self.last() = Some((path.to_owned(), stat.pzxid, names.clone()));
                Ok(Some(names))
            }
            Ok(None) => Err(EnsembleError::Other(format!(
                "the names of its children have more than {LONGEST_LIST} bytes together"
            ))),
            Err(EnsembleError::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The names of the last long list, if it is still so.
    fn known(&self, path: &str, pzxid: i64) -> Option<Vec<String>> {
        let last = self.last();
        let (of, at, names) = last.as_ref()?;
        (of == path && *at == pzxid).then(|| names.clone())
    }

    fn last(&self) -> MutexGuard<'_, Option<(String, i64, Vec<String>)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an answer, within [`PATIENCE`].
    pub(super) async fn answer<T>(
        &self,
        answer: impl Future<Output = Result<T, EnsembleError>>,
    ) -> Result<T, EnsembleError> {
        let late = |_| {
            self.is_late.store(true, Ordering::Relaxed);
            EnsembleError::Other(format!("the server does not answer within {PATIENCE:?}"))
        };
        tokio::time::timeout(PATIENCE, answer).await.map_err(late)?
    }

    /// Whether no change was missed, and each answer has come in time. A server that is cut off, or whose machine has
    /// crashed, is silent for a while before the connection counts as lost.
    pub(super) fn is_intact(&self) -> bool {
        self.connection.is_intact() && !self.is_late.load(Ordering::Relaxed)
    }
}

/// Why something cannot be asked or written, with what it is.
pub(super) fn failure(error: &EnsembleError, of: &str) -> Failure {
    let exit = match error {
        EnsembleError::AuthFailed | EnsembleError::NoAuth | EnsembleError::Untrusted { .. } => Exit::Refused,
        _ => Exit::Unavailable,
    };
    let remedy = match error {
        EnsembleError::NoAuth => ": give --auth-file with an identity that has it",
        _ => "",
    };
    Failure::new(exit, format!("{of}: {error}{remedy}"))
}

/// The servers of the command line.
fn zookeeper(args: EnsembleArgs) -> Result<ZooKeeper, Failure> {
    let settings = args.check()?;
    let mut zookeeper = ZooKeeper::new(settings.connect, SESSION_TIMEOUT);
    if let Some(credentials) = settings.credentials {
        let (_, identities) = watch::channel(credentials.identities().to_vec());
        zookeeper = zookeeper.with_credentials(Credentials::Digests(identities));
    }
    #[cfg(feature = "tls")]
    let zookeeper = settings.tls.apply(zookeeper)?;
    Ok(zookeeper)
}
