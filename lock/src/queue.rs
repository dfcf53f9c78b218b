//! The order of the contenders, and which of them to watch. Pure.

mod name;

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
        contenders.truncate(index);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace()
            .map(|word| {
                let (kind, sequence) = word.split_at(1);
                let marker = match kind {
                    "r" => "-__READ__",
                    "w" => "-__WRIT__",
                    _ => "-lock-",
                };
                format!(
                    "_c_00000000-0000-0000-0000-000000000000{marker}{:010}",
                    sequence.parse::<i32>().unwrap()
                )
            })
            .collect()
    }

    fn name(word: &str) -> String {
        names(word).remove(0)
    }

    fn ahead(children: &str, own: &str, mode: Mode) -> Ahead {
        Ahead::from_children(&names(children), &name(own), mode).unwrap()
    }

    fn semaphore(limit: u32) -> Mode {
        Mode::Semaphore(NonZeroU32::new(limit).unwrap())
    }

    #[test]
    fn the_lowest_sequence_number_is_first_whatever_the_order_of_the_listing() {
        assert_eq!(ahead("l7 l3 l5", "l3", Mode::Exclusive).place().position, 0);
        let place = ahead("l7 l3 l5", "l7", Mode::Exclusive).place();
        assert_eq!(
            (place.position, place.watch, place.is_heir),
            (2, vec![name("l5")], false)
        );
        assert!(ahead("l7 l3 l5", "l5", Mode::Exclusive).place().is_heir);
    }

    #[test]
    fn a_contender_that_is_not_listed_has_no_place() {
        assert_eq!(
            Ahead::from_children(&names("l1 l2"), &name("l3"), Mode::Exclusive),
            None
        );
    }

    #[test]
    fn children_that_are_no_contenders_are_not_counted() {
        let mut children = names("l2");
        for foreign in [
            "x",
            "lock-1",
            "-lock-",
            "_c_x-lock-12",
            "leases",
            "_c_x-latch-0000000001",
        ] {
            children.push(foreign.to_owned());
        }
        let ahead = Ahead::from_children(&children, &name("l2"), Mode::Exclusive).unwrap();
        assert_eq!(ahead.place().position, 0);
    }

    #[test]
    fn contenders_whose_order_cannot_be_told_are_found() {
        for last in [
            "_c_a-lock-2147483647",
            "_c_a-lock--2147483648",
            "_c_a-lock--000000001",
            "_c_a-__READ__0000000007",
        ] {
            let children = ["_c_b-lock-0000000007", "_c_c-lock-0000000009", last].map(str::to_owned);
            let found = out_of_numbers(&sorted(&children)).map(|contender| contender.name.clone());
            assert_eq!(found.as_deref(), Some(last));
        }
        let children = ["_c_a-lock-0000000000", "_c_b-lock-2147483646"].map(str::to_owned);
        assert_eq!(out_of_numbers(&sorted(&children)), None);
    }

    #[test]
    fn a_reader_with_the_number_of_a_writer_is_the_same_clients_and_behind_it() {
        let (writer, reader) = ("_c_b-__WRIT__0000000007", "_c_a-__READ__0000000007");
        for children in [[writer, reader], [reader, writer]] {
            let sorted = sorted(&children.map(str::to_owned));
            assert_eq!(out_of_numbers(&sorted), None);
            assert_eq!([&*sorted[0].name, &*sorted[1].name], [writer, reader]);
        }
        let children = [writer, reader, "_c_c-__READ__0000000007"].map(str::to_owned);
        let found = out_of_numbers(&sorted(&children)).is_some();
        assert!(found, "two readers");
    }

    #[test]
    fn a_predecessor_seen_held_proves_that_nobody_else_is_before_us() {
        let mut queue = ahead("l1 l2 l3", "l3", Mode::Exclusive);
        queue.remove(&name("l2"), false);
        assert_eq!(queue.place().watch, [name("l1")], "it went while waiting");
        let mut queue = ahead("l1 l2 l3", "l3", Mode::Exclusive);
        queue.seen_held(&name("l2"));
        assert!(queue.place().is_heir);
        queue.remove(&name("l2"), true);
        assert_eq!(queue.place().position, 0);
    }

    #[test]
    fn a_predecessor_seen_to_hold_a_semaphore_proves_that_somebody_before_it_has_gone() {
        let mut queue = ahead("l1 l2 l3 l4", "l4", semaphore(2));
        assert!(
            queue.seen_held(&name("l3")),
            "l1 or l2 is gone, and no event has reported it"
        );
        let mut queue = ahead("l1 l3 l4", "l4", semaphore(2));
        assert!(!queue.seen_held(&name("l3")));
        assert!(queue.place().is_heir);
    }

    #[test]
    fn a_later_writer_excludes_all_before_it_and_a_later_reader_nobody() {
        assert!(excludes(&name("w3"), &name("r2")));
        assert!(excludes(&name("l3"), &name("l2")));
        assert!(!excludes(&name("r3"), &name("w2")));
        assert!(!excludes(&name("l2"), &name("l3")));
        assert!(!excludes(&name("l2"), &name("l2")));
        assert!(!excludes("10.0.0.7", &name("l2")));
    }

    #[test]
    fn a_semaphore_has_as_many_holders_as_it_says_and_its_first_waiter_watches_them_all() {
        for (own, position) in [("l1", 0), ("l2", 0), ("l3", 1), ("l4", 2)] {
            assert_eq!(
                ahead("l1 l2 l3 l4", own, semaphore(2)).place().position,
                position,
                "{own}"
            );
        }
        let mut heir = ahead("l1 l2 l3 l4", "l3", semaphore(2));
        assert_eq!(heir.place().watch, names("l1 l2"));
        heir.remove(&name("l2"), true);
        assert_eq!(heir.place().position, 0);
        let mut last = ahead("l1 l2 l3 l4", "l4", semaphore(2));
        assert_eq!(last.place().watch, [name("l3")]);
        last.remove(&name("l3"), true);
        assert_eq!(
            last.place().watch,
            names("l1 l2"),
            "a semaphore's holder does not hold alone"
        );
    }

    #[test]
    fn a_reader_waits_for_the_nearest_writer_only() {
        assert_eq!(ahead("r1 r2 r3", "r3", Mode::Read).place().position, 0);
        let place = ahead("w1 r2 w3 r4 r5", "r5", Mode::Read).place();
        assert_eq!((place.watch, place.is_heir), (vec![name("w3")], false));
        assert!(ahead("w1 r2 r3", "r3", Mode::Read).place().is_heir);
        let mut queue = ahead("w1 r2 w3 r4", "r4", Mode::Read);
        queue.remove(&name("w3"), false);
        assert_eq!(queue.place().watch, [name("w1")]);
        let mut queue = ahead("w1 r2 w3 r4", "r4", Mode::Read);
        queue.remove(&name("w3"), true);
        assert_eq!(queue.place().position, 0);
    }

    #[test]
    fn a_writer_waits_for_everybody_and_is_heir_behind_readers() {
        let mut queue = ahead("r1 r2 w3", "w3", Mode::Write);
        assert_eq!(
            (queue.place().watch, queue.place().is_heir),
            (vec![name("r1"), name("r2")], true)
        );
        queue.remove(&name("r2"), true);
        assert_eq!(queue.place().watch, [name("r1")], "another reader may still hold");
        assert_eq!(ahead("w1 r2 w3", "w3", Mode::Write).place().watch, [name("r2")]);
        assert!(!ahead("r1 w2 w3", "w3", Mode::Write).place().is_heir);
    }
}
