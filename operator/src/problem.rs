//! What is wrong with a lock, in the words of a condition.

use lockkeeper_crds::lock::Reason;

/// Something that a user has to correct, for a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// One of the closed set.
    pub reason: Reason,
    /// One sentence.
    pub message: String,
}

// === impl Problem ===

impl Problem {
    /// With this reason and sentence.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { reason, message }
    }
}
