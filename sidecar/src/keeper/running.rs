//! What the probes are told of the application, and the hook after its start.

use super::{Hook, Keeper};
use crate::probes::health::Running;

impl Keeper<'_> {
    /// Tells the probes what runs, and sends the hook after a new start.
    pub(super) fn publish_the_application(&mut self) {
        let running = self.decider.running();
        self.app
            .send_if_modified(|before| std::mem::replace(before, running) != running);
        match running {
            None => self.hook = None,
            // What goes on after a pause was not started anew.
            Some(Running { start, .. }) if start > self.last_start => {
                self.last_start = start;
                self.hook = self
                    .health
                    .post_start()
                    .map(|hook| -> Hook { Box::pin(async move { hook.send().await }) });
            }
            Some(_) => {}
        }
    }

    pub(super) fn hook_sent(&mut self, sent: Result<(), String>) {
        self.hook = None;
        if let Err(problem) = sent {
            tracing::error!(problem, "The postStart hook has failed; ending the application");
            self.decider.post_start_failed();
        }
    }
}
