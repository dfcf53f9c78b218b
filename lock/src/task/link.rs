//! The link to the ensemble: our session, and the connection that serves it.

use std::sync::Arc;

use super::reconnect_pauses::Haste;
use crate::ticket::{SessionKey, Ticket};

/// Our session, as far as the next connection has to know it.
#[derive(Clone)]
pub(super) enum Session<Last> {
    /// It is yet to be begun.
    New,
    /// Another process has begun it, and no server has served it to us.
    Left(Ticket),
    /// It was served to us.
    Ours {
        /// The last connection: the next one continues from it.
        last: Last,
        /// With which another process can take it over, if that is known.
        key: Option<SessionKey>,
    },
}

enum State<Connection> {
    Down {
        session: Session<Arc<Connection>>,
        /// Whether there was more to lose than a place in the queue when the connection was lost.
        is_urgent: bool,
        /// How soon the next connection is wanted, while it is being opened.
        attaching: Option<Haste>,
    },
    Up {
        connection: Arc<Connection>,
        key: Option<SessionKey>,
    },
}

/// Which session is ours, and which connection serves it.
pub(super) struct Link<Connection> {
    state: State<Connection>,
    /// The server that was used last.
    server: usize,
}

impl<Connection> Link<Connection> {
    /// No session yet; `server` is the one before the first to try.
    pub(super) fn new(server: usize) -> Self {
        Self {
            state: State::Down {
                session: Session::New,
                is_urgent: false,
                attaching: None,
            },
            server,
        }
    }

    /// The connection, if there is one.
    pub(super) fn connection(&self) -> Option<&Arc<Connection>> {
        match &self.state {
            State::Up { connection, .. } => Some(connection),
            State::Down { .. } => None,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.connection().is_some()
    }

    /// Whether there is no connection, and none is being opened.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::Down { attaching: None, .. })
    }

    /// Whether no session has been begun, nor is one being begun.
    pub(super) fn is_new(&self) -> bool {
        self.is_idle() && matches!(self.session(), Session::New)
    }

    /// Whether a connection is being opened as it suits the servers.
    pub(super) fn takes_its_time(&self) -> bool {
        matches!(
            self.state,
            State::Down {
                attaching: Some(Haste::Spread(_)),
                ..
            }
        )
    }

    /// Whether the next connection has to come at once.
    pub(super) fn is_urgent(&self) -> bool {
        matches!(self.state, State::Down { is_urgent: true, .. })
    }

    pub(super) fn server(&self) -> usize {
        self.server
    }

    pub(super) fn session(&self) -> Session<Arc<Connection>> {
        match &self.state {
            State::Up { connection, key } => Session::Ours {
                last: Arc::clone(connection),
                key: *key,
            },
            State::Down { session, .. } => session.clone(),
        }
    }

    /// The last connection of our session.
    pub(super) fn last(&self) -> Option<Arc<Connection>> {
        match self.session() {
            Session::Ours { last, .. } => Some(last),
            Session::New | Session::Left(_) => None,
        }
    }

    /// With which another process can take our session over.
    pub(super) fn key(&self) -> Option<SessionKey> {
        match self.session() {
            Session::New => None,
            Session::Left(ticket) => Some(ticket.session),
            Session::Ours { key, .. } => key,
        }
    }

    /// The server has told the key, or that there is none.
    pub(super) fn told_key(&mut self, told: Option<SessionKey>) {
        if let State::Up { key, .. } = &mut self.state {
            *key = told;
        }
    }

    /// Begins with the session of this ticket, in place of a new one: something runs under it.
    pub(super) fn resume(&mut self, ticket: Ticket) {
        if let State::Down {
            session, is_urgent, ..
        } = &mut self.state
        {
            *session = Session::Left(ticket);
            *is_urgent = true;
        }
    }

    /// A connection is being opened.
    pub(super) fn attach(&mut self, haste: Haste) {
        if let State::Down { attaching, .. } = &mut self.state {
            *attaching = Some(haste);
        }
    }

    /// This server serves the session.
    pub(super) fn attached(&mut self, server: usize, connection: Arc<Connection>) {
        let key = self.key();
        self.server = server;
        self.state = State::Up { connection, key };
    }

    /// The connection is gone, or the one that was being opened is not wanted any more.
    pub(super) fn down(&mut self, had_more_to_lose: bool) {
        match &mut self.state {
            State::Down { attaching, .. } => *attaching = None,
            State::Up { .. } => {
                self.state = State::Down {
                    session: self.session(),
                    is_urgent: had_more_to_lose,
                    attaching: None,
                };
            }
        }
    }

    /// The session is over, or left to expire. The next connection begins another one.
    pub(super) fn forget_session(&mut self) {
        self.down(false);
        if let State::Down { session, .. } = &mut self.state {
            *session = Session::New;
        }
    }
}
