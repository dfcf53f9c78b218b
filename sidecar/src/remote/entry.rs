//! A contender as the ensemble shows it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lockkeeper_daemon::table::cut;
use lockkeeper_lock::{Participant, Pod, Survivors, TookOver};
use serde::Serialize;

use super::ensemble::Node;

/// Longest data of another client that are shown, in bytes: enough for an address, which Curator writes.
const LONGEST_WORD: usize = 64;

/// Longest name on a page, in characters: other clients choose names of up to 1 MB.
pub(super) const LONGEST_NAME: usize = 253;

/// The same name, not longer than that.
pub(super) fn shown(name: &str) -> String {
    cut(name, LONGEST_NAME)
}

/// A contender, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    /// Its name below the lock root.
    pub(super) contender: String,
    /// The token under which it holds the lock, or will; none if it was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fencing_token: Option<i64>,
    /// We have no right to read it: only its name is known, and from older servers its token.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) unreadable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<Pod>,
    /// The machine of a contender outside Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) host: Option<String>,
    /// What another client has written about itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) address: Option<String>,
    /// `held` or `waiting`, as it says itself; none of another client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revision: Option<String>,
    /// RFC 3339, by the clock of its machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stop_budget_millis: Option<u64>,
    /// L: after this time without a renewal the next contender may take its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease_millis: Option<u64>,
    /// Its last renewal, in RFC 3339, by the clock of the ensemble's leader; known if it has a lease duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) renewed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) took_over: Option<TookOver>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) survivors: Option<Survivors>,
}

impl Entry {
    /// A contender, and its node if that was asked for.
    pub(super) fn of(participant: Participant, node: Option<&Node>) -> Self {
        let Participant {
            name, token, data, ..
        } = participant;
        let data = Arc::unwrap_or_clone(data);
        let stat = node.and_then(|node| node.stat.as_ref());
        let renewed = data.lease_millis.and(stat).and_then(|stat| time(stat.mtime));
        Self {
            contender: name,
            fencing_token: stat.map(|_| token.0),
            unreadable: node.is_some_and(|node| !node.is_readable),
            address: node
                .filter(|_| data.state.is_empty())
                .and_then(|node| word(&node.data)),
            state: Some(data.state).filter(|state| !state.is_empty()),
            pod: data.pod,
            host: data.host,
            revision: data.revision,
            since: data.since,
            stop_budget_millis: data.stop_budget_millis,
            lease_millis: data.lease_millis,
            renewed: renewed.map(|time| humantime::format_rfc3339_millis(time).to_string()),
            took_over: data.took_over,
            survivors: data.survivors,
        }
    }

    /// The shortest name by which people know it.
    pub(super) fn who(&self) -> String {
        let pod = self
            .pod
            .as_ref()
            .map(|pod| format!("{}/{}", pod.namespace, pod.name));
        let host = self.host.clone();
        pod.or(host)
            .or_else(|| self.address.clone())
            .unwrap_or_else(|| self.contender.clone())
    }

    /// The node that it runs on, if it is a pod.
    pub(super) fn node(&self) -> Option<String> {
        self.pod.as_ref().map(|pod| pod.node.clone())
    }

    /// Whether it holds, if it is first. Another client does not say whether it does.
    pub(super) fn is_holding(&self) -> bool {
        self.state.as_deref().is_none_or(|state| state == "held")
    }

    /// Whether `name` is one of its names.
    pub(super) fn is(&self, name: &str) -> bool {
        let pod = self.pod.as_ref().map(|pod| pod.name.as_str());
        self.contender == name || self.who() == name || pod == Some(name)
    }

    /// How long ago it renewed, by the clocks of the ensemble's leader and of this machine.
    pub(super) fn silent(&self, now: SystemTime) -> Option<Duration> {
        let renewed = humantime::parse_rfc3339(self.renewed.as_deref()?).ok()?;
        Some(now.duration_since(renewed).unwrap_or_default())
    }

    /// Since when it holds or waits, as it says itself.
    pub(super) fn began(&self) -> Option<SystemTime> {
        humantime::parse_rfc3339(self.since.as_deref()?).ok()
    }

    /// How long ago that was.
    pub(super) fn age(&self, now: SystemTime) -> Option<Duration> {
        Some(now.duration_since(self.began()?).unwrap_or_default())
    }
}

/// A time of the leader, in milliseconds since 1970.
fn time(millis: i64) -> Option<SystemTime> {
    /// The end of the year 9999, the last that RFC 3339 can write.
    const LAST: u64 = 253_402_300_799_999;
    let millis = u64::try_from(millis).ok().filter(|millis| *millis <= LAST)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
}

fn word(data: &[u8]) -> Option<String> {
    let word = std::str::from_utf8(data).ok()?.trim();
    let is_part = |c: char| c.is_ascii_alphanumeric() || ".:-_".contains(c);
    let is_word = !word.is_empty() && word.len() <= LONGEST_WORD && word.chars().all(is_part);
    is_word.then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_leader_with_a_wild_clock_is_left_out() {
        assert_eq!(time(-1), None);
        assert_eq!(time(i64::MAX), None);
        assert_eq!(time(1_000), Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1)));
    }

    #[test]
    fn the_address_of_another_client_is_shown_and_nothing_else_that_it_may_have_written() {
        assert_eq!(word(b"10.0.0.7\n").as_deref(), Some("10.0.0.7"));
        for odd in [&b""[..], b"two words", b"\x1b[2J", &[b'x'; 65]] {
            assert_eq!(word(odd), None);
        }
    }
}
