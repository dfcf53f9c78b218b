//! The setting that the contenders of a lock have agreed on. It is written in the lock root, and each contender checks
//! it before it queues. Pure.
//!
//! If one contender counted one holder and another counted two, each would follow its own setting. So the setting is a
//! document in the one place that all contenders share.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::queue::Mode;
use crate::record::document;

/// Longest document that is read, in bytes. Ours have about forty bytes.
const LONGEST: usize = 1024;

/// The kind of a lock, and how many contenders may hold it at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// At most this many holders.
    Exclusive(NonZeroU32),
    /// One writer, or any number of readers.
    ReadWrite,
}

/// Why a contender must not enter a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Objection {
    /// There is no agreement, and we may not write one.
    #[error("it holds no agreement about the lock; the client that provides the node has to write one")]
    Missing,
    /// The data are not an agreement.
    #[error(
        "its data are not an agreement about a lock that this version can read; use a lock root of its own, or \
         remove its data while no contender is in the queue"
    )]
    Unreadable,
    /// The contenders have agreed on something else.
    #[error(
        "its contenders have agreed on {agreed}, and this one is set to {asked}; give all contenders of a lock the \
         same setting: it can change only while none is in the queue"
    )]
    Differs {
        /// The agreement in the lock root.
        agreed: Agreement,
        /// What this contender is set to.
        asked: Agreement,
    },
}

/// The wire format.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    v: u32,
    kind: Kind,
    #[serde(default = "one")]
    max_holders: NonZeroU32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    Exclusive,
    ReadWrite,
}

const fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

impl Agreement {
    /// The agreement that a contender of this mode expects.
    pub fn of(mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => Self::Exclusive(one()),
            Mode::Semaphore(holders) => Self::Exclusive(holders),
            Mode::Read | Mode::Write => Self::ReadWrite,
        }
    }

    /// Reads the data of a lock root: nothing, or an agreement.
    ///
    /// # Errors
    /// [`Objection::Unreadable`].
    pub fn parse(data: &[u8]) -> Result<Option<Self>, Objection> {
        if data.is_empty() {
            return Ok(None);
        }
        match document(data, LONGEST) {
            Some(Document {
                v: 1,
                kind: Kind::Exclusive,
                max_holders,
            }) => Ok(Some(Self::Exclusive(max_holders))),
            Some(Document {
                v: 1,
                kind: Kind::ReadWrite,
                ..
            }) => Ok(Some(Self::ReadWrite)),
            _ => Err(Objection::Unreadable),
        }
    }

    /// The data of a lock root with this agreement: a JSON document.
    pub fn to_data(self) -> Vec<u8> {
        let (kind, max_holders) = match self {
            Self::Exclusive(holders) => (Kind::Exclusive, holders),
            Self::ReadWrite => (Kind::ReadWrite, one()),
        };
        let document = Document {
            v: 1,
            kind,
            max_holders,
        };
        serde_json::to_vec(&document).expect("strings and numbers")
    }

    /// The rule: a contender with a setting other than the agreed one stays out of the queue.
    ///
    /// # Errors
    /// [`Objection::Differs`].
    pub fn admits(self, mode: Mode) -> Result<(), Objection> {
        let asked = Self::of(mode);
        if self == asked {
            return Ok(());
        }
        Err(Objection::Differs { agreed: self, asked })
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive(holders) => write!(f, "kind exclusive with maxHolders {holders}"),
            Self::ReadWrite => f.write_str("kind readWrite"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn semaphore(holders: u32) -> Mode {
        Mode::Semaphore(NonZeroU32::new(holders).unwrap())
    }

    #[test]
    fn what_is_written_is_read_back() {
        for (mode, data) in [
            (Mode::Exclusive, r#"{"v":1,"kind":"exclusive","maxHolders":1}"#),
            (semaphore(7), r#"{"v":1,"kind":"exclusive","maxHolders":7}"#),
            (Mode::Read, r#"{"v":1,"kind":"readWrite","maxHolders":1}"#),
        ] {
            let agreement = Agreement::of(mode);
            assert_eq!(String::from_utf8(agreement.to_data()).unwrap(), data);
            assert_eq!(Agreement::parse(data.as_bytes()), Ok(Some(agreement)));
        }
        assert_eq!(Agreement::parse(b""), Ok(None));
    }

    #[test]
    fn data_that_are_something_else_are_no_agreement() {
        let long = format!(r#"{{"v":1,"kind":"exclusive","note":"{}"}}"#, "x".repeat(LONGEST));
        for foreign in [
            &b"10.0.0.7"[..],
            b"3",
            b"null",
            b"{}",
            b"\xff",
            br#"{"v":2,"kind":"exclusive","maxHolders":1}"#,
            br#"{"v":1,"kind":"barrier"}"#,
            br#"[1,"exclusive",1]"#,
            br#"{"v":1,"kind":"exclusive","maxHolders":0}"#,
            long.as_bytes(),
        ] {
            assert_eq!(Agreement::parse(foreign), Err(Objection::Unreadable));
        }
    }

    #[test]
    fn who_differs_is_refused_with_both_settings() {
        let modes = [Mode::Exclusive, semaphore(2), semaphore(3), Mode::Write];
        for agreed in modes {
            for asked in modes {
                assert_eq!(Agreement::of(agreed).admits(asked).is_ok(), agreed == asked);
            }
        }
        let refused = Agreement::of(Mode::Exclusive).admits(semaphore(2)).unwrap_err();
        let said = refused.to_string();
        for part in [
            "agreed on kind exclusive with maxHolders 1",
            "set to kind exclusive with maxHolders 2",
        ] {
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn a_semaphore_of_one_is_an_exclusive_lock_and_readers_agree_with_writers() {
        assert_eq!(Agreement::of(Mode::Exclusive).admits(semaphore(1)), Ok(()));
        assert_eq!(Agreement::of(Mode::Read).admits(Mode::Write), Ok(()));
        assert!(Agreement::of(Mode::Exclusive).admits(Mode::Read).is_err());
    }
}
