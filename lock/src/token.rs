//! The number that a resource can check.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The fencing token: the `czxid` of the contender that holds the lock.
///
/// 64 bits, grows over the whole ensemble, and survives deletion of the lock root. Sequence
/// numbers are 32 bits and start again with a new parent, so they are never a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FencingToken(pub i64);

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
