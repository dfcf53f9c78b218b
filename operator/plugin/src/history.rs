//! The holders of a lock and its former ones, as far as the status remembers them. Pure.

use k8s_openapi::jiff::Timestamp;
use lockkeeper_crds::lock::{DistributedLockStatus, Holder, PastHolder};
use lockkeeper_daemon::table::columns;
use serde::Serialize;

use crate::table::age;

const COLUMNS: [&str; 7] = ["POD", "NODE", "TOKEN", "SINCE", "UNTIL", "HELD", "ENDED"];

/// What is known of the holds of a lock, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Holds<'a> {
    holders: &'a [Holder],
    history: &'a [PastHolder],
}

impl<'a> Holds<'a> {
    pub(crate) fn of(status: &'a DistributedLockStatus) -> Self {
        let DistributedLockStatus { holders, history, .. } = status;
        Self { holders, history }
    }

    /// For people: a line for each, the newest first.
    pub(crate) fn table(&self, now: Timestamp) -> String {
        if self.holders.is_empty() && self.history.is_empty() {
            return "The status names no holder, present or former.\n".to_owned();
        }
        let now_holding = self.holders.iter().rev().map(|holder| {
            let since = holder.since.as_ref().map(|since| since.0);
            let dash = || "-".to_owned();
            [
                holder.pod.clone(),
                holder.node.clone().unwrap_or_else(dash),
                holder.fencing_token.to_string(),
                time(since),
                dash(),
                held(since, now),
                "holds".to_owned(),
            ]
        });
        let past = self.history.iter().map(|past| {
            let since = past.since.as_ref().map(|since| since.0);
            [
                past.pod.clone(),
                past.node.clone().unwrap_or_else(|| "-".to_owned()),
                past.fencing_token.to_string(),
                time(since),
                time(Some(past.until.0)),
                held(since, past.until.0),
                ended(past),
            ]
        });
        let rows: Vec<_> = std::iter::once(COLUMNS.map(str::to_owned))
            .chain(now_holding)
            .chain(past)
            .map(Vec::from)
            .collect();
        columns(&rows)
    }
}

fn ended(past: &PastHolder) -> String {
    let by = past.taken_by.as_ref().map(|by| format!(" by {by}"));
    let silence = past.silence.map(|silence| format!(" after {silence}"));
    [Some(past.ended.to_string()), by, silence]
        .into_iter()
        .flatten()
        .collect()
}

fn time(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "-".to_owned(), |at| format!("{at:.0}"))
}

/// The two clocks may differ: then it may seem to have ended before it began.
fn held(since: Option<Timestamp>, until: Timestamp) -> String {
    since.map_or_else(|| "-".to_owned(), |since| age(since, until))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status() -> DistributedLockStatus {
        serde_json::from_value(json!({
            "holders": [{"pod": "report-2", "node": "n2", "contender": "c-lock-0000000003", "fencingToken": 4294967331i64,
                "since": "2026-01-01T00:40:00.4Z"}],
            "history": [
                {"pod": "report-1", "node": "n1", "contender": "c-lock-0000000002", "fencingToken": 4294967320i64,
                    "since": "2026-01-01T00:10:00.9Z", "until": "2026-01-01T00:40:00Z", "ended": "TakenOver",
                    "takenBy": "report-2", "silence": "8612ms"},
                {"pod": "batch.example", "contender": "c-lock-0000000001", "fencingToken": 4294967311i64,
                    "until": "2026-01-01T00:10:01Z", "ended": "Released"},
            ],
        }))
        .unwrap()
    }

    fn now() -> Timestamp {
        "2026-01-01T00:41:00Z".parse().unwrap()
    }

    #[test]
    fn a_history_has_a_line_for_each_hold_with_its_times_and_how_it_ended_the_newest_first() {
        assert_eq!(
            Holds::of(&status()).table(now()),
            "POD             NODE   TOKEN        SINCE                  UNTIL                  HELD   ENDED\n\
             report-2        n2     4294967331   2026-01-01T00:40:00Z   -                      60s    holds\n\
             report-1        n1     4294967320   2026-01-01T00:10:00Z   2026-01-01T00:40:00Z   30m    \
             TakenOver by report-2 after 8612ms\n\
             batch.example   -      4294967311   -                      2026-01-01T00:10:01Z   -      Released\n"
        );
        let nobody = DistributedLockStatus::default();
        assert!(
            Holds::of(&nobody)
                .table(now())
                .starts_with("The status names no holder")
        );
    }

    #[test]
    fn what_somebody_writes_into_a_history_is_shown_and_not_carried_out() {
        let mut status = status();
        status.history[0].pod = "a\u{1b}]0;owned\u{7}\nreport-9 \u{202e}b".into();
        status.history[0].taken_by = Some("\u{1b}[2J".into());
        status.history[1].node = Some("\u{9b}31m".into());
        let text = Holds::of(&status).table(now());
        let odd = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(odd), "{text:?}");
        assert_eq!(text.lines().count(), 4, "{text}");
    }

    #[test]
    fn programs_get_the_holders_and_the_history_as_the_status_has_them() {
        let status = status();
        let told = serde_json::to_value(Holds::of(&status)).unwrap();
        let whole = serde_json::to_value(&status).unwrap();
        assert_eq!(told["history"], whole["history"]);
        assert_eq!(told["holders"], whole["holders"]);
    }
}
