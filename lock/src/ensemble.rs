//! The calls of ZooKeeper that the lock uses, behind two small traits.
//!
//! A [`Connection`] is *one* TCP connection of a session to *one* server. It never reconnects by
//! itself: once it is gone, every call on it fails with [`EnsembleError::ConnectionLoss`], and the
//! session is taken to another server by [`Ensemble::attach`]. So nobody can miss a reconnection,
//! and an answer always belongs to the session and the server that it was asked for.

use std::future::Future;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::token::FencingToken;

/// Why a call failed. A closed set: what ZooKeeper may answer to the calls of this module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnsembleError {
    /// The connection is gone; whether the request was carried out is not known.
    #[error("the connection to the server was lost")]
    ConnectionLoss,
    /// The server could not be reached, or did not answer in time.
    #[error("{server} could not be reached: {reason}")]
    Unreachable {
        /// The server as the user wrote it.
        server: String,
        /// What the attempt ended with.
        reason: String,
    },
    /// The server and we do not agree on TLS: on a certificate, most likely.
    #[error("{server} {reason}")]
    Untrusted {
        /// The server as the user wrote it.
        server: String,
        /// What it does: reads on behind its name.
        reason: String,
    },
    /// The session is over, and with it all its ephemeral nodes.
    #[error("the session has expired")]
    SessionExpired,
    /// The session is now served by another server; whoever asked has an old connection.
    #[error("the session was moved to another server")]
    SessionMoved,
    /// The server had too much to do, and did not carry the request out (`RequestThrottler`).
    #[error("the server is overloaded and did not carry the request out")]
    Throttled,
    /// The server does not accept the credentials.
    #[error("the server refused the credentials")]
    AuthFailed,
    /// The credentials give no right to this.
    #[error("no right to do this")]
    NoAuth,
    /// The node, or its parent, does not exist.
    #[error("the node does not exist")]
    NoNode,
    /// The node exists.
    #[error("the node exists already")]
    NodeExists,
    /// The node has another version than asked for.
    #[error("the node was changed by somebody else")]
    BadVersion,
    /// The node still has children.
    #[error("the node has children")]
    NotEmpty,
    /// Anything else; not repaired by trying again.
    #[error("{0}")]
    Other(String),
}

impl EnsembleError {
    /// Whether this says nothing about the request, which is to be tried again on a new connection of the
    /// same session. It may or may not have been carried out, unless it was [`Self::Throttled`].
    pub fn is_connection(&self) -> bool {
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
    /// A server said that the session is over.
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
    /// The session that it will end with; 0 for a persistent node.
    pub owner: i64,
}

/// A node's data and what ZooKeeper knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its data.
    pub data: Vec<u8>,
    /// The transaction that created it.
    pub czxid: FencingToken,
    /// How many times its data were changed.
    pub version: i32,
    /// The session that it will end with; 0 for a persistent node.
    pub owner: i64,
}

/// Which node it is that has a path, and which data: who finds the same again has missed nothing. A node that
/// was deleted and made anew begins with version 0 again, but by another transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incarnation {
    /// The transaction that created the node.
    pub czxid: FencingToken,
    /// How many times its data were changed.
    pub version: i32,
}

/// The children of a node, and whose they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Children {
    /// Their names, in no order.
    pub names: Vec<String>,
    /// The node itself, at that moment.
    pub parent: Incarnation,
}

impl Node {
    /// Which node this is, with which data.
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

/// Whether a node of this owner ends with a session. A container, which the server removes when it is empty, is
/// marked by the least number in the owner's place (`EphemeralType.CONTAINER_EPHEMERAL_OWNER`).
pub fn is_ephemeral(owner: i64) -> bool {
    owner != 0 && owner != i64::MIN
}

/// What a one-time data watch saw first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// The data were changed, or the node was created.
    Changed,
    /// The node was deleted.
    Deleted,
    /// The connection ended: there will be no event.
    Disconnected,
}

/// One operation of a [`Connection::multi`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// The node exists.
    Check {
        /// Its path.
        path: String,
    },
    /// Set a node's data.
    SetData {
        /// Its path.
        path: String,
        /// The new data.
        data: Vec<u8>,
        /// The version that it must have.
        version: i32,
    },
    /// Create a persistent node.
    Create {
        /// Its path.
        path: String,
        /// Its data.
        data: Vec<u8>,
    },
    /// Delete a node.
    Delete {
        /// Its path.
        path: String,
    },
}

/// Which operation of a [`Connection::multi`] failed, and why. Nothing of it was carried out,
/// unless the error is about the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {index}: {error}")]
pub struct MultiError {
    /// Index of the failed operation; 0 when the whole request failed.
    pub index: usize,
    /// Why.
    pub error: EnsembleError,
}

/// Result of a call.
pub type EnsembleResult<T> = Result<T, EnsembleError>;

/// One TCP connection of one session to one server.
///
/// * Calls are carried out in the order in which they were made (`ZooKeeper`: "FIFO client order").
/// * The request leaves when the method is called or when its future is first polled.
/// * Dropping a connection closes the TCP connection and nothing else: no session, no node.
pub trait Connection: Send + Sync + 'static {
    /// The session, as confirmed by this server.
    fn session(&self) -> Session;

    /// Waits until the connection is gone. Once it has answered, no earlier answer of a call may
    /// still be counted as a renewal: it may have come over a connection that replaced this one.
    fn closed(&self) -> impl Future<Output = Closed> + Send + 'static;

    /// Whether the connection has not been gone for a moment since it was made. Look at it *after*
    /// an answer to know that the answer came over this very connection.
    fn is_intact(&self) -> bool;

    /// Creates an ephemeral node whose name is `prefix` and the next sequence number, if the data of its
    /// parent have this version; else it answers [`EnsembleError::BadVersion`].
    fn create_contender(
        &self,
        prefix: &str,
        data: Vec<u8>,
        version: i32,
    ) -> impl Future<Output = EnsembleResult<Created>> + Send + 'static;

    /// Creates a persistent node and its missing parents; it is no error when it exists.
    fn make_path(
        &self,
        path: &str,
        data: Vec<u8>,
    ) -> impl Future<Output = EnsembleResult<()>> + Send + 'static;

    /// The children.
    fn children(&self, path: &str) -> impl Future<Output = EnsembleResult<Children>> + Send + 'static;

    /// A node.
    fn node(&self, path: &str) -> impl Future<Output = EnsembleResult<Node>> + Send + 'static;

    /// A node, and a watch for the first change of its data or its deletion after that.
    fn watch_node(
        &self,
        path: &str,
    ) -> impl Future<Output = EnsembleResult<(Node, impl Future<Output = NodeEvent> + Send + Unpin + 'static)>>
    + Send
    + 'static;

    /// A watch for the creation of a node that does not exist ([`NodeEvent::Changed`]); nothing for one
    /// that does. Newer servers want the right to read a node that is there
    /// ([`EnsembleError::NoAuth`]), and tell nobody else of its creation.
    fn watch_creation(
        &self,
        path: &str,
    ) -> impl Future<Output = EnsembleResult<Option<BoxFuture<'static, NodeEvent>>>> + Send + 'static;

    /// Sets a node's data.
    fn set_data(
        &self,
        path: &str,
        data: Vec<u8>,
        version: Option<i32>,
    ) -> impl Future<Output = EnsembleResult<()>> + Send + 'static;

    /// Carries out all operations or none. A quorum write even when it changes nothing, which is
    /// what renewals are made of.
    fn multi(&self, ops: Vec<Op>) -> impl Future<Output = Result<(), MultiError>> + Send + 'static;

    /// Ends the session, and with it all its ephemeral nodes, at once.
    fn close_session(self) -> impl Future<Output = ()> + Send + 'static;
}

/// The servers, and how to get a [`Connection`] to one of them.
pub trait Ensemble: Send + Sync + 'static {
    /// A connection to one of the servers.
    type Connection: Connection;

    /// How many servers the user named.
    fn servers(&self) -> usize;

    /// Name of a server for messages.
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

    /// Asked when no server could be reached and there is no session to lose: what is wrong for good,
    /// if that can be found out.
    fn objection(&self) -> impl Future<Output = Option<EnsembleError>> + Send {
        async { None }
    }
}
