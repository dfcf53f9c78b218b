//! Messages between clients and servers.

use lockkeeper_lock::ensemble::{Children, Created, MultiError, Node, Session};

use crate::tree::{Change, Write};

/// A request over a connection.
pub(crate) enum Request {
    Write(Write),
    Children(String),
    Node(String),
    /// A node, and an event later, under the number of the request.
    Watch(String),
    /// Which node there is and what children it has, and an event when these are others, or at its deletion.
    WatchChildren(String),
    /// Whether a node exists, and an event later if it does not.
    WatchCreation(String),
    CloseSession,
    /// Any other request, which an overloaded server refuses.
    Throttled,
}

/// The result of a successful request.
#[derive(Clone)]
pub(crate) enum Outcome {
    Done,
    Created(Created),
    Children(Children),
    Node(Node),
    Missing,
}

pub(crate) type Answer = Result<Outcome, MultiError>;

/// The source of a transaction.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) connection: u64,
    pub(crate) server: usize,
    pub(crate) number: u64,
}

/// One committed transaction.
pub(crate) struct Entry {
    pub(crate) zxid: i64,
    pub(crate) changes: Vec<Change>,
    pub(crate) origin: Option<(Origin, Answer)>,
    /// A session that began, for the connection that requested it, or that ended.
    pub(crate) began: Option<(u64, Session)>,
    pub(crate) ended: Option<i64>,
}

/// A transaction that the leader has yet to commit.
pub(crate) enum Pending {
    Write {
        origin: Origin,
        session: i64,
        write: Write,
    },
    NewSession {
        connection: u64,
        server: usize,
    },
    CloseSession {
        origin: Origin,
        session: i64,
    },
}
