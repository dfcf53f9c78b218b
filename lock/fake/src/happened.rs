//! The true events, for tests to compare with what clients believe.

use std::time::Duration;

/// An event at the leader, with its true time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time since the world began.
    pub at: Duration,
    pub happened: Happened,
}

/// An event at the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    Opened {
        session: i64,
    },
    /// The leader ended a session, because it was silent or by force.
    Expired {
        session: i64,
    },
    /// A client ended its session.
    Closed {
        session: i64,
    },
    Created {
        path: String,
        /// The session that owns it; 0 for a persistent node.
        session: i64,
        zxid: i64,
    },
    Changed {
        path: String,
    },
    Deleted {
        path: String,
    },
}
