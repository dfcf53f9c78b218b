//! The reads of one connection that are under way, and how their answers are used.
//!
//! Events overtake answers. An event about a place that is being read decides whether the answer counts, and whether the
//! place is read again.

use std::collections::HashMap;

use crate::zookeeper::paths::Place;

/// The reads under way. Each place is read once at a time.
#[derive(Default)]
pub(super) struct UnderWay(HashMap<Place, Fate>);

/// How an answer that is under way is to be used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Counts,
    /// The node was changed since: the answer counts, and the node is read again.
    Changed,
    /// The node was deleted since.
    Void,
    /// The node was deleted and created again: read it again.
    Replaced,
}

impl UnderWay {
    pub(super) fn begin(&mut self, place: Place) {
        self.0.insert(place, Fate::Counts);
    }

    /// A read ends, and its answer has this fate.
    pub(super) fn end(&mut self, place: &Place) -> Fate {
        self.0.remove(place).unwrap_or(Fate::Void)
    }

    /// The node was deleted; false if it is not being read.
    pub(super) fn make_void(&mut self, place: &Place) -> bool {
        self.set(place, |_| Fate::Void)
    }

    /// The node was listed again; false if it is not being read.
    pub(super) fn replace(&mut self, place: &Place) -> bool {
        self.set(place, |_| Fate::Replaced)
    }

    /// The node was changed or made again; false if it is not being read.
    pub(super) fn read_again(&mut self, place: &Place) -> bool {
        self.set(place, |fate| match fate {
            Fate::Counts | Fate::Changed => Fate::Changed,
            Fate::Void | Fate::Replaced => Fate::Replaced,
        })
    }

    fn set(&mut self, place: &Place, next: impl FnOnce(Fate) -> Fate) -> bool {
        let Some(fate) = self.0.get_mut(place) else {
            return false;
        };
        *fate = next(*fate);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_unless_its_node_was_deleted_and_what_changed_meanwhile_is_read_again() {
        let fate = |events: &[fn(&mut UnderWay, &Place) -> bool]| {
            let mut under_way = UnderWay::default();
            let place = Place::Locks;
            under_way.begin(place.clone());
            for event in events {
                assert!(event(&mut under_way, &place));
            }
            let fate = under_way.end(&place);
            assert!(!under_way.read_again(&place), "it is read no more");
            fate
        };
        assert!(fate(&[]) == Fate::Counts);
        assert!(fate(&[UnderWay::read_again]) == Fate::Changed);
        assert!(fate(&[UnderWay::read_again, UnderWay::make_void]) == Fate::Void);
        assert!(fate(&[UnderWay::make_void, UnderWay::read_again]) == Fate::Replaced);
        assert!(fate(&[UnderWay::replace]) == Fate::Replaced);
    }
}
