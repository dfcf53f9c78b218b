//! Releases of ZooKeeper's server that can lose what the ensemble has committed, told from what `srvr` answers.
//!
//! The lock rests on committed writes. A server that loses some may show a queue without its holder when it leads. Each
//! entry names the issue of ZooKeeper, and the first releases with its mend, by the commits in their tags.

use std::fmt;
use std::time::Duration;

use super::ServerAddress;
use super::servers::ZooKeeper;

/// A release: major, minor, patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Release(u32, u32, u32);

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor, patch) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// Why a release should not keep locks.
#[derive(Debug, PartialEq, Eq)]
struct Defect {
    what: &'static str,
    issue: &'static str,
    /// The nearest releases without it.
    better: &'static str,
}

/// A follower that had been behind keeps a gap in the transactions that it hands on as a leader. It came with
/// ZOOKEEPER-4394 in 3.9.3, and 3.9.4 mends it.
const GAP: Defect = Defect {
    what: "a server that was behind, and then leads, can lose committed writes",
    issue: "ZOOKEEPER-4925",
    better: "3.9.4",
};

/// A follower acknowledges the new leader before what it got from it is on its disk. 3.8.5 and 3.9.2 mend it; no later
/// release of 3.7 and before exists.
const UNSAVED: Defect = Defect {
    what: "a server that crashes while it catches up with a new leader can lose committed writes",
    issue: "ZOOKEEPER-4785",
    better: "3.8.5 or 3.9.4",
};

fn defect(release: Release) -> Option<&'static Defect> {
    match release {
        Release(3, 9, 3) => Some(&GAP),
        Release(3, 9, 0 | 1) => Some(&UNSAVED),
        release if release < Release(3, 8, 5) => Some(&UNSAVED),
        _ => None,
    }
}

impl ZooKeeper {
    /// Asks all servers at once for their release, with the four-letter word `srvr`, and logs a warning for each that
    /// can lose committed writes. A server that does not answer within `patience` is not judged.
    pub async fn warn_of_defects(&self, patience: Duration) {
        let servers = self.connect.servers().iter();
        let asked = servers.map(async |server| Some((server, self.defect_of(server, patience).await?)));
        for (server, (release, defect)) in futures_util::future::join_all(asked).await.into_iter().flatten() {
            let Defect { what, issue, better } = defect;
            tracing::warn!(
                %server, %release, issue,
                "Server runs a release of ZooKeeper in which {what}, and with them who holds a lock; upgrade to {better}"
            );
        }
    }

    async fn defect_of(
        &self,
        server: &ServerAddress,
        patience: Duration,
    ) -> Option<(Release, &'static Defect)> {
        let answer = tokio::time::timeout(patience, self.ask(server, b"srvr")).await;
        let release = parse(&answer.ok()??)?;
        Some((release, defect(release)?))
    }
}

/// Reads the release from the answer to `srvr`: `Zookeeper version: 3.8.6-c0ffee, built on …`.
fn parse(answer: &[u8]) -> Option<Release> {
    let answer = String::from_utf8_lossy(answer);
    let version = answer
        .lines()
        .find_map(|line| line.strip_prefix("Zookeeper version:"))?;
    let version = version.split([',', '-']).next()?.trim();
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    let release = Release(numbers.next()??, numbers.next()??, numbers.next()??);
    numbers.next().is_none().then_some(release)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_read_from_the_answer_to_srvr() {
        let told = b"Zookeeper version: 3.9.5-c0ffee, built on 2026-01-01 10:00 UTC\nMode: leader\n";
        assert_eq!(parse(told), Some(Release(3, 9, 5)));
        let patched = b"Zookeeper version: 3.5.10-1, built on 1\n";
        assert_eq!(parse(patched), Some(Release(3, 5, 10)));
        for other in [
            "",
            "srvr is not executed",
            "Zookeeper version: 4",
            "Zookeeper version: 3.9.x, b",
        ] {
            assert_eq!(parse(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn releases_that_can_lose_committed_writes_are_named_with_their_issue_and_no_other_is() {
        let named = |minor, patch| defect(Release(3, minor, patch)).map(|defect| defect.issue);
        for (minor, patch) in [(5, 10), (6, 4), (7, 2), (8, 4), (9, 0), (9, 1)] {
            assert_eq!(named(minor, patch), Some("ZOOKEEPER-4785"), "3.{minor}.{patch}");
        }
        assert_eq!(named(9, 3), Some("ZOOKEEPER-4925"));
        for (minor, patch) in [(8, 5), (8, 6), (9, 2), (9, 4), (9, 5), (10, 0)] {
            assert_eq!(named(minor, patch), None, "3.{minor}.{patch}");
        }
    }
}
