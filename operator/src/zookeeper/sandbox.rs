//! A session with an ensemble that a lock names, in a process of its own.
//!
//! The servers of such an ensemble are not trusted, and `zookeeper-client` does not protect itself from them: it
//! accepts a frame of up to 2 GiB (`record.rs`, the length of `&[u8]` is held against nothing), and it reserves
//! memory for as many items as a list says it has (`Vec::with_capacity(n)`), also in a frame of a few bytes. A limit
//! on frames would leave the second, and a queue of a million honest contenders. So the operator limits the memory as
//! a whole: it starts its own program again for each such session, and that process limits itself
//! ([`super::sandboxed`]) before it reads anything. A server can end nothing but that process; then its locks report
//! it, and the operator starts the process again after a while ([`parent`]).
//!
//! The pipes ([`wire`]) carry the controller's requests, and the state of the queues. The operator limits the bytes,
//! contenders and messages that it reads in a second, the time that it waits for an answer, and the number of
//! requests at once. The process gets the credentials of that one ensemble through its pipe, but none of the
//! operator's, and no environment.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use lockkeeper_lock::{Agreement, CleanRelease, FencingToken, YieldRequest};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};

use crate::identity::Identity;
use crate::lock_key::LockKey;
use crate::zookeeper::nodes::{Agreed, Ending, Removal, Repairs, TreeError};

pub(crate) mod parent;
mod process;
pub mod wire;

use wire::{Ask, Refused, Reply};

/// First word of the command line of such a process. It is not for users.
pub const WORD: &str = "ensemble-session";

/// Memory of such a process, in bytes: all that it may write to (`RLIMIT_DATA`). Before it knows a queue 6 MiB are
/// reserved, of which it uses 2; the rest is for queues, of which the operator takes [`wire::LONGEST`].
pub(crate) const MEMORY: u64 = 24 << 20;

/// The session timeout. The session holds no lock: it only has to survive a pause of the operator.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(15);

/// Requests under way at once for one ensemble, and for all of them. A request occupies one of the controller's 64
/// places ([`crate::run`]) until it is answered: half of them are left to the operator's own ensemble.
const AT_ONCE: usize = 8;
static ALL_AT_ONCE: Semaphore = Semaphore::const_new(32);

/// How long an ensemble may take for one request: a few round trips, or one request for every contender of a
/// namespace.
const PATIENCE: Duration = Duration::from_secs(5);

/// The controller's handle of a process with a session.
#[derive(Debug)]
pub struct Session {
    questions: mpsc::Sender<Question>,
    places: Semaphore,
    /// The id of the session in the ensemble.
    id: AtomicI64,
    /// A request was not answered in time.
    is_stuck: Notify,
}

/// A request to the process.
#[derive(Debug)]
pub(crate) struct Question {
    ask: Ask,
    answer: oneshot::Sender<Result<Reply, Refused>>,
}

impl Session {
    /// A session with a process that takes its questions from the receiver.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Question>) {
        let (questions, asked) = mpsc::channel(AT_ONCE);
        let session = Self {
            questions,
            places: Semaphore::new(AT_ONCE),
            id: AtomicI64::default(),
            is_stuck: Notify::new(),
        };
        (session, asked)
    }

    pub(crate) fn id(&self) -> i64 {
        self.id.load(Ordering::Relaxed)
    }

    pub(crate) async fn ensure_lock(
        &self,
        key: &LockKey,
        identities: &[Identity],
    ) -> Result<Repairs, TreeError> {
        let (name, identities) = (key.name.to_string(), lines(identities));
        match self.ask(Ask::Ensure { name, identities }).await? {
            Reply::Ensured { made, rights } => Ok(Repairs { made, rights }),
            _ => Err(unexpected()),
        }
    }

    pub(crate) async fn agree(
        &self,
        key: &LockKey,
        identities: &[Identity],
        agreement: Agreement,
    ) -> Result<Agreed, TreeError> {
        let ask = Ask::Agree {
            name: key.name.to_string(),
            identities: lines(identities),
            agreement: agreement.to_data(),
        };
        match self.ask(ask).await? {
            Reply::Agreed => Ok(Agreed::Done),
            Reply::Pending { before } => Ok(Agreed::Pending {
                before: Agreement::parse(&before).ok().flatten(),
            }),
            _ => Err(unexpected()),
        }
    }

    pub(crate) async fn remove_lock(&self, key: &LockKey) -> Result<Removal, TreeError> {
        let name = key.name.to_string();
        match self.ask(Ask::Remove { name }).await? {
            Reply::Removed => Ok(Removal::Done),
            Reply::Goes => Ok(Removal::Goes),
            Reply::Left { what } => Ok(Removal::Left(wire::short(&what))),
            Reply::InUse => Ok(Removal::InUse),
            _ => Err(unexpected()),
        }
    }

    pub(crate) async fn remove_contender(
        &self,
        key: &LockKey,
        contender: &str,
        token: FencingToken,
    ) -> Result<bool, TreeError> {
        let ask = Ask::RemoveContender {
            name: key.name.to_string(),
            contender: contender.to_owned(),
            token,
        };
        match self.ask(ask).await? {
            Reply::ContenderRemoved { is_gone } => Ok(is_gone),
            _ => Err(unexpected()),
        }
    }

    pub(crate) async fn request_yield(
        &self,
        key: &LockKey,
        request: &YieldRequest,
    ) -> Result<bool, TreeError> {
        let (name, request) = (key.name.to_string(), request.clone());
        match self.ask(Ask::Yield { name, request }).await? {
            Reply::Requested { is_new } => Ok(is_new),
            _ => Err(unexpected()),
        }
    }

    pub(crate) async fn endings(
        &self,
        key: &LockKey,
        gone: &[CleanRelease],
    ) -> Result<Vec<Ending>, TreeError> {
        let (name, gone) = (key.name.to_string(), gone.to_vec());
        match self.ask(Ask::Endings { name, gone }).await? {
            Reply::Endings { endings } => Ok(endings),
            _ => Err(unexpected()),
        }
    }

    pub(crate) async fn left_behind(
        &self,
        namespace: &str,
        user: &str,
    ) -> Result<Vec<(LockKey, String)>, TreeError> {
        let user = user.to_owned();
        let Reply::Behind { pods } = self.ask(Ask::LeftBehind { user }).await? else {
            return Err(unexpected());
        };
        let pods = pods.into_iter();
        Ok(pods
            .map(|(lock, who)| (LockKey::new(namespace, lock), wire::short(&who)))
            .collect())
    }

    async fn ask(&self, ask: Ask) -> Result<Reply, TreeError> {
        let (Ok(_place), Ok(_of_all)) = (self.places.try_acquire(), ALL_AT_ONCE.try_acquire()) else {
            return Err(TreeError::Busy);
        };
        let gone = || TreeError::Away("the session with the ensemble has ended".to_owned());
        let (answer, answered) = oneshot::channel();
        let question = Question { ask, answer };
        self.questions.try_send(question).map_err(|_| gone())?;
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(Ok(answer)) => answer.map_err(TreeError::from),
            Ok(Err(_)) => Err(gone()),
            Err(_) => {
                self.is_stuck.notify_one();
                Err(TreeError::Away(format!(
                    "the ensemble gave no answer within {PATIENCE:?}"
                )))
            }
        }
    }
}

fn lines(identities: &[Identity]) -> Vec<String> {
    identities.iter().map(Identity::to_line).collect()
}

fn unexpected() -> TreeError {
    TreeError::Away("the session with the ensemble gave the answer to another request".to_owned())
}
