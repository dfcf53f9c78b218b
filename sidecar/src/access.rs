//! The access modes of a lock: exclusive, semaphore, write and read.

use lockkeeper_lock::Mode;

/// How many holders the lock may have at once, and of which kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Exclusive,
    /// This many; more than one.
    Semaphore(u32),
    Write,
    /// All readers before the next writer.
    Read,
}

impl Access {
    /// Its name, as on the socket.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Semaphore(_) => "semaphore",
            Self::Write => "write",
            Self::Read => "read",
        }
    }

    /// The same in the words of the lock.
    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Exclusive => Mode::Exclusive,
            Self::Semaphore(holders) => holders.try_into().map_or(Mode::Exclusive, Mode::Semaphore),
            Self::Write => Mode::Write,
            Self::Read => Mode::Read,
        }
    }

    /// How many may hold together with this one; `None` for a reader: any number.
    pub(crate) fn max_holders(self) -> Option<u32> {
        match self {
            Self::Exclusive | Self::Write => Some(1),
            Self::Semaphore(holders) => Some(holders),
            Self::Read => None,
        }
    }
}
