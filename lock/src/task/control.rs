//! The control node, as we have read it.

use crate::record::Control;

/// What other clients have written for us.
pub(super) struct ControlNode {
    sight: Sight,
    /// Counts the readings: an answer to an earlier one is out of date.
    reading: u64,
}

enum Sight {
    /// It has to be read. What was read last may be out of date.
    Due(Option<Content>),
    /// It is being read.
    Asked(Option<Content>),
    /// It was read, and a watch would tell of a change.
    Current(Content),
}

struct Content {
    control: Control,
    /// `None` if it is missing or gives no right.
    version: Option<i32>,
}

impl ControlNode {
    pub(super) fn unread() -> Self {
        Self {
            sight: Sight::Due(None),
            reading: 0,
        }
    }

    /// Whether a contender is asked to step down, as far as is known.
    pub(super) fn asks(&self, contender: &str) -> bool {
        self.last().is_some_and(|last| last.control.asks(contender))
    }

    /// What it says and its version, unless it may have changed.
    pub(super) fn current(&self) -> Option<(&Control, Option<i32>)> {
        match &self.sight {
            Sight::Current(content) => Some((&content.control, content.version)),
            Sight::Due(_) | Sight::Asked(_) => None,
        }
    }

    /// What it said last, with a version on whose condition it can be written.
    pub(super) fn writable(&self) -> Option<(Control, i32)> {
        let last = self.last()?;
        Some((last.control.clone(), last.version?))
    }

    fn last(&self) -> Option<&Content> {
        match &self.sight {
            Sight::Due(last) | Sight::Asked(last) => last.as_ref(),
            Sight::Current(content) => Some(content),
        }
    }

    /// The number of a reading that is to be asked for now.
    pub(super) fn begin_reading(&mut self) -> Option<u64> {
        let Sight::Due(last) = &mut self.sight else {
            return None;
        };
        self.sight = Sight::Asked(last.take());
        self.reading += 1;
        Some(self.reading)
    }

    /// Whether no later reading was asked for.
    pub(super) fn is_newest(&self, reading: u64) -> bool {
        reading == self.reading
    }

    /// The newest reading shows this. If the node has changed meanwhile, it has to be read again all the same.
    pub(super) fn is_read(&mut self, control: Control, version: Option<i32>) {
        let content = Content { control, version };
        self.sight = match self.sight {
            Sight::Due(_) => Sight::Due(Some(content)),
            Sight::Asked(_) | Sight::Current(_) => Sight::Current(content),
        };
    }

    /// It has changed, or nothing would tell that it has.
    pub(super) fn outdated(&mut self) {
        let last = match std::mem::replace(&mut self.sight, Sight::Due(None)) {
            Sight::Due(last) | Sight::Asked(last) => last,
            Sight::Current(content) => Some(content),
        };
        self.sight = Sight::Due(last);
    }

    /// Our next contender begins without what we know.
    pub(super) fn forget(&mut self) {
        self.sight = Sight::Due(None);
    }
}
