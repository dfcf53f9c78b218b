//! What is wrong with a lock, in the words of a condition.

use lockkeeper_crds::lock::Reason;

/// Something that a user has to correct, for a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub reason: Reason,
    /// One sentence.
    pub message: String,
}

// === impl Problem ===

impl Problem {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { reason, message }
    }
}
