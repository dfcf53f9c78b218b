//! How far we are on the way into the queue.

use super::Entry;
use super::entering::Entering;

pub(super) enum Place {
    /// We have no contender.
    Out,
    /// Neither, and something has to change before one can be created.
    Barred,
    /// It is being created, or looked for.
    Entering(Entering),
    In(Box<Entry>),
}

impl Place {
    pub(super) fn entry(&self) -> Option<&Entry> {
        match self {
            Self::In(entry) => Some(entry),
            _ => None,
        }
    }

    pub(super) fn entry_mut(&mut self) -> Option<&mut Entry> {
        match self {
            Self::In(entry) => Some(entry),
            _ => None,
        }
    }

    pub(super) fn is_in(&self) -> bool {
        self.entry().is_some()
    }

    /// Whether no contender exists, and none is asked for.
    pub(super) fn is_certainly_out(&self) -> bool {
        match self {
            Self::Out | Self::Barred => true,
            Self::Entering(entering) => entering.is_new(),
            Self::In(_) => false,
        }
    }

    pub(super) fn is_held(&self) -> bool {
        self.entry().is_some_and(|entry| entry.tenure.is_held())
    }

    /// Whether it is that of a contender that another process has left to us, and that we have not held yet.
    pub(super) fn is_left(&self) -> bool {
        match self {
            Self::Out | Self::Barred => false,
            Self::Entering(entering) => entering.ticket().is_some(),
            Self::In(entry) => entry.tenure.is_left(),
        }
    }

    /// Whether it is our turn when those that hold now have left.
    pub(super) fn is_heir(&self) -> bool {
        self.entry().is_some_and(|entry| entry.line.is_heir())
    }

    /// The connection is gone, and with it all requests.
    pub(super) fn disconnected(&mut self) {
        match self {
            Self::Out => {}
            Self::Barred => *self = Self::Out,
            Self::Entering(entering) => entering.disconnected(),
            Self::In(entry) => entry.disconnected(),
        }
    }
}
