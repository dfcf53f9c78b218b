//! Our place in the queue.

use std::collections::HashMap;
use std::time::Duration;

use super::command::Reply;
use super::past::Past;
use super::seen::Seen;
use crate::ensemble::Incarnation;
use crate::queue::Ahead;
use crate::record::{Survivors, TookOver};
use crate::takeover::TakeoverLease;
use crate::token::FencingToken;

/// Our own contender, and what is known about those before it.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) token: FencingToken,
    /// The lock root under whose agreement it was created; `None` when it was created without one that admits us.
    pub(super) agreed: Option<Incarnation>,
    /// The contenders before us; `None` if the children have to be listed.
    pub(super) ahead: Option<Ahead>,
    pub(super) is_listing: bool,
    /// The contenders that are watched.
    pub(super) watched: HashMap<String, Seen>,
    /// The contenders that may still be writing. For `lockDelay`.
    pub(super) past: Box<Past>,
    pub(super) is_our_turn: bool,
    /// Whether the lease was made to last until renewals extend it. A waiter further back does not renew, so little of
    /// its lease may be left when its turn comes.
    pub(super) is_renewing: bool,
    pub(super) is_held: bool,
    /// Whether its data say that it holds, or held.
    pub(super) is_marked: bool,
    /// Since when it waits, or holds; for people.
    pub(super) since: String,
    /// Until when no other contender can have taken its place; `None` if only the session decides.
    pub(super) lease: Option<TakeoverLease>,
    /// Whether its data may state L. From then on it has to renew by changing them.
    pub(super) states_lease: bool,
    /// Whose place it has taken.
    pub(super) took_over: Option<TookOver>,
    /// The survivors that its data were last to state.
    pub(super) said_survivors: Option<Survivors>,
    /// Whether its data may state others: a write that changes them is under way, or its answer was lost.
    pub(super) is_said_unsure: bool,
    /// Whose place we have asked to take, until we know whether that was carried out: through a lost connection, too.
    pub(super) taking: Option<TookOver>,
    pub(super) is_own_watched: bool,
    /// Whether that watch is in place over this connection: we then hear of a deletion of our own node before any later
    /// one.
    pub(super) is_own_seen: bool,
    pub(super) predecessor_unclean: bool,
    /// Another process has created it and left it to us, and we have not held it yet. What runs under it may run now, so
    /// only our owner gives it up.
    pub(super) is_left: bool,
}

/// What is known of a contender that another process has left to us.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    /// L, which its data may state. Later writes state it as well, whatever our own times are: until they are
    /// acknowledged it may be replaced after this silence.
    pub(super) lease: Option<Duration>,
}

impl Place {
    /// Whether it is that of a contender that another process has left to us, and that we have not held yet.
    pub(super) fn is_left(&self) -> bool {
        match self {
            Self::Out => false,
            Self::Entering { left, .. } => left.is_some(),
            Self::In(entry) => entry.is_left,
        }
    }
}

/// Our state in relation to the queue.
pub(super) enum Place {
    Out,
    /// The contender is being created; `is_uncertain` when it may exist already.
    Entering {
        prefix: String,
        is_asked: bool,
        is_uncertain: bool,
        /// Another process has created it, and left it to us.
        left: Option<Left>,
    },
    In(Box<Entry>),
}

pub(super) struct Releasing {
    pub(super) queue_again: bool,
    pub(super) is_asked: bool,
    /// Whether the contender held, so that the control node has to record its release.
    pub(super) was_held: bool,
    pub(super) replies: Vec<Reply<()>>,
}
