//! What the contenders of one lock did, as it happened, with the times of this machine's one clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkeeper_lock::BootInstant;

/// A moment in microseconds since boot. No two entries of a record have the same one.
pub(crate) type Micros = u64;

/// Something that a contender did or was told. Names are those of nodes, without the lock root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The creation of a contender was sent; its name begins with this.
    Creating(String),
    Created {
        sent: Micros,
        name: String,
    },
    /// The contender of this name wrote its own data anew.
    Renewing(String),
    /// A takeover was sent.
    Taking {
        /// Who sent it.
        name: String,
        /// Whose place.
        of: String,
        /// The version on whose condition it deletes.
        version: i32,
    },
    /// A write of this contender, which was sent at that moment, was acknowledged.
    Acknowledged(String, Micros),
    /// It failed: a node of it is gone, or has another version.
    Refused(String, Micros),
    /// An answer showed another contender, or our own.
    Shown {
        name: String,
        /// The version of its data.
        version: i32,
        /// The lease duration that it states.
        lease: Option<Duration>,
    },
    /// An answer or an event showed that there is no such contender.
    Missing(String),
    /// The contenders in the queue.
    Listed(Vec<String>),
    /// The deletion of the own contender was sent.
    Releasing(String),
    /// The application of this contender may run until that moment.
    Granted(String, Micros),
    /// The application of this contender has stopped.
    Stopped(String),
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub at: Micros,
    /// Which of the processes that contend for the lock.
    pub process: usize,
    pub what: What,
}

/// All entries of one lock, in their order.
///
/// A request is recorded before it is sent, and an answer after it has arrived. So whatever has caused another entry
/// stands before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    entries: Vec<Entry>,
    is_over: bool,
}

/// The part of a record that one process writes.
#[derive(Clone, Debug)]
pub(crate) struct Pen {
    record: Record,
    process: usize,
}

/// This moment in microseconds since boot, rounded down.
pub(crate) fn micros(moment: BootInstant) -> Micros {
    moment.as_nanos() / 1_000
}

impl Record {
    /// The part of a process.
    pub(crate) fn pen(&self, process: usize) -> Pen {
        Pen {
            record: self.clone(),
            process,
        }
    }

    /// Takes all entries; what comes later is not recorded.
    pub(crate) fn finish(&self) -> Vec<Entry> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.is_over = true;
        std::mem::take(&mut entries.entries)
    }
}

impl Pen {
    /// Writes an entry. Its moment is now, or a microsecond after the last entry if that is later.
    pub(crate) fn write(&self, what: What) -> Micros {
        let mut record = self.record.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = micros(BootInstant::now());
        let at = record.entries.last().map_or(now, |last| now.max(last.at + 1));
        if !record.is_over {
            let process = self.process;
            record.entries.push(Entry { at, process, what });
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_an_order_and_end_with_the_record() {
        let record = Record::default();
        for process in [0, 1] {
            for _ in 0..100 {
                record.pen(process).write(What::Listed(Vec::new()));
            }
        }
        let entries = record.finish();
        assert_eq!(entries.len(), 200);
        assert!(entries.is_sorted_by(|a, b| a.at < b.at));
        record.pen(0).write(What::Listed(Vec::new()));
        assert!(record.finish().is_empty());
    }
}
