//! Answers and events that the task waits for.

use futures_util::future::BoxFuture;

use super::requests::agreement::{Entered, NotEntered};
use super::requests::attach::Attached;
use super::requests::find::Found;
use super::requests::strangers::Listed;
use crate::clock::BootInstant;
use crate::ensemble::{Children, Closed, EnsembleError, EnsembleResult, MultiError, Node, NodeEvent};
use crate::participant::Participant;
use crate::ticket::SessionKey;

/// An answer or event that the task waits for, always of the present connection.
pub(super) enum Answer<Connection> {
    Attached(Result<Attached<Connection>, EnsembleError>),
    Closed(Closed),
    Key(Option<SessionKey>),
    Entered {
        sent: BootInstant,
        result: Result<Entered, NotEntered>,
    },
    Found(Box<EnsembleResult<Option<Found>>>),
    Unbarred(NodeEvent),
    Renewed {
        sent: BootInstant,
        /// Whether it changed our contender's data, which state L.
        states_lease: bool,
        result: Result<(), MultiError>,
    },
    Listed(EnsembleResult<Listed>),
    Predecessor {
        name: String,
        result: EnsembleResult<(Node, BoxFuture<'static, NodeEvent>)>,
    },
    PredecessorEvent {
        name: String,
        event: NodeEvent,
    },
    /// The end of one that we may not read.
    UnreadableEvent {
        name: String,
        result: EnsembleResult<NodeEvent>,
    },
    TookOver {
        sent: BootInstant,
        /// The version on whose condition it was deleted.
        version: i32,
        result: Result<(), MultiError>,
    },
    /// Our own contender, after a takeover whose answer was lost.
    OwnData {
        sent: BootInstant,
        result: EnsembleResult<Node>,
    },
    Own(EnsembleResult<(Children, BoxFuture<'static, NodeEvent>)>),
    OwnEvent(NodeEvent),
    Control {
        reading: u64,
        result: EnsembleResult<(Node, BoxFuture<'static, NodeEvent>)>,
    },
    ControlEvent(NodeEvent),
    Recorded {
        sent: BootInstant,
        is_settlement: bool,
        result: Result<(), MultiError>,
    },
    Marked {
        sent: BootInstant,
        result: EnsembleResult<()>,
    },
    Deleted {
        sent: BootInstant,
        result: EnsembleResult<()>,
    },
    Participants(EnsembleResult<Vec<Participant>>),
}
