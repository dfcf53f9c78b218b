//! The data of the control node.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::document::document;
use super::hold::{self, Hold};
use crate::token::FencingToken;

/// Longest control node that is read, in bytes. It has room for a request that a thousand contenders step down, for
/// sixteen releases and for eight holds. Data that other clients write there take up to a hundred times as much memory
/// as they have bytes, and a keeper has 64 MiB.
pub const LONGEST_CONTROL_DATA: usize = 128 << 10;

/// A contender that holds, or has held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Name of the contender.
    pub contender: String,
    /// Its token; 0 if it did not record itself, and another contender saw it leave.
    pub token: FencingToken,
}

/// A request that some contenders step down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct YieldRequest {
    /// Identifies the request in logs.
    pub id: String,
    /// Names of the contenders that have to release and queue again at the end. A contender that did so has a new name,
    /// so it carries out a request once.
    pub contenders: Vec<String>,
}

/// A deliberate release, unlike a loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanRelease {
    /// Name of the contender.
    pub contender: String,
    /// The token under which it held the lock.
    pub token: FencingToken,
}

/// How many clean releases the control node remembers: more than one, because holders of a semaphore leave
/// independently.
const REMEMBERED_RELEASES: usize = 16;

/// Data of the control node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Control {
    /// Version of this format: 1.
    pub v: u32,
    /// The request that contenders step down, if there is one.
    #[serde(rename = "yield", skip_serializing_if = "Option::is_none")]
    pub yield_request: Option<YieldRequest>,
    /// The last clean releases, newest first.
    pub last_release: Vec<CleanRelease>,
    /// The holders, and those that have died and for which no later holder has waited yet; at most 64. `None` if no
    /// contender has recorded any yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holders: Option<Vec<Holder>>,
    /// How often one of them was left out; 0 if all that matter are named.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_holders: u32,
    /// Who has held, and who holds, the last ones: newest first, at most [`hold::HOLDS_KEPT`]. For people: no decision
    /// depends on it.
    #[serde(deserialize_with = "hold::read", skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<Hold>,
    /// Fields of other clients.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Control {
    /// That of a new lock.
    pub fn new() -> Self {
        Self {
            v: 1,
            ..Self::default()
        }
    }

    /// Reads the control node. Foreign data, and data of more than 128 KiB, count as none, and the next release
    /// replaces them.
    pub fn parse(data: &[u8]) -> Self {
        document(data, LONGEST_CONTROL_DATA).unwrap_or_default()
    }

    /// The same with a request that contenders step down: as many of them, from the first on, as there is room for. The
    /// next request asks the others.
    pub fn with_yield(mut self, mut request: YieldRequest) -> Self {
        self.v = 1;
        self.yield_request = None;
        // Room for the releases that are recorded meanwhile.
        let mut room = (LONGEST_CONTROL_DATA / 2).saturating_sub(self.to_data().len());
        request.contenders.retain(|name| {
            // With quotation marks and a comma. A character of a name takes at most as many bytes in JSON as in
            // ZooKeeper.
            let fits = name.len() + 3 <= room;
            room = if fits { room - name.len() - 3 } else { 0 };
            fits
        });
        self.yield_request = Some(request);
        self
    }

    /// The same with one more clean release, as data.
    pub fn with_release(mut self, release: CleanRelease) -> Vec<u8> {
        self.v = 1;
        self.last_release.insert(0, release);
        self.last_release.truncate(REMEMBERED_RELEASES);
        self.to_data()
    }

    /// The data to write.
    pub fn to_data(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers")
    }

    /// Whether a contender is asked to step down.
    pub fn asks(&self, contender: &str) -> bool {
        self.yield_request
            .as_ref()
            .is_some_and(|request| request.contenders.iter().any(|name| name == contender))
    }

    /// Whether a contender that held under this token, and is gone, left without a clean release: its session expired,
    /// its node was deleted, or its lock was left to expire. False if that is unknown because more releases have come
    /// since than are remembered.
    pub fn was_lost(&self, contender: &str, token: FencingToken) -> bool {
        let is_owed = self
            .holders
            .iter()
            .flatten()
            .any(|holder| holder.contender == contender);
        let reaches_back = self.last_release.len() < REMEMBERED_RELEASES
            || self.last_release.iter().any(|release| release.token < token);
        !self.released(contender) && (is_owed || reaches_back)
    }

    /// Whether a contender released cleanly, and recently enough to be remembered.
    pub fn released(&self, contender: &str) -> bool {
        self.last_release
            .iter()
            .any(|release| release.contender == contender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::contender::ContenderData;

    #[test]
    fn a_release_keeps_the_yield_request_and_what_others_wrote() {
        let before = Control::parse(br#"{"v":1,"yield":{"id":"7","contenders":["a"]},"note":"x"}"#);
        assert!(before.asks("a") && !before.asks("b"));
        let after = Control::parse(&before.with_release(CleanRelease {
            contender: "b".into(),
            token: FencingToken(9),
        }));
        assert!(after.asks("a"));
        assert!(after.released("b") && !after.released("a"));
        assert_eq!(after.other.get("note"), Some(&Value::from("x")));
    }

    #[test]
    fn data_that_are_too_long_are_foreign() {
        let contender = |length: usize| {
            format!("{{\"state\":\"held\",\"note\":\"{}\"}}", "x".repeat(length)).into_bytes()
        };
        assert!(ContenderData::parse(&contender(4000)).is_held());
        assert!(!ContenderData::parse(&contender(4096)).is_held());
        let control =
            |objects: usize| format!("{{\"v\":1,\"note\":[{}0]}}", "{\"\":0},".repeat(objects)).into_bytes();
        assert_eq!(Control::parse(&control(16_000)).v, 1);
        // ZooKeeper accepts a megabyte: in memory these data would take a hundred.
        assert_eq!(Control::parse(&control(130_000)), Control::default());
    }

    #[test]
    fn a_wish_has_as_many_contenders_as_keepers_read_the_first_ones_first() {
        let contenders: Vec<_> = (0..5000)
            .map(|number| format!("_c_{:036}-lock-{number:010}", 7))
            .collect();
        let request = YieldRequest {
            id: "7".into(),
            contenders: contenders.clone(),
        };
        let control = Control::parse(&Control::default().with_yield(request).to_data());
        let asked = control.yield_request.expect("it is read").contenders;
        assert!(asked.len() > 1000, "{}", asked.len());
        assert_eq!(asked, contenders[..asked.len()]);
    }

    #[test]
    fn a_holder_was_lost_when_it_is_gone_without_a_release_that_would_be_remembered() {
        let release = |at: i64| CleanRelease {
            contender: format!("c{at}"),
            token: FencingToken(at),
        };
        let mut control = Control::default();
        let was_lost = |control: &Control, at: i64| control.was_lost(&format!("c{at}"), FencingToken(at));
        assert!(was_lost(&control, 1), "no contender has released yet");
        for at in 10..30 {
            control = Control::parse(&control.with_release(release(at)));
        }
        assert!(!was_lost(&control, 29) && !was_lost(&control, 14), "it released");
        assert!(was_lost(&control, 31));
        assert!(
            !was_lost(&control, 13),
            "unknown: the release may have been forgotten"
        );
        control.holders = Some(vec![Holder {
            contender: "c13".into(),
            token: FencingToken(13),
        }]);
        assert!(was_lost(&control, 13), "it is recorded as a holder");
    }

    #[test]
    fn only_the_last_releases_are_remembered_the_newest_first() {
        let mut control = Control::default();
        for i in 0..40 {
            let release = CleanRelease {
                contender: format!("c{i}"),
                token: FencingToken(i),
            };
            control = Control::parse(&control.with_release(release));
        }
        assert_eq!(control.last_release.len(), REMEMBERED_RELEASES);
        assert_eq!(control.last_release[0].contender, "c39");
        assert!(!control.released("c0"));
    }
}
