//! Numbers of what there may be many of, with some examples.

use lockkeeper_daemon::table::cut;

/// How many are named.
const NAMED: usize = 3;

/// Characters of each: others choose names and messages.
const LONGEST: usize = 200;

/// A number of things, and what is said of the first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) count: usize,
    examples: Vec<String>,
    has_more: bool,
}

impl Counted {
    pub(super) fn add(&mut self, says: &str) {
        self.count += 1;
        let says = cut(says, LONGEST);
        if self.examples.contains(&says) {
            return;
        }
        self.has_more = self.examples.len() == NAMED;
        if !self.has_more {
            self.examples.push(says);
        }
    }

    /// The examples, with a mark where there are more.
    pub(super) fn told(&self) -> String {
        let more = if self.has_more { ", …" } else { "" };
        self.examples.join(", ") + more
    }
}

#[test]
fn some_are_named_and_none_twice() {
    let mut counted = Counted::default();
    ["a", "a", "b", "c"].into_iter().for_each(|one| counted.add(one));
    assert_eq!((counted.count, counted.told().as_str()), (4, "a, b, c"));
    counted.add("d");
    assert_eq!((counted.count, counted.told().as_str()), (5, "a, b, c, …"));
    let mut long = Counted::default();
    long.add(&"x".repeat(10_000));
    assert_eq!(long.told().chars().count(), LONGEST + 1);
}
