//! What keeps the lock from us, and what else is odd about it: logged once.

use crate::error::LockError;

/// Why we do not get the lock.
#[derive(Default)]
pub(super) struct Obstacles {
    refusal: Option<LockError>,
    /// Children of the lock root that are not contenders, as last logged.
    bystanders: Vec<String>,
}

impl Obstacles {
    pub(super) fn refusal(&self) -> Option<&LockError> {
        self.refusal.as_ref()
    }

    /// The lock is refused for good; the caller logs it.
    pub(super) fn refused(&mut self, refusal: LockError) {
        self.refusal = Some(refusal);
    }

    /// Nothing keeps it from us, as far as is known.
    pub(super) fn clear(&mut self) {
        self.refusal = None;
    }

    /// This has to change before we get the lock; `None` if nothing has to.
    pub(super) fn wait_for(&mut self, refusal: Option<LockError>, root: &str) {
        if self.refusal != refusal {
            if let Some(refusal) = &refusal {
                tracing::warn!(lock.path = root, "{refusal}; waiting until that changes");
            }
            self.refusal = refusal;
        }
    }

    /// Names once the children that do not count.
    pub(super) fn ignore(&mut self, bystanders: Vec<String>, root: &str) {
        if self.bystanders != bystanders {
            if !bystanders.is_empty() {
                tracing::warn!(
                    lock.path = root,
                    children = ?bystanders,
                    "Some children of the lock root are not contenders; ignoring them"
                );
            }
            self.bystanders = bystanders;
        }
    }
}
