//! A lock as the page shows it: the fields of a `DistributedLock`'s status that the page reads. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use lockkeeper_daemon::duration;
use lockkeeper_daemon::page::{Problem, Row};
use lockkeeper_daemon::sentence::few;
use serde::Serialize;

use super::super::entry::{Entry, LONGEST_NAME, shown};
use super::super::queue::Queue;
use super::past::{Hold, Past, Unseen};

/// Most holders of a lock that are shown, and most of those that wait.
const MOST_SHOWN: usize = 32;

/// What the page shows of one lock.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    holders: Vec<Holder>,
    /// How many wait.
    waiting: usize,
    queue: Vec<Waiting>,
    history: &'a VecDeque<Hold>,
    unseen: &'a VecDeque<Unseen>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Holder {
    pod: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    contender: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fencing_token: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_duration: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    taken_from: Option<TakenFrom>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    survivors: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_unreadable: bool,
}

#[derive(Serialize)]
struct TakenFrom {
    pod: String,
    silence: String,
}

#[derive(Serialize)]
struct Waiting {
    pod: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
}

/// The contenders that hold: those that are first and do not say that they still wait.
pub(super) fn holding(queue: &Queue) -> impl Iterator<Item = &Entry> {
    queue.holders.iter().filter(|one| one.is_holding())
}

/// Whether a lease of this contender ends after a silence: a takeover states the name of the silent one, and cannot state a
/// longer one.
pub(super) fn has_lease(one: &Entry) -> bool {
    one.lease_millis.is_some() && one.contender.len() <= LONGEST_NAME
}

/// The row of a lock, in JSON. `doubt` says why it may be over.
pub(super) fn row(queue: &Queue, past: &Past, number: u64, connect: &str, doubt: Option<String>) -> String {
    let first = queue.holders.iter().filter(|one| !one.is_holding());
    let others = queue.queue.iter().flatten();
    let status = Status {
        holders: holding(queue)
            .take(MOST_SHOWN)
            .map(|one| holder(one, past))
            .collect(),
        waiting: queue.waiting + queue.holders.len() - holding(queue).count(),
        queue: first.chain(others).take(MOST_SHOWN).map(waiting).collect(),
        history: past.holds(),
        unseen: past.unseen(),
    };
    let (mode, max_holders) = match (queue.kind, queue.max_holders) {
        (Some("readWrite"), _) => ("ReadWrite", 1),
        (Some(_), holders) => ("Exclusive", holders.unwrap_or(1)),
        (None, _) => ("Kind unknown: its contenders have made no agreement", 1),
    };
    let row = Row {
        key: &queue.lock,
        command: format!(
            "lockkeeper inspect --connect {} --lock {}",
            quoted(connect),
            quoted(&queue.lock)
        ),
        mode,
        max_holders: max_holders.into(),
        status,
        doubt,
        problem: problem(queue),
        is_followed: true,
        renewals: Some(number),
    };
    row.json()
}

fn holder(one: &Entry, past: &Past) -> Holder {
    Holder {
        pod: shown(&one.who()),
        node: one.node(),
        contender: shown(&one.contender),
        fencing_token: one.fencing_token,
        since: past.since(&one.contender),
        lease_duration: one.lease_millis.filter(|_| has_lease(one)).map(millis),
        taken_from: one.took_over.as_ref().map(|from| TakenFrom {
            pod: shown(&from.whose()),
            silence: millis(from.silent_millis),
        }),
        survivors: one.survivors.is_some(),
        is_unreadable: one.unreadable,
    }
}

fn waiting(one: &Entry) -> Waiting {
    Waiting {
        pod: shown(&one.who()),
        node: one.node(),
        revision: one.revision.clone(),
    }
}

fn problem(queue: &Queue) -> Option<Problem> {
    if !queue.strangers.is_empty() {
        let strangers = few(queue.strangers.iter().map(|name| shown(name)));
        return Some(Problem {
            text: "strangers in the queue",
            more: format!("{strangers}: no contenders of a known kind; keepers hold no lock beside them"),
        });
    }
    let unreadable = queue.all().find(|one| one.unreadable)?;
    Some(Problem {
        text: "not all of it may be read",
        more: format!(
            "{}: give --auth-file with an identity that may read it",
            shown(&unreadable.contender)
        ),
    })
}

fn millis(millis: u64) -> String {
    duration::format(Duration::from_millis(millis))
}

/// One word of a shell: a user may paste it, and other clients choose the names of nodes.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_.:,+-".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use lockkeeper_lock::{ContenderData, FencingToken, Participant};
    use serde_json::{Value, json};

    use super::super::past::Moments;
    use super::*;
    use crate::remote::ensemble::Node;
    use crate::remote::show::now;

    fn entry(name: &str, data: &str) -> Entry {
        let node = Node {
            data: data.as_bytes().to_vec(),
            is_readable: data != "secret",
            stat: None,
        };
        let participant = Participant {
            name: name.to_owned(),
            token: FencingToken(7),
            is_holder: true,
            data: ContenderData::parse(data.as_bytes()).into(),
        };
        Entry::of(participant, Some(&node))
    }

    fn lock(path: &str, holders: &[Entry], queue: &[Entry]) -> Queue {
        Queue {
            missing: false,
            kind: Some("exclusive"),
            max_holders: Some(1),
            holders: holders.to_vec(),
            waiting: queue.len(),
            queue: Some(queue.to_vec()),
            ..Queue::gone(path)
        }
    }

    fn told(queue: &Queue) -> Value {
        let mut past = Past::default();
        past.see(&holding(queue).collect::<Vec<_>>(), &Moments::default(), now());
        serde_json::from_str(&row(queue, &past, 7, "zk1:2181", None)).unwrap()
    }

    const HELD: &str =
        r#"{"v":1,"state":"held","host":"db-1","since":"2026-01-01T00:00:00Z","leaseMillis":8500}"#;
    const WAITS: &str =
        r#"{"v":1,"state":"waiting","pod":{"namespace":"shop","name":"report-1","uid":"u","node":"n"}}"#;

    #[test]
    fn the_page_gets_holders_with_their_leases_and_the_queue() {
        let told = told(&lock("/locks/report", &[entry("a", HELD)], &[entry("b", WAITS)]));
        assert_eq!(
            told["status"],
            json!({
                "holders": [{"pod": "db-1", "contender": "a", "since": "2026-01-01T00:00:00.000Z", "leaseDuration": "8500ms"}],
                "waiting": 1, "queue": [{"pod": "shop/report-1", "node": "n"}], "history": [], "unseen": [],
            })
        );
        assert_eq!(
            told["command"],
            "lockkeeper inspect --connect zk1:2181 --lock /locks/report"
        );
        assert_eq!(
            (&told["isFollowed"], &told["renewals"], &told["doubt"]),
            (&json!(true), &json!(7), &Value::Null)
        );
    }

    #[test]
    fn who_is_first_and_still_waits_does_not_hold() {
        let told = told(&lock("/locks/report", &[entry("a", WAITS)], &[entry("b", WAITS)]));
        assert_eq!(told["status"]["holders"], json!([]));
        assert_eq!(told["status"]["waiting"], 2);
        assert_eq!(told["status"]["queue"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn what_may_not_be_read_and_strangers_are_told_and_no_lease_is_made_up_for_them() {
        let mut queue = lock("/locks/report", &[entry("a", "secret")], &[]);
        let unreadable = told(&queue);
        assert_eq!(unreadable["problem"]["text"], "not all of it may be read");
        let holder = &unreadable["status"]["holders"][0];
        assert_eq!(
            (holder.get("leaseDuration"), &holder["isUnreadable"]),
            (None, &json!(true))
        );
        queue.strangers = vec!["x".repeat(1_000_000)];
        let told = told(&queue);
        assert_eq!(told["problem"]["text"], "strangers in the queue");
        assert!(told.to_string().len() < 2_000, "{told}");
    }

    #[test]
    fn names_of_a_megabyte_are_cut_and_thousands_of_contenders_are_counted() {
        let long = entry(&"x".repeat(1_000_000), r#"{"state":"held","leaseMillis":8500}"#);
        let told = told(&lock("/locks/a", &[long], &vec![entry("b", WAITS); 3_000]));
        let status = &told["status"];
        assert_eq!(status["holders"][0].get("leaseDuration"), None);
        assert_eq!(
            (&status["waiting"], status["queue"].as_array().unwrap().len()),
            (&json!(3_000), MOST_SHOWN)
        );
        assert!(told.to_string().len() < 10_000);
    }

    #[test]
    fn a_command_that_is_pasted_runs_nothing_that_a_name_contains() {
        assert_eq!(quoted("/locks/a-1"), "/locks/a-1");
        assert_eq!(quoted("/locks/$(reboot)"), "'/locks/$(reboot)'");
        assert_eq!(quoted("/a';reboot;'"), r"'/a'\'';reboot;'\'''");
    }
}
