//! Lists the contenders in the queue.

use std::sync::Arc;

use super::Task;
use super::answer::Answer;
use super::command::{self, Reply};
use crate::clock::Clock;
use crate::ensemble::{Ensemble, EnsembleError, EnsembleResult};
use crate::error::LockError;
use crate::participant::{self, Participant};

/// Who waits for a list of the contenders.
#[derive(Default)]
pub(super) struct Queries {
    waiting: Vec<Reply<Vec<Participant>>>,
    /// Whether the list was asked for, over the present connection.
    is_asked: bool,
}

impl Queries {
    pub(super) fn push(&mut self, reply: Reply<Vec<Participant>>) {
        self.waiting.push(reply);
    }

    pub(super) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether to ask for the list now.
    fn begin(&mut self) -> bool {
        self.is_awaited() && !std::mem::replace(&mut self.is_asked, true)
    }

    /// There is no answer: the list has to be asked for again.
    pub(super) fn disconnected(&mut self) {
        self.is_asked = false;
    }

    pub(super) fn answer(&mut self, list: &Result<Vec<Participant>, LockError>) {
        self.is_asked = false;
        command::answer(self.waiting.drain(..), list);
    }
}

impl<E: Ensemble, C: Clock> Task<E, C> {
    pub(super) fn ask_participants(&mut self, connection: &Arc<E::Connection>) {
        if !self.queries.begin() {
            return;
        }
        let list = participant::list(
            Arc::clone(connection),
            self.options.root.clone(),
            self.options.mode,
        );
        self.pending.ask_link(list, Answer::Participants);
    }

    pub(super) fn participants(&mut self, result: EnsembleResult<Vec<Participant>>) {
        let answer = match result {
            Ok(list) => Ok(list),
            Err(EnsembleError::Throttled) => return self.overloaded(),
            // Asks again over the next connection.
            Err(error) if error.is_connection() => return self.queries.disconnected(),
            Err(EnsembleError::SessionExpired) => return self.session_expired(),
            Err(error) => {
                let action = format!("cannot list {}", self.options.root);
                Err(LockError::Refused { action, error })
            }
        };
        self.queries.answer(&answer);
    }
}
