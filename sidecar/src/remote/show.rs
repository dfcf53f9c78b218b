//! What was found, for people and for programs.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use lockkeeper_daemon::duration;
use lockkeeper_daemon::sentence::{few, first};
use lockkeeper_daemon::table::{age, columns, cut, plain};
use serde::Serialize;

use super::entry::Entry;
use super::queue::Queue;

/// Contenders of which a table has a line; a queue may have thousands.
const LINES: usize = 100;

/// Most characters of a line of `watch`: it has names that others choose.
const LONGEST_LINE: usize = 1_000;

/// The time of day, for ages.
pub(super) fn now() -> SystemTime {
    #[expect(
        clippy::disallowed_methods,
        reason = "people read it; no decision depends on it"
    )]
    SystemTime::now()
}

/// The time of day in RFC 3339, in whole seconds.
pub(super) fn time_of_day() -> String {
    humantime::format_rfc3339_seconds(now()).to_string()
}

/// As JSON, with a line end.
pub(super) fn json(found: &impl Serialize) -> String {
    let text = serde_json::to_string(found).expect("strings and numbers");
    format!("{text}\n")
}

/// One line for each lock.
pub(super) fn table(queues: &[Queue], now: SystemTime) -> String {
    if queues.is_empty() {
        return "No locks found.\n".to_owned();
    }
    let mut rows = vec![
        ["LOCK", "HOLDER", "TOKEN", "SINCE", "WAITING"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(queues.iter().map(|queue| {
        let first = queue.holders.first();
        vec![
            queue.lock.clone(),
            if first.is_some() {
                holders(queue)
            } else {
                "-".to_owned()
            },
            or_dash(first.and_then(|one| one.fencing_token)),
            or_dash(first.and_then(|one| one.age(now)).map(age)),
            queue.waiting.to_string(),
        ]
    }));
    columns(&rows)
}

/// Everything about one lock.
pub(super) fn queue(queue: &Queue, now: SystemTime) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:<10}{}", cut(&plain(value), LONGEST_LINE));
    };
    line("lock", &queue.lock);
    line("kind", &kind(queue));
    for one in &queue.holders {
        for (name, value) in notes(one, now) {
            line(name, &value);
        }
    }
    if !queue.strangers.is_empty() {
        let strangers = few(&queue.strangers);
        line(
            "strangers",
            &format!("{strangers}: no contenders of a known kind; keepers hold no lock beside them"),
        );
    }
    let places = queue.holders.iter().map(|one| ("holds".to_owned(), one));
    let waiting = queue.queue.iter().flatten().enumerate();
    let places: Vec<_> = places
        .chain(waiting.map(|(at, one)| ((at + 1).to_string(), one)))
        .collect();
    if places.is_empty() {
        text += "no contender is in the queue\n";
        return text;
    }
    let heads = [
        "PLACE",
        "WHO",
        "TOKEN",
        "STATE",
        "SINCE",
        "LEASE",
        "RENEWED",
        "CONTENDER",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(places.iter().take(LINES).map(|(place, one)| {
        vec![
            place.clone(),
            one.who(),
            or_dash(one.fencing_token),
            or_dash(state(one)),
            or_dash(one.age(now).map(age)),
            or_dash(one.lease_millis.map(millis)),
            or_dash(
                one.silent(now)
                    .map(|silent| format!("{} ago", duration::format(whole(silent)))),
            ),
            one.contender.clone(),
        ]
    }));
    let _ = write!(text, "\n{}", columns(&rows));
    if let Some(more) = places.len().checked_sub(LINES).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {more} more");
    }
    text
}

/// One line: who holds, and how many wait.
pub(super) fn line(queue: &Queue) -> String {
    let held = match queue.holders.as_slice() {
        [] if queue.missing => "deleted".to_owned(),
        [] => "free".to_owned(),
        [one] => {
            let token = one
                .fencing_token
                .map_or_else(String::new, |token| format!(" under token {token}"));
            match state(one) {
                Some("waiting") => format!("{} is first and does not hold yet", one.who()),
                _ => format!("held by {}{token}", one.who()),
            }
        }
        several => format!("held by {} contenders: {}", several.len(), holders(queue)),
    };
    cut(
        &plain(&format!("{}  {held}; {} waiting", queue.lock, queue.waiting)),
        LONGEST_LINE,
    )
}

fn holders(queue: &Queue) -> String {
    first(queue.holders.iter().map(Entry::who), 3)
}

fn kind(queue: &Queue) -> String {
    match (queue.kind, queue.max_holders) {
        (Some("exclusive"), Some(holders)) if holders > 1 => {
            format!("semaphore with at most {holders} holders")
        }
        (Some("exclusive"), _) => "exclusive".to_owned(),
        (Some(_), _) => "read/write".to_owned(),
        (None, _) => "unknown: its contenders have made no agreement".to_owned(),
    }
}

/// What a line of the table has no room for.
fn notes(one: &Entry, now: SystemTime) -> Vec<(&'static str, String)> {
    let mut notes = Vec::new();
    if let (Some(lease), Some(silent)) = (one.lease_millis, one.silent(now)) {
        let left = Duration::from_millis(lease).saturating_sub(silent);
        notes.push((
            "left",
            format!(
                "{}: about {} until the next contender may take its place, unless it renews (by the clocks of the \
                 ensemble's leader and of this machine)",
                one.who(),
                duration::format(whole(left))
            ),
        ));
    }
    if let Some(from) = &one.took_over {
        let silent = millis(from.silent_millis);
        let whose = from.whose();
        notes.push((
            "took over",
            format!("{}: from {whose}, which was silent for {silent}", one.who()),
        ));
    }
    if one.survivors.is_some() {
        let kept = "keeps the lock and runs nothing: processes of its application have outlived SIGKILL";
        notes.push(("kept", format!("{}: {kept}", one.who())));
    }
    notes
}

fn state(one: &Entry) -> Option<&str> {
    if one.unreadable {
        return Some("unreadable");
    }
    one.state.as_deref()
}

/// In whole tenths of a second.
fn whole(time: Duration) -> Duration {
    let tenths = time.as_millis() / 100;
    Duration::from_millis(u64::try_from(tenths).unwrap_or(u64::MAX / 100) * 100)
}

fn millis(millis: u64) -> String {
    duration::format(Duration::from_millis(millis))
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use lockkeeper_lock::{ContenderData, FencingToken, Participant};

    use super::super::ensemble::Node;
    use super::*;

    fn entry(number: i64, data: &str) -> Entry {
        let node = Node {
            data: data.as_bytes().to_vec(),
            is_readable: true,
            stat: Some(stat()),
        };
        let participant = Participant {
            name: format!("_c_0-lock-{number:010}"),
            token: FencingToken(number),
            is_holder: false,
            data: ContenderData::parse(data.as_bytes()).into(),
        };
        Entry::of(participant, Some(&node))
    }

    fn stat() -> zookeeper_client::Stat {
        zookeeper_client::Stat {
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            ctime: 0,
            mtime: 1_000_000,
            version: 0,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: 0,
            data_length: 0,
            num_children: 0,
        }
    }

    fn lock() -> Queue {
        let holder =
            r#"{"v":1,"state":"held","host":"db-1","since":"1970-01-01T00:00:00Z","leaseMillis":8500}"#;
        let waits =
            r#"{"v":1,"state":"waiting","pod":{"namespace":"shop","name":"report-1","uid":"u","node":"n"}}"#;
        Queue {
            kind: Some("exclusive"),
            max_holders: Some(1),
            holders: vec![entry(7, holder)],
            waiting: 1,
            queue: Some(vec![entry(8, waits)]),
            missing: false,
            ..Queue::gone("/locks/report")
        }
    }

    fn free() -> Queue {
        Queue {
            missing: false,
            ..Queue::gone("/locks/free")
        }
    }

    /// 2.3 s after the last renewal.
    fn then() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(1_002_340)
    }

    #[test]
    fn a_list_has_a_line_for_each_lock() {
        assert_eq!(
            table(&[lock(), free()], then()),
            "LOCK            HOLDER   TOKEN   SINCE   WAITING\n\
             /locks/report   db-1     7       16m     1\n\
             /locks/free     -        -       -       0\n"
        );
        assert_eq!(table(&[], then()), "No locks found.\n");
    }

    #[test]
    fn a_lock_is_shown_with_the_time_that_is_left_and_its_queue() {
        assert_eq!(
            queue(&lock(), then()),
            "lock      /locks/report\n\
             kind      exclusive\n\
             left      db-1: about 6100ms until the next contender may take its place, unless it renews (by the clocks of \
             the ensemble's leader and of this machine)\n\
             \n\
             PLACE   WHO             TOKEN   STATE     SINCE   LEASE    RENEWED      CONTENDER\n\
             holds   db-1            7       held      16m     8500ms   2300ms ago   _c_0-lock-0000000007\n\
             1       shop/report-1   8       waiting   -       -        -            _c_0-lock-0000000008\n"
        );
        assert!(queue(&free(), then()).ends_with("no contender is in the queue\n"));
    }

    #[test]
    fn a_queue_of_thousands_fits_on_a_few_screens() {
        let mut long = lock();
        long.queue = Some(vec![entry(8, "{}"); 3_000]);
        let text = queue(&long, then());
        assert!(text.ends_with("and 2901 more\n"), "{text}");
        assert!(text.lines().count() < 120, "{text}");
    }

    #[test]
    fn a_line_says_who_holds_and_how_many_wait() {
        assert_eq!(
            line(&lock()),
            "/locks/report  held by db-1 under token 7; 1 waiting"
        );
        assert_eq!(line(&free()), "/locks/free  free; 0 waiting");
        assert_eq!(line(&Queue::gone("/locks/old")), "/locks/old  deleted; 0 waiting");
        let mut early = lock();
        early.holders = vec![entry(7, r#"{"state":"waiting","host":"db-1"}"#)];
        assert_eq!(
            line(&early),
            "/locks/report  db-1 is first and does not hold yet; 1 waiting"
        );
        early.holders = vec![entry(7, "10.0.0.7"), entry(8, "{}")];
        assert_eq!(
            line(&early),
            "/locks/report  held by 2 contenders: 10.0.0.7, _c_0-lock-0000000008; 1 waiting"
        );
    }
}
