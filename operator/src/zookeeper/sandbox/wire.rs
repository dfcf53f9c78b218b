//! The messages on the pipes between the operator and a session's process: each is a length of four bytes, and that
//! much JSON.

use std::io::{self, Read, Write};
use std::sync::Arc;

use lockkeeper_crds::lock::Reason;
use lockkeeper_lock::{CleanRelease, ContenderData, FencingToken, YieldRequest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::zookeeper::nodes::{Ending, TreeError};
use crate::zookeeper::queues::picture::{Contender, Queue};

/// The longest message that the operator takes, in bytes, and the most that it remembers of one ensemble: some
/// five thousand contenders.
pub(crate) const LONGEST: usize = 4 << 20;

/// What a contender costs beside its text, in bytes.
const PER_CONTENDER: usize = 400;

/// Longest data of a contender, in bytes: ours need some 400. Ten or twenty of them come into a status.
const LARGEST_CONTENDER: usize = 4 << 10;

/// Longest sentence that is taken from the process, in bytes: errors quote what a server has sent.
const LONGEST_SENTENCE: usize = 512;

/// First message to the process: where the ensemble is, and which identities to use there.
#[derive(Serialize, Deserialize)]
pub struct Hello {
    /// The servers, with the chroot.
    pub connect: String,
    /// Hosts among them whose addresses have to be checked.
    pub unnamed: Vec<String>,
    /// The node below which everything is, with the chroot.
    pub root: String,
    /// The namespace whose locks are there.
    pub namespace: String,
    /// `digest:USER:PASSWORD`.
    pub identities: Vec<String>,
    /// Where the ensemble speaks TLS.
    pub tls: Option<Tls>,
}

/// Certificates, PEM.
#[derive(Serialize, Deserialize)]
pub struct Tls {
    pub(crate) ca: String,
    /// Own certificate and key.
    pub(crate) own: Option<(String, String)>,
}

/// A message with a number, by which an answer refers to its request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Numbered<T> {
    pub(crate) number: u64,
    pub(crate) content: T,
}

/// The requests about a lock of the namespace: the methods of [`crate::zookeeper::client::Way`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// [`crate::zookeeper::nodes::Tree::ensure_lock`]
    Ensure { name: String, identities: Vec<String> },
    /// [`crate::zookeeper::nodes::Tree::agree`]
    Agree {
        name: String,
        identities: Vec<String>,
        agreement: Vec<u8>,
    },
    /// [`crate::zookeeper::nodes::Tree::remove_lock`]
    Remove { name: String },
    /// [`crate::zookeeper::nodes::Tree::remove_contender`]
    RemoveContender {
        name: String,
        contender: String,
        token: FencingToken,
    },
    /// [`crate::zookeeper::nodes::Tree::request_yield`]
    Yield { name: String, request: YieldRequest },
    /// [`crate::zookeeper::nodes::Tree::endings`]
    Endings { name: String, gone: Vec<CleanRelease> },
    /// [`crate::zookeeper::client::Way::left_behind`]
    LeftBehind { user: String },
}

/// An answer to [`Ask`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Ensured { made: usize, rights: usize },
    Agreed,
    Pending { before: Vec<u8> },
    Removed,
    Goes,
    Left { what: String },
    InUse,
    ContenderRemoved { is_gone: bool },
    Requested { is_new: bool },
    Endings { endings: Vec<Ending> },
    Behind { pods: Vec<(String, String)> },
}

/// The answer to a request that failed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Refused {
    /// [`TreeError::Foreign`], with the node.
    Foreign(String),
    /// Anything else, in a sentence.
    Failed(String),
}

/// A message from the process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// No connection, and why.
    Down {
        cause: Cause,
        /// One sentence.
        message: String,
    },
    /// Connected; the queues are being read.
    Reading,
    /// All queues were sent.
    Up {
        session: i64,
        /// The ID of the ensemble, as its two halves.
        id: (u64, u64),
        /// Its tick, if it tells it.
        tick_millis: Option<u64>,
    },
    /// The new state of a lock.
    Queue {
        name: String,
        /// Whether its root is there.
        exists: bool,
        contenders: Vec<Row>,
        /// Why they are not followed, if they are not.
        excess: Option<String>,
    },
    Answer(Numbered<Result<Reply, Refused>>),
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Cause {
    Disconnected,
    CredentialsRefused,
    TlsFailed,
    EnsembleChanged,
}

/// A [`Contender`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) token: FencingToken,
    pub(crate) is_ephemeral: bool,
    pub(crate) foreign: Option<String>,
    pub(crate) data: ContenderData,
}

// === impl Told ===

impl Told {
    pub(crate) fn queue(name: &str, queue: &Queue) -> Self {
        Self::Queue {
            name: name.to_owned(),
            exists: queue.exists,
            contenders: queue.contenders().cloned().map(Row::from).collect(),
            excess: queue.excess().map(ToString::to_string),
        }
    }

    pub(crate) fn down(problem: &Problem) -> Self {
        let cause = match problem.reason {
            Reason::CredentialsRefused => Cause::CredentialsRefused,
            Reason::TlsFailed => Cause::TlsFailed,
            Reason::EnsembleChanged => Cause::EnsembleChanged,
            _ => Cause::Disconnected,
        };
        Self::Down {
            cause,
            message: short(&problem.message),
        }
    }

    /// What it costs the operator to process this message, in bytes.
    pub(crate) fn weight(&self, length: usize) -> usize {
        match self {
            Self::Queue { contenders, .. } => length + PER_CONTENDER * (contenders.len() + 1),
            _ => length + PER_CONTENDER,
        }
    }
}

impl From<Cause> for Reason {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Disconnected => Self::Disconnected,
            Cause::CredentialsRefused => Self::CredentialsRefused,
            Cause::TlsFailed => Self::TlsFailed,
            Cause::EnsembleChanged => Self::EnsembleChanged,
        }
    }
}

// === impl Row ===

impl From<Contender> for Row {
    fn from(contender: Contender) -> Self {
        let Contender {
            name,
            token,
            data,
            is_ephemeral,
            foreign,
        } = contender;
        Self {
            name: name.to_string(),
            token,
            is_ephemeral,
            foreign,
            data: Arc::unwrap_or_clone(data),
        }
    }
}

impl From<Row> for Contender {
    fn from(row: Row) -> Self {
        let Row {
            name,
            token,
            is_ephemeral,
            foreign,
            data,
        } = row;
        Self {
            name: name.into(),
            token,
            data: Arc::new(data),
            is_ephemeral,
            foreign,
        }
    }
}

impl Row {
    /// Whether its data are longer than those of any contender of ours.
    pub(crate) fn is_too_large(&self) -> bool {
        let ContenderData {
            state,
            pod,
            host,
            revision,
            since,
            stop_budget_millis: _,
            lease_millis: _,
            took_over,
            survivors: _,
        } = &self.data;
        let replaced = took_over.iter();
        let pods = pod
            .iter()
            .chain(replaced.clone().filter_map(|of| of.pod.as_ref()));
        let pod = pods.flat_map(|pod| [&pod.namespace, &pod.name, &pod.uid, &pod.node]);
        let replaced = replaced.map(|of| &of.contender);
        let texts = [&self.name, state]
            .into_iter()
            .chain(&self.foreign)
            .chain(pod)
            .chain(replaced);
        let length: usize = texts
            .chain(host)
            .chain(revision)
            .chain(since)
            .map(String::len)
            .sum();
        length > LARGEST_CONTENDER
    }
}

// === impl Refused ===

impl From<TreeError> for Refused {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Foreign { path } => Self::Foreign(path),
            error => Self::Failed(short(&error.to_string())),
        }
    }
}

impl From<Refused> for TreeError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Foreign(path) => Self::Foreign { path: short(&path) },
            Refused::Failed(message) => Self::Away(short(&message)),
        }
    }
}

/// The beginning of a sentence.
pub(crate) fn short(sentence: &str) -> String {
    let end = sentence.floor_char_boundary(LONGEST_SENTENCE);
    sentence[..end].to_owned()
}

/// A message, with its length before it.
pub(crate) fn frame(message: &impl Serialize) -> Vec<u8> {
    let content = serde_json::to_vec(message).expect("strings and numbers");
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &content].concat()
}

/// Reads a message, of any length, from the operator that started this process: no other sender may be trusted so.
/// `None` at the end.
///
/// # Errors
/// When it is not a message.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let mut content = Vec::new();
    from.take(u32::from_be_bytes(length).into())
        .read_to_end(&mut content)?;
    Ok(Some(serde_json::from_slice(&content)?))
}

/// Writes a message.
///
/// # Errors
/// When the other end is gone.
pub(crate) fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&frame(message))?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_the_same_on_the_other_side_of_the_pipe() {
        let data = br#"{"v":1,"state":"held","pod":{"namespace":"a","name":"b","uid":"c","node":"d"},"stopBudgetMillis":7}"#;
        let ours = Contender::read("_c_x-lock-0000000001", FencingToken(7), true, data);
        let foreign = Contender::read("c-lock-0000000002", FencingToken(8), false, b"10.0.0.7");
        let queue = Queue::of(true, vec![ours, foreign]);
        let mut pipe = frame(&Told::queue("report", &queue));
        pipe.extend(frame(&Told::Reading));
        let mut pipe = pipe.as_slice();
        let Some(Told::Queue {
            name,
            exists,
            contenders,
            excess: None,
        }) = read(&mut pipe).unwrap()
        else {
            panic!("it is a queue")
        };
        let contenders = contenders.into_iter().map(Contender::from);
        assert_eq!((name.as_str(), Queue::of(exists, contenders)), ("report", queue));
        assert!(matches!(read(&mut pipe).unwrap(), Some(Told::Reading)));
        assert!(read::<Told>(&mut pipe).unwrap().is_none());
    }

    #[test]
    fn what_a_server_says_is_cut_short_wherever_it_could_come_into_a_status() {
        let long = "ä".repeat(1000);
        assert_eq!(short(&long).len(), LONGEST_SENTENCE);
        let row = |name: &str| Row::from(Contender::read(name, FencingToken(1), true, b""));
        assert!(!row("_c_x-lock-0000000001").is_too_large());
        assert!(row(&"x".repeat(LARGEST_CONTENDER + 1)).is_too_large());
    }
}
