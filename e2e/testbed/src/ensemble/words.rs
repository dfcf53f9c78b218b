//! Four-letter words: the state of a server, as it reports it without a session.

use std::io::{Read, Write};
use std::time::Duration;

use super::servers::Ensemble;

/// A paused or starting server does not answer.
const ANSWER_BOUND: Duration = Duration::from_millis(500);

/// The role of a server, as it reports it. A server that is cut off from all others reports its former role
/// for up to `syncLimit` ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Leads; commits while it has a quorum.
    Leader,
    Follower,
    /// The only server.
    Standalone,
    /// Looks for a leader, starts, or is down.
    NotServing,
}

impl Mode {
    /// True when clients can have sessions with the server.
    pub fn serves(self) -> bool {
        self != Self::NotServing
    }
}

impl Ensemble {
    /// The answer of a server to a four-letter word such as `mntr`; `None` without an answer within half a
    /// second.
    pub fn ask(&self, server: usize, word: &str) -> Option<String> {
        let mut stream = self.observer().connect(self.address(server), ANSWER_BOUND).ok()?;
        stream.set_read_timeout(Some(ANSWER_BOUND)).ok()?;
        stream.write_all(word.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// The role that a server reports.
    pub fn mode(&self, server: usize) -> Mode {
        self.ask(server, "srvr")
            .map_or(Mode::NotServing, |answer| parse_mode(&answer))
    }

    /// The leader; if two servers report to lead, the one with the newer epoch.
    pub fn leader(&self) -> Option<usize> {
        self.members()
            .into_iter()
            .filter_map(|index| {
                let answer = self.ask(index, "srvr")?;
                let leads = matches!(parse_mode(&answer), Mode::Leader | Mode::Standalone);
                leads.then_some((parse_zxid(&answer)? >> 32, index))
            })
            .max()
            .map(|(_, index)| index)
    }

    /// The members that report to follow.
    pub fn followers(&self) -> Vec<usize> {
        let mut members = self.members();
        members.retain(|&index| self.mode(index) == Mode::Follower);
        members
    }

    /// The release that a server reports, such as `3.9.5`.
    pub fn version(&self, server: usize) -> Option<String> {
        parse_version(&self.ask(server, "srvr")?).map(str::to_owned)
    }

    /// The last transaction that a server has seen; the upper half is the epoch of its leader, the lower half
    /// the counter.
    pub fn zxid(&self, server: usize) -> Option<u64> {
        parse_zxid(&self.ask(server, "srvr")?)
    }

    /// How many followers of the leader are up to date.
    pub fn synced_followers(&self, leader: usize) -> Option<usize> {
        parse_count(&self.ask(leader, "mntr")?, "zk_synced_followers")
    }
}

fn parse_mode(srvr: &str) -> Mode {
    match srvr
        .lines()
        .find_map(|line| line.strip_prefix("Mode: "))
        .map(str::trim)
    {
        Some("leader") => Mode::Leader,
        Some("follower") => Mode::Follower,
        Some("standalone") => Mode::Standalone,
        _ => Mode::NotServing,
    }
}

/// `3.9.5-<commit>, built on <date>`
fn parse_version(srvr: &str) -> Option<&str> {
    let text = srvr
        .lines()
        .find_map(|line| line.strip_prefix("Zookeeper version: "))?;
    text.split(['-', ',']).next()
}

fn parse_zxid(srvr: &str) -> Option<u64> {
    let text = srvr.lines().find_map(|line| line.strip_prefix("Zxid: 0x"))?;
    u64::from_str_radix(text.trim(), 16).ok()
}

/// `mntr` writes some counts as `2.0`, some as `2`.
fn parse_count(mntr: &str, key: &str) -> Option<usize> {
    let value = mntr
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix('\t'))?;
    value.trim().split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: &str =
        "Zookeeper version: 3.9.5\nLatency min/avg/max: 0/0.0/0\nZxid: 0x20000000f\nMode: leader\n";

    #[test]
    fn a_server_is_what_srvr_says_and_nothing_while_it_looks_for_a_leader() {
        assert_eq!(parse_mode(LEADER), Mode::Leader);
        let looking = "This ZooKeeper instance is not currently serving requests\n";
        assert_eq!(parse_mode(looking), Mode::NotServing);
        assert_eq!(parse_zxid(LEADER), Some(0x2_0000_000f));
        assert_eq!(parse_version(LEADER), Some("3.9.5"));
        let built = "Zookeeper version: 3.8.4-c0ffee, built on 2026-01-01 10:00 UTC\n";
        assert_eq!(parse_version(built), Some("3.8.4"));
        assert_eq!(parse_version(looking), None);
    }

    #[test]
    fn counts_of_mntr_are_read_with_and_without_a_fraction() {
        let mntr = "zk_learners\t2\nzk_synced_followers\t2.0\nzk_synced_followers_x\t9\n";
        assert_eq!(parse_count(mntr, "zk_synced_followers"), Some(2));
        assert_eq!(parse_count(mntr, "zk_learners"), Some(2));
        assert_eq!(parse_count(mntr, "zk_absent"), None);
    }
}
