//! The true events, for tests to compare with what clients believe.

use std::time::Duration;

/// An event at the leader, with its true time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time since the world began.
    pub at: Duration,
    /// The event.
    pub happened: Happened,
}

/// An event at the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A session began.
    Opened {
        /// Its number.
        session: i64,
    },
    /// The leader ended a session, because it was silent or by force.
    Expired {
        /// Its number.
        session: i64,
    },
    /// A client ended its session.
    Closed {
        /// Its number.
        session: i64,
    },
    /// A node was created.
    Created {
        /// Its path.
        path: String,
        /// The session that owns it; 0 for a persistent node.
        session: i64,
        /// The transaction.
        zxid: i64,
    },
    /// A node's data were changed.
    Changed {
        /// Its path.
        path: String,
    },
    /// A node was deleted.
    Deleted {
        /// Its path.
        path: String,
    },
}
