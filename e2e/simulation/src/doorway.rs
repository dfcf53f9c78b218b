//! The path of the socket at which guards connect, whether a keeper listens there or not.

use std::cell::{Cell, RefCell};

use crate::door::Peer;
use crate::mailbox::Mailbox;
use crate::socket::{Breaker, End, pair};

/// The path at which guards connect.
#[derive(Default)]
pub(crate) struct Doorway {
    is_open: Cell<bool>,
    knocks: Mailbox<(Peer, End)>,
    /// The connection of the guard that was accepted last.
    accepted: RefCell<Option<Breaker>>,
}

impl Doorway {
    /// From now on a keeper listens.
    pub(crate) fn open(&self) {
        self.is_open.set(true);
    }

    /// No keeper listens any more.
    pub(crate) fn close(&self) {
        self.is_open.set(false);
        self.knocks.clear();
    }

    pub(crate) async fn knocked(&self) {
        self.knocks.arrived().await;
    }

    pub(crate) fn accept(&self) -> Option<(Peer, End)> {
        self.knocks.take()
    }

    /// Makes this connection the one in use.
    pub(crate) fn let_in(&self, end: &End) {
        self.accepted.replace(Some(end.breaker()));
    }

    /// Breaks the connection in use.
    pub(crate) fn hang_up(&self) {
        if let Some(breaker) = self.accepted.take() {
            breaker.hang_up();
        }
    }

    /// As `connect(2)`: it succeeds before the keeper has accepted.
    pub(crate) fn connect(&self, peer: Peer) -> Option<End> {
        if !self.is_open.get() {
            return None;
        }
        let (ours, keepers) = pair();
        self.knocks.push((peer, keepers));
        Some(ours)
    }
}
