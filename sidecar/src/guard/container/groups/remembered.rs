//! Groups that were seen, in memory that was set aside before.

use super::line::is_in;

/// Longest line that is remembered: a path (PATH_MAX), and what is before it.
pub(super) const LONGEST: usize = 4096 + 256;

/// Groups in memory that was allocated before, the most recently used first.
#[derive(Debug)]
pub(super) struct Remembered<const MOST: usize> {
    groups: [Vec<u8>; MOST],
    /// How many were ever known.
    count: usize,
}

impl<const MOST: usize> Remembered<MOST> {
    pub(crate) fn new() -> Self {
        Self {
            groups: std::array::from_fn(|_| Vec::with_capacity(LONGEST)),
            count: 0,
        }
    }

    /// Remembers it, in place of the least recently used one.
    pub(crate) fn learn(&mut self, group: &[u8]) {
        let is_known = |known: &Vec<u8>| known == group;
        let at = self.groups.iter().position(is_known).unwrap_or_else(|| {
            self.count += 1;
            self.groups[MOST - 1].clear();
            self.groups[MOST - 1].extend_from_slice(group);
            MOST - 1
        });
        self.groups[..=at].rotate_right(1);
    }

    /// Whether the group of this line is one of them, or below one.
    pub(crate) fn has(&mut self, line: &[u8]) -> bool {
        let is_its = |known: &Vec<u8>| !known.is_empty() && is_in(line, known);
        let at = self.groups.iter().position(is_its);
        if let Some(at) = at {
            self.groups[..=at].rotate_right(1);
        }
        at.is_some()
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }
}
