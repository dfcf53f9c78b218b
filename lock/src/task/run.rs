//! The loop of the task: it sends requests that are missing, publishes the state through a `watch`, and waits for the
//! next answer, command or moment.

use std::sync::Arc;
use std::time::Duration;

use super::Task;
use super::answer::Answer;
use super::command::Command;
use super::place::Place;
use crate::clock::{BootInstant, Clock};
use crate::ensemble::Ensemble;

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// Runs until the lock is closed or abandoned. Its end, also by a panic, closes only the TCP connection: the
    /// contender stays until its session expires.
    pub(crate) async fn run(mut self) {
        loop {
            let was_held = self.place.is_held();
            self.drive();
            self.publish();
            if !was_held && self.place.is_held() {
                // The owner starts its work meanwhile.
                tokio::task::yield_now().await;
                continue;
            }
            let wake = Self::sleep_until(self.clock.clone(), self.next_wake());
            tokio::select! {
                biased;
                answer = self.pending.next() => {
                    self.take(answer);
                    // A release causes two events for the heir. Handle both before the next step.
                    while let Some(answer) = self.pending.next_at_hand() {
                        self.take(answer);
                    }
                }
                command = self.commands.recv() => match command {
                    Some(Command::Close(done)) => return self.close(done).await,
                    Some(command) => self.obey(command),
                    None => return,
                },
                Ok(()) = self.word.changed() => {}
                () = wake => {}
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Contend(reply) => self.contend(reply),
            Command::Release { queue_again, reply } => self.release(queue_again, Some(reply)),
            Command::Participants(reply) => self.queries.push(reply),
            Command::Close(_) => unreachable!("taken by the loop"),
        }
    }

    fn take(&mut self, answer: Answer<E::Connection>) {
        // After a pause the answers that have waited may tell of a takeover: the lock was lost at the deadline before it.
        self.watch_the_lease();
        match answer {
            Answer::Attached(result) => self.attached(result),
            Answer::Closed(closed) => self.closed(closed),
            Answer::Key(key) => self.link.told_key(key),
            Answer::Entered { sent, result } => self.entered(sent, result),
            Answer::Found(result) => self.found(*result),
            Answer::Unbarred(event) => self.unbarred(event),
            Answer::Renewed {
                sent,
                states_lease,
                result,
            } => self.renewed(sent, states_lease, result),
            Answer::TookOver {
                sent,
                version,
                result,
            } => self.took_over(sent, version, result),
            Answer::OwnData { sent, result } => self.own_data(sent, result),
            Answer::Listed(result) => self.listed(result),
            Answer::Predecessor { name, result } => self.predecessor(name, result),
            Answer::PredecessorEvent { name, event } => self.predecessor_event(name, event),
            Answer::UnreadableEvent { name, result } => self.unreadable_event(name, result),
            Answer::Own(result) => self.own(result),
            Answer::OwnEvent(event) => self.own_event(event),
            Answer::Control { reading, result } => self.control(reading, result),
            Answer::ControlEvent(event) => self.control_event(event),
            Answer::Recorded {
                sent,
                is_settlement,
                result,
            } => self.recorded(sent, is_settlement, result),
            Answer::Marked { sent, result } => self.marked(sent, result),
            Answer::Deleted { sent, result } => self.deleted(sent, result),
            Answer::Participants(result) => self.participants(result),
        }
    }

    /// Starts every request that is missing.
    fn drive(&mut self) {
        self.watch_the_lease();
        self.keep_the_link();
        let Some(connection) = self.link.connection() else {
            return;
        };
        let connection = Arc::clone(connection);
        self.ask_participants(&connection);
        if self.wishes.is_releasing() {
            return self.drive_release(&connection);
        }
        if self.wishes.lost().is_some() {
            return self.drive_lost(&connection);
        }
        match &self.place {
            Place::Out => self.drive_out(&connection),
            Place::Barred => {}
            Place::Entering(_) => self.drive_entering(&connection),
            Place::In(_) => self.drive_queue(&connection),
        }
    }

    fn next_wake(&self) -> Option<BootInstant> {
        let renewal = self.renewal_due();
        let is_bound = self.place.is_held() && !self.wishes.is_releasing();
        let deadline = self.deadline().filter(|_| is_bound);
        [renewal, self.stuck_at(), deadline, self.takeover_due()]
            .into_iter()
            .flatten()
            .min()
    }

    async fn sleep_until(clock: C, moment: Option<BootInstant>) {
        match moment {
            // One nanosecond more: then everything that is due *after* the moment is due.
            Some(moment) => {
                clock
                    .sleep((moment - clock.now()) + Duration::from_nanos(1))
                    .await
            }
            None => std::future::pending().await,
        }
    }
}
