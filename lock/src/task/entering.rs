//! A contender that is being created.

use crate::ticket::Ticket;

/// Whether our contender exists, before an answer has told.
pub(super) struct Entering {
    /// Its name up to the number.
    prefix: String,
    origin: Origin,
    /// Whether it is being created or looked for, over the present connection.
    is_asked: bool,
}

enum Origin {
    /// It does not exist.
    New,
    /// Its creation was asked for and not answered.
    Uncertain,
    /// Another process has created it, and left it to us.
    Left(Ticket),
}

impl Entering {
    /// A contender that is to be created.
    pub(super) fn new(prefix: String) -> Self {
        Self {
            prefix,
            origin: Origin::New,
            is_asked: false,
        }
    }

    /// One that another process has left to us. Its creation was acknowledged: if it is not there any more, it is gone.
    pub(super) fn left(prefix: String, ticket: Ticket) -> Self {
        Self {
            prefix,
            origin: Origin::Left(ticket),
            is_asked: false,
        }
    }

    /// Whether it was never asked for.
    pub(super) fn is_new(&self) -> bool {
        matches!(self.origin, Origin::New) && !self.is_asked
    }

    /// What the process before us has left.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        match self.origin {
            Origin::Left(ticket) => Some(ticket),
            Origin::New | Origin::Uncertain => None,
        }
    }

    /// The name with which to ask, and whether the contender may exist, so that it has to be looked for first; once
    /// over each connection.
    pub(super) fn begin(&mut self) -> Option<(String, bool)> {
        let may_exist = !matches!(self.origin, Origin::New);
        let is_asked = std::mem::replace(&mut self.is_asked, true);
        (!is_asked).then(|| (self.prefix.clone(), may_exist))
    }

    /// The server did not carry out what it was asked.
    pub(super) fn not_carried_out(&mut self) {
        self.is_asked = false;
    }

    /// The connection is gone before an answer.
    pub(super) fn disconnected(&mut self) {
        let was_asked = std::mem::take(&mut self.is_asked);
        if was_asked && matches!(self.origin, Origin::New) {
            self.origin = Origin::Uncertain;
        }
    }
}
