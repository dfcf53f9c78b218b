//! The names of contenders. Pure.
//!
//! Our names are those of Apache Curator's `InterProcessMutex` (`_c_<uuid>-lock-<seq>`) and `InterProcessReadWriteLock`
//! (`-__READ__<seq>`, `-__WRIT__<seq>`), so its clients can share our queues. The names of kazoo, go-zookeeper and
//! ZooKeeper's own recipe are read too: the parent counts all of them, so their sequence numbers have one order.

use std::cmp::Ordering;

/// A contender as its name describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    /// Name below the lock root.
    pub name: String,
    /// Whether it only wants to read.
    pub is_reader: bool,
    pub(crate) sequence: i32,
}

/// The text directly before the sequence number, whether it marks a reader, and whether it has to follow a dash or
/// begin the name.
///
/// * `lock-`: Curator's `LockInternals` with "protection" and without, go-zookeeper's `Lock`
///   (`CreateProtectedEphemeralSequential`), and the recipe on ZooKeeper's own page (`guid-lock-`).
/// * `__READ__` and `__WRIT__`: Curator's `InterProcessReadWriteLock`.
/// * `__lock__` and `__rlock__`: `Lock`, `WriteLock` and `ReadLock` of kazoo (`kazoo/recipe/lock.py`).
const MARKERS: [(&str, bool, bool); 5] = [
    ("lock-", false, true),
    ("__READ__", true, true),
    ("__WRIT__", false, true),
    ("__lock__", false, false),
    ("__rlock__", true, false),
];

impl Contender {
    /// Reads a child's name; `None` if that is not the name of a contender of a known kind.
    pub fn parse(name: &str) -> Option<Self> {
        let marked = MARKERS.iter().find_map(|&(marker, is_reader, is_word)| {
            let (before, digits) = name.rsplit_once(marker)?;
            let is_it = !is_word || before.is_empty() || before.ends_with('-');
            is_it.then_some((is_reader, digits))
        });
        let (is_reader, digits) = marked.or_else(|| Some((false, after_session(name)?)))?;
        Some(Self {
            name: name.to_owned(),
            is_reader,
            sequence: sequence(digits)?,
        })
    }

    /// The number at the end of its name.
    #[cfg(feature = "fuzzing")]
    pub fn sequence(&self) -> i32 {
        self.sequence
    }

    /// Whether this one came before `other`; see [`super::out_of_numbers`]. A writer and a reader with one number: the
    /// reader came later ([`Self::is_downgrade`]).
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        (self.sequence, self.is_reader).cmp(&(other.sequence, other.is_reader))
    }

    /// Whether a reader may have come in behind this one, and before all that wait ([`Self::is_downgrade`]).
    pub(crate) fn may_leave_a_reader(&self) -> bool {
        !self.is_reader && self.name.contains("__WRIT__")
    }

    /// Whether one of the two is the write lock of a client of Curator, and the other one the read lock that the same
    /// thread takes while it holds that: it has the same number, and so it is before all that wait
    /// (`InterProcessReadWriteLock.ReadLock.getSortingSequence`, "lock downgrading").
    pub(super) fn is_downgrade(&self, other: &Self) -> bool {
        let (reader, writer) = if self.is_reader {
            (self, other)
        } else {
            (other, self)
        };
        self.sequence == other.sequence
            && reader.name.contains("__READ__")
            && writer.name.contains("__WRIT__")
    }
}

/// The part after the session in `x-<session>-<seq>`, the names of `WriteLock` in ZooKeeper's own recipes (in Java the
/// session is a signed decimal number, in C it has 16 hexadecimal digits).
fn after_session(name: &str) -> Option<&str> {
    let session = name.strip_prefix("x-")?;
    let digits = session.strip_prefix('-').unwrap_or(session);
    let (session, sequence) = digits.split_once('-')?;
    let is_session = !session.is_empty() && session.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_session.then_some(sequence)
}

/// Reads "%010d" (`PrepRequestProcessor`): ten characters, or eleven for the least numbers, which come after 2^31
/// contenders. ZooKeeper writes numbers only in this spelling.
fn sequence(text: &str) -> Option<i32> {
    let number: i32 = text.parse().ok()?;
    let is_so = match number {
        0.. => text.len() == 10 && text.starts_with(|first: char| first.is_ascii_digit()),
        -999_999_999..0 => text.len() == 10,
        _ => text.len() == 11,
    };
    is_so.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> Option<(bool, i32)> {
        Contender::parse(name).map(|contender| (contender.is_reader, contender.sequence))
    }

    #[test]
    fn contenders_of_every_known_client_are_read_with_their_numbers() {
        for (name, is_reader, sequence) in [
            // Ours, and Curator's.
            (
                "_c_b3c1e3a0-6b3f-4a55-8d7c-9a1d9e3f0001-lock-0000000007",
                false,
                7,
            ),
            (
                "_c_b3c1e3a0-6b3f-4a55-8d7c-9a1d9e3f0001-__READ__0000000007",
                true,
                7,
            ),
            (
                "_c_b3c1e3a0-6b3f-4a55-8d7c-9a1d9e3f0001-__WRIT__0000000007",
                false,
                7,
            ),
            // Curator without protection.
            ("x-lock-0000000007", false, 7),
            ("lock-0000000007", false, 7),
            ("__READ__0000000007", true, 7),
            // go-zookeeper.
            ("_c_6c24a9dd0d4d8d3f0e0c9a2d2a0a7b11-lock-0000000012", false, 12),
            // kazoo: Lock and WriteLock, ReadLock.
            ("0f3c1f4f8c1b4a3f9d5f0d6ad7a5c111__lock__0000000003", false, 3),
            ("0f3c1f4f8c1b4a3f9d5f0d6ad7a5c111__rlock__0000000004", true, 4),
            // ZooKeeper's own recipe, in Java and in C.
            ("x-72057837408354305-0000000009", false, 9),
            ("x--9151314442816847871-0000000009", false, 9),
            ("x-0100000f6a2b0001-0000000009", false, 9),
            // After 2^31 contenders.
            ("_c_a-lock--2147483648", false, i32::MIN),
            ("x-72057837408354305--000000001", false, -1),
        ] {
            assert_eq!(read(name), Some((is_reader, sequence)), "{name}");
        }
    }

    #[test]
    fn names_of_anything_else_are_no_contenders() {
        for name in [
            "",
            "x",
            "lock-1",
            "-lock-",
            "_c_x-lock-12",
            "leases",
            "locks",
            "readme",
            "_c_x-lock-+000000001",
            "_c_x-lock-00000000001111111111",
            "_c_x-lock-00000000\u{661}",
            // Spellings of numbers that ZooKeeper never writes.
            "_c_x-lock--0000000009",
            "_c_x-lock--000000000",
            "x-7--0000000001",
            // Leader election: Curator's LeaderLatch, ZooKeeper's own recipe, Hadoop's.
            "_c_b3c1e3a0-6b3f-4a55-8d7c-9a1d9e3f0001-latch-0000000001",
            "n_0000000001",
            "ActiveStandbyElectorLock",
            // A lease of kazoo's Semaphore, and one of Curator's.
            "0f3c1f4f8c1b4a3f9d5f0d6ad7a5c111",
            "_c_b3c1e3a0-6b3f-4a55-8d7c-9a1d9e3f0001-lease-0000000001",
            "block-0000000001",
            "x-y-0000000001",
            "x-0000000001",
        ] {
            assert_eq!(read(name), None, "{name}");
        }
    }

    #[test]
    fn contenders_of_different_clients_are_in_the_order_of_their_numbers() {
        let order: Vec<_> = [
            "0f3c__lock__0000000003",
            "_c_a-lock-0000000004",
            "x-72057837408354305-0000000005",
            "lock-0000000006",
        ]
        .map(|name| Contender::parse(name).unwrap())
        .into();
        assert!(order.is_sorted_by(|a, b| a.compare(b).is_lt()));
    }
}
