//! A lock as the page gets it. Pure.

use serde::Serialize;

/// What the page knows of a lock. `status` has the fields of a `DistributedLock`'s status that the page reads.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row<'a, S> {
    /// Its name on the page: the same as long as the lock is there.
    pub key: &'a str,
    /// The command that shows it in a terminal.
    pub command: String,
    /// `Exclusive` or `ReadWrite`.
    pub mode: &'static str,
    pub max_holders: i64,
    pub status: S,
    /// That the status is old, and why, if it is.
    pub doubt: Option<String>,
    /// What is wrong beside what the status says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// The queue itself is followed: without a doubt it is known who holds, whatever conditions say.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_followed: bool,
    /// The number under which its renewals are told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewals: Option<u64>,
}

/// What is wrong with a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// In a few words.
    pub text: &'static str,
    /// In a sentence.
    pub more: String,
}

impl<S: Serialize> Row<'_, S> {
    /// In JSON, on one line.
    ///
    /// # Panics
    /// When a map of the status has keys that are no strings.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("a row has only names and numbers")
    }
}
