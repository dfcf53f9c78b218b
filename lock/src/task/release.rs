//! Leaves the queue: deletes the contender, and reports the release only when it is known to be gone.

use std::sync::Arc;

use super::Task;
use super::answer::Answer;
use super::command::Reply;
use super::pending::Write;
use super::place::Place;
use super::requests::delete::delete;
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{Ensemble, EnsembleError, EnsembleResult};

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// Leaves the queue, and enters it again at the end if `queue_again`.
    pub(super) fn release(&mut self, queue_again: bool, reply: Option<Reply<()>>) {
        let is_news = !self.wishes.is_releasing();
        if is_news {
            // It may have been left to us, and not begun with yet.
            self.begin_with_what_is_left();
        }
        let may_be_recorded = |place: &Place| place.entry().is_some_and(|entry| entry.past.may_name_us());
        let was_held = self.place.is_held()
            || self.wishes.lost().is_some()
            || may_be_recorded(&self.place)
            || self.place.is_left();
        self.wishes.release(queue_again, was_held, reply);
        if is_news && self.place.is_certainly_out() {
            self.released();
        }
    }

    pub(super) fn drive_release(&mut self, connection: &Arc<E::Connection>) {
        match &self.place {
            // The contender may exist: find out first.
            Place::Entering(_) => self.drive_entering(connection),
            Place::In(entry) => {
                let Some(was_held) = self.wishes.begin_deletion() else {
                    return;
                };
                let clean = was_held.then(|| (self.farewell(entry), self.control.writable()));
                let deleting = delete(
                    Arc::clone(connection),
                    entry.own.path().to_owned(),
                    self.options.control.clone(),
                    self.options.provisioned,
                    clean,
                );
                let sent = self.writing(Write::Delete);
                self.pending
                    .ask(deleting, move |result| Answer::Deleted { sent, result });
            }
            Place::Out | Place::Barred => self.released(),
        }
    }

    pub(super) fn deleted(&mut self, sent: BootInstant, result: EnsembleResult<()>) {
        self.pending.written(Write::Delete);
        match result {
            Ok(()) => drop(self.acknowledge(sent)),
            Err(EnsembleError::NoNode) => {}
            Err(error) => {
                let action = format!("cannot release the contender below {}", self.options.root);
                return self.refused(action, error);
            }
        }
        self.released();
    }

    /// The contender is known to be gone.
    pub(super) fn released(&mut self) {
        if self.wishes.released() {
            self.leave();
            self.obstacles.clear();
        }
    }
}
