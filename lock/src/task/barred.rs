//! Waits until the contender may enter the queue.

use std::time::Duration;

use super::answer::Answer;
use super::place::Place;
use super::requests::bar::Bar;
use super::state::Task;
use crate::clock::Clock;
use crate::ensemble::{Ensemble, NodeEvent};

/// Pause before we ask for a right again, doubled each time: a client that creates a node grants the rights with it, or
/// right after it.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);

/// Longest such pause: if an administrator forgot the rights, hundreds of waiters ask for them.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// The contender was not created. Checks again when something changes, or may have changed.
    pub(super) fn barred(&mut self, bar: Bar) {
        let Bar {
            refusal,
            changed,
            then,
        } = bar;
        if self.refusal.as_ref() != Some(&refusal) {
            tracing::warn!(
                lock.path = self.options.root,
                "{refusal}; waiting until that changes"
            );
            self.refusal = Some(refusal);
        }
        if self.releasing.is_some() {
            return self.released();
        }
        self.place = Place::Out;
        self.is_barred = true;
        let pause = if changed.is_some() {
            self.bar_pause = Duration::ZERO;
            LONGEST_PAUSE
        } else {
            let pause = self.bar_pause.max(SHORTEST_PAUSE);
            self.bar_pause = (pause * 2).min(LONGEST_PAUSE);
            pause
        };
        let (clock, pause) = (self.clock.clone(), pause.mul_f64(0.5 + fastrand::f64() / 2.0));
        let changed = changed.unwrap_or_else(|| Box::pin(std::future::pending()));
        self.ask(async move {
            tokio::select! {
                event = changed => Answer::Unbarred(event),
                () = clock.sleep(pause) => Answer::Unbarred(then),
            }
        });
    }

    pub(super) fn unbarred(&mut self, event: NodeEvent) {
        self.is_barred = false;
        if event == NodeEvent::Disconnected {
            self.connection_lost();
        }
    }
}
