//! Leaves the queue: deletes the contender, and reports the release only when it is known to be gone.

use std::sync::Arc;

use super::answer::Answer;
use super::command::Reply;
use super::place::{Place, Releasing};
use super::requests::delete::delete;
use super::state::{Task, Write};
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{Ensemble, EnsembleError, EnsembleResult};
use crate::error::LockError;

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// Leaves the queue, and enters it again at the end if `queue_again`.
    pub(super) fn release(&mut self, queue_again: bool, reply: Option<Reply<()>>) {
        if let Some(releasing) = &mut self.releasing {
            releasing.queue_again = queue_again;
            releasing.replies.extend(reply);
            if !queue_again {
                for waiting in self.contend_replies.drain(..) {
                    let _ = waiting.send(Err(LockError::NotQueued));
                }
            }
            return;
        }
        // It may have been left to us, and not begun with yet.
        self.begin_with_what_is_left();
        let is_written = matches!(&self.place, Place::In(entry) if entry.past.record.may_be_written());
        let was_held = self.is_held() || self.lost.is_some() || is_written || self.place.is_left();
        self.is_contending = false;
        for waiting in self.contend_replies.drain(..) {
            let _ = waiting.send(Err(LockError::NotQueued));
        }
        self.releasing = Some(Releasing {
            queue_again,
            is_asked: false,
            was_held,
            replies: reply.into_iter().collect(),
        });
        let is_certainly_out = match &self.place {
            Place::Out => true,
            Place::Entering {
                is_asked,
                is_uncertain,
                ..
            } => !is_asked && !is_uncertain,
            Place::In(_) => false,
        };
        if is_certainly_out {
            self.released();
        }
    }

    pub(super) fn drive_release(&mut self, connection: &Arc<E::Connection>) {
        let Some(releasing) = &mut self.releasing else {
            return;
        };
        match &self.place {
            // The contender may exist: find out first.
            Place::Entering { .. } => self.drive_entering(connection),
            Place::In(entry) => {
                if std::mem::replace(&mut releasing.is_asked, true) {
                    return;
                }
                let known = self
                    .control
                    .clone()
                    .and_then(|(control, version)| Some((control, version?)));
                let was_held = releasing.was_held;
                let clean = was_held.then(|| (self.farewell(entry), known));
                let deleting = delete(
                    Arc::clone(connection),
                    entry.path.clone(),
                    self.options.control.clone(),
                    self.options.provisioned,
                    clean,
                );
                let sent = self.writing(Write::Delete);
                self.ask(async move {
                    Answer::Deleted {
                        sent,
                        result: deleting.await,
                    }
                });
            }
            Place::Out => self.released(),
        }
    }

    pub(super) fn deleted(&mut self, sent: BootInstant, result: EnsembleResult<()>) {
        self.written(Write::Delete);
        match result {
            Ok(()) => drop(self.acknowledge(sent)),
            Err(EnsembleError::NoNode) => {}
            Err(error) => {
                if !self.is_about_link(&error) {
                    let action = format!("cannot release the contender below {}", self.options.root);
                    self.fail(LockError::Refused { action, error });
                }
                return;
            }
        }
        self.released();
    }

    /// The contender is known to be gone.
    pub(super) fn released(&mut self) {
        let Some(releasing) = self.releasing.take() else {
            return;
        };
        self.leave();
        self.lost = None;
        self.refusal = None;
        self.is_contending = releasing.queue_again;
        for reply in releasing.replies {
            let _ = reply.send(Ok(()));
        }
    }
}
