//! Lists the contenders in the queue.

use std::sync::Arc;

use super::answer::Answer;
use super::state::Task;
use crate::clock::Clock;
use crate::ensemble::{Ensemble, EnsembleError, EnsembleResult};
use crate::error::LockError;
use crate::participant::{self, Participant};

impl<E: Ensemble, C: Clock> Task<E, C> {
    pub(super) fn ask_participants(&mut self, connection: &Arc<E::Connection>) {
        if self.queries.is_empty() || std::mem::replace(&mut self.is_listing_participants, true) {
            return;
        }
        let list = participant::list(
            Arc::clone(connection),
            self.options.root.clone(),
            self.options.mode,
        );
        self.ask_link(async move { Answer::Participants(list.await) });
    }

    pub(super) fn participants(&mut self, result: EnsembleResult<Vec<Participant>>) {
        self.is_listing_participants = false;
        let answer = match result {
            Ok(list) => Ok(list),
            Err(EnsembleError::Throttled) => return self.overloaded(),
            // Asks again over the next connection.
            Err(error) if error.is_connection() => return,
            Err(EnsembleError::SessionExpired) => return self.session_expired(),
            Err(error) => {
                let action = format!("cannot list {}", self.options.root);
                Err(LockError::Refused { action, error })
            }
        };
        for reply in self.queries.drain(..) {
            let _ = reply.send(answer.clone());
        }
    }
}
