//! The table of all systems: which driver, which servers, and what can be done to them.

mod table;

use crate::lease::Lease;
use crate::servers::Kind;
pub(crate) use table::FLOOR;
pub use table::{OF_CROWDS, SYSTEMS};

/// The program that drives a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// `lockkeeper run` with these further options.
    Own(&'static [&'static str]),
    /// The project below `java/`.
    Java,
    /// The module below `go/`.
    Go,
    /// The programs below `python/`.
    Python,
    /// This recipe of `lockkeeper-crowd`: it is in no fault, only in the costs.
    Crowd(&'static str),
}

/// A lock of the field.
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// Its name on the command line, and for its driver.
    pub name: &'static str,
    /// Its name in the page.
    pub title: &'static str,
    pub driver: Driver,
    pub servers: Kind,
    pub lease: Lease,
    /// The program that has the lock, below the driver, if the driver itself has no library of it.
    pub program: Option<&'static str>,
    /// The largest crowd of it on one machine; 0 for none.
    pub(crate) largest_crowd: u32,
}

impl System {
    /// Whether there are Sentinels, the addresses say.
    pub(crate) fn name_for_driver(&self) -> &'static str {
        self.name.trim_end_matches("@sentinel")
    }

    /// Whether its library leaves it to its user to renew, or to ask, and to notice that nobody answers any more.
    pub(crate) fn is_watched_by_driver(&self) -> bool {
        let libraries = [
            "jdbc-row-expiry",
            "jdbc-version",
            "redis-lock",
            "redlock",
            "memcached",
        ];
        self.is_one_of(&libraries) || self.name.contains("-checked")
    }

    /// Whether a call that finds the lock taken returns at once, and the driver calls again.
    pub(crate) fn is_polled_by_driver(&self) -> bool {
        self.is_one_of(&["jdbc-row", "jdbc-version", "redis-setnx", "memcached", "shedlock"])
    }

    /// Whether its library gives no token: the driver asks the server for a number that has grown when the lock was got.
    pub(crate) fn has_token_by_driver(&self) -> bool {
        self.is_one_of(&["k8s-lease", "consul-api"])
    }

    fn is_one_of(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.name.starts_with(name))
    }

    pub fn named(name: &str) -> Option<&'static Self> {
        SYSTEMS.iter().chain(OF_CROWDS).find(|system| system.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = SYSTEMS.iter().map(|system| system.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SYSTEMS.len());
    }
}
