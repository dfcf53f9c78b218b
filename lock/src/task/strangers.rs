//! Reports the clients beside which the lock is not held.

use super::place::Place;
use super::state::Task;
use crate::clock::Clock;
use crate::ensemble::Ensemble;
use crate::error::LockError;
use crate::queue;

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// Reports the clients beside which the lock is not held, and names once the children that do not count.
    pub(super) fn tell_strangers(&mut self, bystanders: Vec<String>) {
        let Place::In(entry) = &self.place else { return };
        let strangers = entry.ahead.iter().flat_map(queue::Ahead::strangers);
        let refusal = strangers.map(|name| LockError::Stranger {
            path: format!("{}/{name}", self.options.root),
        });
        let refusal = refusal.take(1).next();
        if self.refusal != refusal {
            if let Some(refusal) = &refusal {
                tracing::warn!(
                    lock.path = self.options.root,
                    "{refusal}; waiting until that changes"
                );
            }
            self.refusal = refusal;
        }
        if self.bystanders != bystanders {
            if !bystanders.is_empty() {
                tracing::warn!(
                    lock.path = self.options.root,
                    children = ?bystanders,
                    "Some children of the lock root are not contenders; ignoring them"
                );
            }
            self.bystanders = bystanders;
        }
    }
}
