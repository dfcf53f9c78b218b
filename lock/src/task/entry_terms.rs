//! On what terms we enter the queue.

use std::time::Duration;

use crate::ensemble::Incarnation;

/// Pause before we ask for a right again, doubled each time: a client that creates a node grants the rights with it, or
/// right after it.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);

/// Longest such pause: if an administrator forgot the rights, hundreds of waiters ask for them.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What is known of the lock root before our contender is below it.
#[derive(Default)]
pub(super) struct EntryTerms {
    /// The lock root under whose agreement we entered last: used until a server contradicts it.
    agreed: Option<Incarnation>,
    /// How long to wait before asking for a right again.
    pause: Duration,
}

impl EntryTerms {
    pub(super) fn agreed(&self) -> Option<Incarnation> {
        self.agreed
    }

    /// We have entered under the agreement in this lock root.
    pub(super) fn agree(&mut self, root: Incarnation) {
        self.agreed = Some(root);
    }

    /// The lock root is another one.
    pub(super) fn is_contradicted(&mut self) {
        self.agreed = None;
    }

    /// We are in the queue: nothing has to be asked for again.
    pub(super) fn admitted(&mut self) {
        self.pause = Duration::ZERO;
    }

    /// How long to wait before asking again, although no event has come. `is_told` if an event is to come.
    pub(super) fn next_pause(&mut self, is_told: bool) -> Duration {
        let pause = if is_told {
            self.pause = Duration::ZERO;
            LONGEST_PAUSE
        } else {
            let pause = self.pause.max(SHORTEST_PAUSE);
            self.pause = (pause * 2).min(LONGEST_PAUSE);
            pause
        };
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}
