//! Reports the clients beside which the lock is not held.

use super::place::Place;
use super::state::Task;
use crate::clock::Clock;
use crate::ensemble::Ensemble;
use crate::error::LockError;

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// Reports the clients beside which the lock is not held.
    pub(super) fn tell_strangers(&mut self) {
        let Place::In(entry) = &self.place else { return };
        let path = |name: &str| format!("{}/{name}", self.options.root);
        let refusal = entry.ahead.as_ref().and_then(|ahead| {
            let is_unreadable =
                |name: &&String| entry.watched.get(*name).is_some_and(|seen| seen.is_unreadable);
            let watched = ahead.place().watch;
            let unreadable = watched.iter().find(is_unreadable);
            let unreadable = unreadable.map(|name| LockError::Unreadable { path: path(name) });
            let stranger = ahead.strangers().first();
            unreadable.or_else(|| {
                Some(LockError::Stranger {
                    path: path(stranger?),
                })
            })
        });
        if self.refusal != refusal {
            if let Some(refusal) = &refusal {
                tracing::warn!(
                    lock.path = self.options.root,
                    "{refusal}; waiting until that changes"
                );
            }
            self.refusal = refusal;
        }
    }

    /// Names once the children that do not count.
    pub(super) fn tell_bystanders(&mut self, bystanders: Vec<String>) {
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
