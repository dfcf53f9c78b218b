//! The calls of ZooKeeper that the lock uses, behind two small traits.
//!
//! A [`Connection`] is *one* TCP connection of a session to *one* server. It never reconnects by itself: once it is
//! gone, every call on it fails with [`EnsembleError::ConnectionLoss`], and [`Ensemble::attach`] takes the session to
//! another server. So every caller notices a reconnection, and an answer always belongs to the session and the server
//! that it was asked for.

use std::future::Future;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::ticket::SessionKey;
use crate::token::FencingToken;

/// Why a call failed: all the errors with which ZooKeeper may answer the calls of this module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnsembleError {
    /// The connection is gone; the server may or may not have carried out the request.
    #[error("the connection to the server was lost")]
    ConnectionLoss,
    /// The server could not be reached, or did not answer in time.
    #[error("{server} could not be reached: {reason}")]
    Unreachable {
        /// The server as the user wrote it.
        server: String,
        /// How the attempt ended.
        reason: String,
    },
    /// The server and we do not agree on TLS, most likely because of a certificate.
    #[error("{server} {reason}")]
    Untrusted {
        /// The server as the user wrote it.
        server: String,
        /// What the server does. The message puts it after the server's name.
        reason: String,
    },
    /// The session is over, and with it all its ephemeral nodes.
    #[error("the session has expired")]
    SessionExpired,
    /// Another server serves the session now; the caller has an old connection.
    #[error("the session was moved to another server")]
    SessionMoved,
    /// The server was overloaded, and did not carry the request out (`RequestThrottler`).
    #[error("the server is overloaded and did not carry the request out")]
    Throttled,
    /// The server does not accept the credentials.
    #[error("the server refused the credentials")]
    AuthFailed,
    /// The credentials give no right to do this.
    #[error("no right to do this")]
    NoAuth,
    /// The node, or its parent, does not exist.
    #[error("the node does not exist")]
    NoNode,
    /// The node that was to be created exists.
    #[error("the node exists already")]
    NodeExists,
    /// The node does not have the expected version.
    #[error("another client changed the node")]
    BadVersion,
    /// The node still has children.
    #[error("the node has children")]
    NotEmpty,
    /// Anything else; a retry would not help.
    #[error("{0}")]
    Other(String),
}

impl EnsembleError {
    /// Whether the error leaves the request open. The caller has to try it again on a new connection of the same
    /// session. The server may or may not have carried it out, unless the error is [`Self::Throttled`].
    pub(crate) fn is_connection(&self) -> bool {
        matches!(
            self,
            Self::ConnectionLoss | Self::SessionMoved | Self::Throttled | Self::Unreachable { .. }
        )
    }
}

/// Why a [`Connection`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The connection is gone; the session may live.
    Disconnected,
    /// A server reported that the session is over.
    Expired,
    /// A server refused the credentials.
    AuthFailed,
}

/// A session as its server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The number that ephemeral nodes carry as their owner.
    pub id: i64,
    /// The negotiated session timeout: the T of the lease.
    pub timeout: Duration,
}

/// A node that was just created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Its whole path, with the sequence number.
    pub path: String,
    /// The transaction that created it.
    pub czxid: FencingToken,
    /// The session with which it ends; 0 for a persistent node.
    pub owner: i64,
}

/// A node's data, and its metadata in ZooKeeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its data; empty if nobody wrote any.
    pub data: Vec<u8>,
    /// The transaction that created it.
    pub czxid: FencingToken,
    /// How many times its data were changed.
    pub version: i32,
    /// The session with which it ends; 0 for a persistent node.
    pub owner: i64,
}

/// Identifies the node at a path, and its data: a client that finds the same one again has missed no change. A node
/// that was deleted and created anew has version 0 again, but another transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incarnation {
    /// The transaction that created the node.
    pub czxid: FencingToken,
    /// How many times its data were changed.
    pub version: i32,
}

/// The children of a node, and the node that they belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Children {
    /// Their names, in no order.
    pub names: Vec<String>,
    /// The node itself, at that moment.
    pub parent: Incarnation,
    /// The session with which the node ends; 0 for a persistent node.
    pub owner: i64,
}

impl Node {
    /// Identifies this node and its data.
    pub fn incarnation(&self) -> Incarnation {
        Incarnation {
            czxid: self.czxid,
            version: self.version,
        }
    }

    /// Whether it ends with a session.
    pub fn is_ephemeral(&self) -> bool {
        is_ephemeral(self.owner)
    }
}

/// Whether a node of this owner ends with a session. The server removes a container when it is empty; the least number
/// in the owner's place marks one (`EphemeralType.CONTAINER_EPHEMERAL_OWNER`).
pub fn is_ephemeral(owner: i64) -> bool {
    owner != 0 && owner != i64::MIN
}

/// The first event of a one-time watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// The data were changed, the node was created, or the children that are watched are others.
    Changed,
    /// The node was deleted.
    Deleted,
    /// The connection ended: there will be no event.
    Disconnected,
}

/// One operation of a [`Connection::multi`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Require that a node exists.
    Check {
        /// Path of the node, below the chroot.
        path: String,
    },
    /// Set a node's data.
    SetData {
        /// Path of the node, below the chroot.
        path: String,
        /// The new data.
        data: Vec<u8>,
        /// The version that it has to have; `None` if any.
        version: Option<i32>,
    },
    /// Create a persistent node.
    Create {
        /// Path of the node, below the chroot. Its parent has to exist.
        path: String,
        /// The data that it begins with.
        data: Vec<u8>,
    },
    /// Delete a node, which must have no children.
    Delete {
        /// Path of the node, below the chroot.
        path: String,
        /// The version that its data have to have; `None` if any.
        version: Option<i32>,
    },
}

/// Which operation of a [`Connection::multi`] failed, and why. None of its operations was carried out, unless the error
/// is about the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {index}: {error}")]
pub struct MultiError {
    /// Index of the failed operation; 0 when the whole request failed.
    pub index: usize,
    /// Why it failed.
    pub error: EnsembleError,
}

/// Result of a call.
pub type EnsembleResult<T> = Result<T, EnsembleError>;

/// One TCP connection of one session to one server.
///
/// * Servers carry out calls in the order in which they were made (`ZooKeeper`: "FIFO client order").
/// * The request leaves when the method is called or when its future is first polled.
/// * Dropping a connection closes only the TCP connection: the session and its nodes stay.
pub trait Connection: Send + Sync + 'static {
    /// Returns the session, as this server has confirmed it.
    fn session(&self) -> Session;

    /// Waits until the connection is gone. After that, no earlier answer of a call may count as a renewal: it may have
    /// come over a connection that replaced this one.
    fn closed(&self) -> impl Future<Output = Closed> + Send + 'static;

    /// Whether the connection was there at every moment since it was made. Look at it *after* an answer to know that the
    /// answer came over this very connection.
    fn is_intact(&self) -> bool;

    /// Creates an ephemeral node whose name is `prefix` and the next sequence number, if the data of its parent have
    /// this version; otherwise returns [`EnsembleError::BadVersion`].
    fn create_contender(
        &self,
        prefix: &str,
        data: Vec<u8>,
        version: i32,
    ) -> impl Future<Output = EnsembleResult<Created>> + Send + 'static;

    /// Creates a persistent node and its missing parents. Succeeds if the node exists.
    fn make_path(
        &self,
        path: &str,
        data: Vec<u8>,
    ) -> impl Future<Output = EnsembleResult<()>> + Send + 'static;

    /// Returns the names of a node's children, and the node; [`EnsembleError::NoNode`] if it is missing.
    fn children(&self, path: &str) -> impl Future<Output = EnsembleResult<Children>> + Send + 'static;

    /// Returns the data of a node, and its metadata; [`EnsembleError::NoNode`] if it is missing.
    fn node(&self, path: &str) -> impl Future<Output = EnsembleResult<Node>> + Send + 'static;

    /// Returns a node, and a watch for the next change of its data or its deletion.
    fn watch_node(
        &self,
        path: &str,
    ) -> impl Future<Output = EnsembleResult<(Node, impl Future<Output = NodeEvent> + Send + Unpin + 'static)>>
    + Send
    + 'static;

    /// Returns the children of a node, and a watch. The watch reports the next child that comes or goes
    /// ([`NodeEvent::Changed`]), or the deletion of the node itself. A node that never has children, such as an
    /// ephemeral one, can only be deleted. A server reports deletions in their order. The caller needs the right to
    /// read this node, and none to read its children.
    fn watch_children(
        &self,
        path: &str,
    ) -> impl Future<Output = EnsembleResult<(Children, BoxFuture<'static, NodeEvent>)>> + Send + 'static;

    /// Returns a watch for the creation of a node that does not exist ([`NodeEvent::Changed`]); `None` if the node
    /// exists. Newer servers require the right to read an existing node ([`EnsembleError::NoAuth`]), and announce its
    /// creation only to clients with that right.
    fn watch_creation(
        &self,
        path: &str,
    ) -> impl Future<Output = EnsembleResult<Option<BoxFuture<'static, NodeEvent>>>> + Send + 'static;

    /// Sets a node's data if they have this version, and otherwise fails with [`EnsembleError::BadVersion`]; `None` for
    /// any version.
    fn set_data(
        &self,
        path: &str,
        data: Vec<u8>,
        version: Option<i32>,
    ) -> impl Future<Output = EnsembleResult<()>> + Send + 'static;

    /// Carries out all operations or none. This is a quorum write even if it changes nothing: renewals are such writes.
    fn multi(&self, ops: Vec<Op>) -> impl Future<Output = Result<(), MultiError>> + Send + 'static;

    /// Returns the key with which another process can take the session over; `None` if that cannot be found out.
    fn key(&self) -> impl Future<Output = Option<SessionKey>> + Send + 'static;

    /// Takes the contender at this path for that of the session: an identity that arrives later gets rights on it. Call
    /// this for a contender that was created neither over this connection nor over one before it.
    fn adopt(&self, path: &str);

    /// Ends the session, and with it all its ephemeral nodes, at once.
    fn close_session(self) -> impl Future<Output = ()> + Send + 'static;
}

/// The servers, and how to get a [`Connection`] to one of them.
pub trait Ensemble: Send + Sync + 'static {
    /// A connection to one of the servers.
    type Connection: Connection;

    /// Returns how many servers the user named.
    fn servers(&self) -> usize;

    /// Returns the name of a server for messages.
    fn server(&self, index: usize) -> String;

    /// Connects to server `index` (below [`Ensemble::servers`]), with the session of `resume`, or
    /// with a new one.
    ///
    /// # Errors
    /// [`EnsembleError::SessionExpired`] when the session to resume is over, or when the server
    /// handed out another one instead (ClickHouse Keeper does);
    /// [`EnsembleError::Unreachable`] after `patience` at the latest;
    /// [`EnsembleError::AuthFailed`].
    fn attach(
        &self,
        index: usize,
        resume: Option<&Self::Connection>,
        patience: Duration,
    ) -> impl Future<Output = EnsembleResult<Self::Connection>> + Send;

    /// Connects to server `index`, with a session that another process began. The server is asked for this session
    /// timeout.
    ///
    /// # Errors
    /// As [`Ensemble::attach`].
    fn resume(
        &self,
        index: usize,
        session: &SessionKey,
        session_timeout: Duration,
        patience: Duration,
    ) -> impl Future<Output = EnsembleResult<Self::Connection>> + Send;

    /// Returns what is permanently wrong, if that can be found out. Called when no server could be reached and there is
    /// no session that could be lost.
    fn objection(&self) -> impl Future<Output = Option<EnsembleError>> + Send {
        async { None }
    }
}
