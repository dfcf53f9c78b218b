//! The lines of releases of ZooKeeper's server, and which of them a run of the tests takes.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::SOURCES;

/// The environment variable that names the line of releases of this run's servers, such as `3.5`.
pub const RELEASE: &str = "LOCKKEEPER_ZOOKEEPER";

/// A line of releases of ZooKeeper's server. A `pom.xml` pins one release of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    V3_5,
    V3_6,
    V3_7,
    V3_8,
    /// The line that everything runs on unless something else is asked for: the server, Curator, and our own classes.
    V3_9,
}

impl Release {
    pub(super) const ALL: [Self; 5] = [Self::V3_5, Self::V3_6, Self::V3_7, Self::V3_8, Self::V3_9];

    /// That of servers of which a test asks for none: the one that [`RELEASE`] names, else 3.9.
    ///
    /// # Panics
    /// When the variable names no line of [`Release::ALL`]: the tests would run on something else than was asked for.
    pub fn of_this_run() -> Self {
        static CHOSEN: OnceLock<Release> = OnceLock::new();
        *CHOSEN.get_or_init(|| match std::env::var(RELEASE) {
            Ok(line) => Self::named(&line).unwrap_or_else(|| {
                let lines = Self::ALL.map(Self::line).join(", ");
                panic!(
                    "{RELEASE}={line} is no line of releases of ZooKeeper that can be had here; have: {lines}"
                )
            }),
            Err(_) => Self::V3_9,
        })
    }

    fn named(line: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|release| release.line() == line)
    }

    /// Its major and minor number.
    pub fn line(self) -> &'static str {
        match self {
            Self::V3_5 => "3.5",
            Self::V3_6 => "3.6",
            Self::V3_7 => "3.7",
            Self::V3_8 => "3.8",
            Self::V3_9 => "3.9",
        }
    }

    /// The folder of its `pom.xml`.
    pub(super) fn sources(self) -> PathBuf {
        match self {
            Self::V3_9 => PathBuf::from(SOURCES),
            _ => Path::new(SOURCES).join("releases"),
        }
    }

    /// The profile of that `pom.xml` with its release.
    pub(super) fn profile(self) -> Option<&'static str> {
        (self != Self::V3_9).then(|| self.line())
    }

    /// The jar with our own classes, which are compiled against one line only.
    pub(super) fn jar(self) -> Option<&'static str> {
        (self == Self::V3_9).then_some("lockkeeper-e2e.jar")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_releases_is_found_by_its_number_and_no_other_word_is_one() {
        for release in Release::ALL {
            assert_eq!(Release::named(release.line()), Some(release));
        }
        assert_eq!(Release::named("3.4"), None);
        assert_eq!(Release::named(""), None);
    }

    #[test]
    fn a_pom_pins_a_release_of_every_line() {
        for release in Release::ALL {
            let pom = std::fs::read_to_string(release.sources().join("pom.xml")).unwrap();
            let pinned = format!("<zookeeper.version>{}.", release.line());
            assert_eq!(pom.matches(&pinned).count(), 1, "{release:?}");
        }
    }
}
