//! The order of the contenders, and which of them to watch. Pure.

mod name;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::num::NonZeroU32;

pub use name::Contender;

/// Which contenders may hold a lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// One holder.
    #[default]
    Exclusive,
    /// At most this many holders.
    Semaphore(NonZeroU32),
    /// Reader of a read/write lock: holds together with other readers.
    Read,
    /// Writer of a read/write lock: holds alone.
    Write,
}

impl Mode {
    /// The text directly before the sequence number in a contender's name.
    pub fn marker(self) -> &'static str {
        match self {
            Self::Exclusive | Self::Semaphore(_) => "-lock-",
            Self::Read => "-__READ__",
            Self::Write => "-__WRIT__",
        }
    }
}

/// Whether `later` came behind `earlier` and cannot have held beside it: when it held, the other was gone. False if one
/// of them is not a contender.
pub fn excludes(later: &str, earlier: &str) -> bool {
    match (Contender::parse(later), Contender::parse(earlier)) {
        (Some(later), Some(earlier)) => !later.is_reader && earlier.compare(&later).is_lt(),
        _ => false,
    }
}

/// The contenders among the children, in order.
pub fn sorted(children: &[String]) -> Vec<Contender> {
    let mut contenders: Vec<_> = children
        .iter()
        .filter_map(|name| Contender::parse(name))
        .collect();
    contenders.sort_by(Contender::compare);
    contenders
}

/// Whether a child of a lock root is a contender of a known kind, by its name.
pub fn is_contender(name: &str) -> bool {
    Contender::parse(name).is_some()
}

/// The other children, which are not contenders of a known kind, in the order of their names.
pub fn unknown(children: &[String]) -> Vec<String> {
    let is_unknown = |name: &&String| !is_contender(name);
    let mut unknown: Vec<_> = children.iter().filter(is_unknown).cloned().collect();
    unknown.sort();
    unknown
}

/// The first of the [`sorted`] contenders that shows that the order is unknown from now on. The number in a name is the
/// parent's `cversion`, of 32 bits, which from ZooKeeper 3.6 on stays at its largest value (`DataTree.createNode`): two
/// that are created then can have one number, or a negative one. Each of several contenders with one number could
/// conclude that it is first; but for a reader and a writer of Curator, which are one client's.
pub(crate) fn out_of_numbers(sorted: &[Contender]) -> Option<&Contender> {
    let is_beyond = |contender: &&Contender| !(0..i32::MAX).contains(&contender.sequence);
    let twins = sorted
        .array_windows()
        .find(|[one, other]| one.sequence == other.sequence && !one.is_downgrade(other));
    sorted
        .iter()
        .find(is_beyond)
        .or_else(|| twins.map(|[_, other]| other))
}

/// The contenders before our own. Their set can only shrink: sequence numbers only grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    mode: Mode,
    contenders: Vec<Contender>,
    /// Clients that may or may not be before us. The lock is not held beside them.
    strangers: Vec<String>,
}

/// Our position in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// How many contenders have to leave before it is our turn; 0 if it is.
    pub position: usize,
    /// The nodes to watch; empty if it is our turn.
    pub watch: Vec<String>,
    /// Whether all contenders that have to leave hold the lock: we are next.
    pub(crate) is_heir: bool,
}

impl Ahead {
    /// From a listing of the children; `None` when our own contender is not among them.
    pub fn from_children(children: &[String], own: &str, mode: Mode) -> Option<Self> {
        let mut contenders = sorted(children);
        let index = contenders.iter().position(|contender| contender.name == own)?;
        let own = contenders.remove(index);
        // A reader with our number is that of a client of Curator which still believes in a writer of the same number, below
        // an earlier root. It reads at once.
        contenders.retain(|contender| contender.sequence <= own.sequence);
        Some(Self {
            mode,
            contenders,
            strangers: Vec::new(),
        })
    }

    /// The same with `strangers`: children that belong to a session and are not contenders of a known kind.
    pub(crate) fn with_strangers(mut self, strangers: impl IntoIterator<Item = String>) -> Self {
        self.strangers.extend(strangers);
        self
    }

    /// Clients that may or may not be before us.
    pub fn strangers(&self) -> &[String] {
        &self.strangers
    }

    /// Names of all contenders before us, including those that we need not wait for.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.contenders.iter().map(|contender| contender.name.as_str())
    }

    /// One of them was deleted. If it was seen to hold *alone*, no contender was before it, so none of those before it
    /// is left.
    pub fn remove(&mut self, name: &str, was_seen_held: bool) {
        let Some(index) = self
            .contenders
            .iter()
            .position(|contender| contender.name == name)
        else {
            return;
        };
        let held_alone = !matches!(self.mode, Mode::Semaphore(_)) && !self.contenders[index].is_reader;
        if was_seen_held && held_alone {
            self.contenders.drain(..=index);
        } else {
            self.contenders.remove(index);
        }
    }

    /// One of them was seen to hold. If it holds alone, no contender is before it. Returns true if more are recorded
    /// before it than is possible; then the children have to be listed again.
    pub(crate) fn seen_held(&mut self, name: &str) -> bool {
        let Some(index) = self
            .contenders
            .iter()
            .position(|contender| contender.name == name)
        else {
            return false;
        };
        if let Mode::Semaphore(limit) = self.mode {
            return index >= limit.get() as usize;
        }
        if !self.contenders[index].is_reader {
            self.contenders.drain(..index);
        }
        false
    }

    /// Our place, and the nodes to watch so that a change wakes only contenders that can act. A contender watches
    /// strangers if it has no other contender to wait for.
    pub fn place(&self) -> Place {
        let place = self.place_among_contenders();
        if self.strangers.is_empty() {
            return place;
        }
        match place.position {
            0 => Place {
                position: self.strangers.len(),
                watch: self.strangers.clone(),
                is_heir: false,
            },
            _ => Place {
                is_heir: false,
                ..place
            },
        }
    }

    fn place_among_contenders(&self) -> Place {
        let all = self.contenders.as_slice();
        let behind = |watch: &[Contender], position, is_heir| Place {
            position,
            watch: watch.iter().map(|contender| contender.name.clone()).collect(),
            is_heir,
        };
        let our_turn = Place {
            position: 0,
            watch: Vec::new(),
            is_heir: false,
        };
        match self.mode {
            Mode::Semaphore(limit) => {
                let limit = limit.get() as usize;
                match all.len().cmp(&limit) {
                    Ordering::Less => our_turn,
                    // The first waiter watches all holders: it is next when any of them leaves.
                    Ordering::Equal => behind(all, 1, true),
                    Ordering::Greater => behind(&all[all.len() - 1..], all.len() - limit + 1, false),
                }
            }
            Mode::Read => match all.iter().rposition(|contender| !contender.is_reader) {
                None => our_turn,
                Some(writer) => behind(&all[writer..=writer], writer + 1, writer == 0),
            },
            Mode::Exclusive | Mode::Write => match all {
                [] => our_turn,
                // The heir of readers watches all of them, to find out which of them is silent.
                [_] => behind(all, 1, true),
                _ if all.iter().all(|contender| contender.is_reader) => behind(all, all.len(), true),
                [.., last] => behind(std::slice::from_ref(last), all.len(), false),
            },
        }
    }
}
