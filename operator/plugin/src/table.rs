//! Tables for people. Pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use lockkeeper_crds::lock::{ConditionType, Holder};
use lockkeeper_crds::{ApiDuration, ApiLease, DistributedLock};
use lockkeeper_daemon::table::{self, columns, plain};

use crate::holders::{named, taken};

/// Holders of which is told whose place they took, and as many of what outlives SIGKILL: there may be a thousand, and a status of one lock is to fit on a screen.
const HOLDERS_TOLD: usize = 10;

/// The columns of a list; some are there only if it is wide.
const COLUMNS: [&str; 6] = ["NAME", "HOLDER", "TOKEN", "WAITING", "SINCE", "READY"];
const WIDE_COLUMNS: [&str; 4] = ["NODE", "LEASE", "GUARD", "REVISION"];

/// One line for each lock.
pub(crate) fn list(locks: &[DistributedLock], with_namespace: bool, wide: bool, now: Timestamp) -> String {
    if locks.is_empty() {
        return "No locks found.\n".to_owned();
    }
    let cells = locks.iter().map(|lock| cells(lock, with_namespace, wide, now));
    let rows: Vec<_> = std::iter::once(heads(with_namespace, wide))
        .chain(cells)
        .collect();
    columns(&rows)
}

/// The line of one lock, in columns that are as wide as their heads at least.
pub(crate) fn row(lock: &DistributedLock, with_namespace: bool, wide: bool, now: Timestamp) -> String {
    let text = columns(&[
        heads(with_namespace, wide),
        cells(lock, with_namespace, wide, now),
    ]);
    text.split_once('\n')
        .map(|(_, row)| row.to_owned())
        .unwrap_or_default()
}

fn heads(with_namespace: bool, wide: bool) -> Vec<String> {
    let wide = WIDE_COLUMNS.iter().filter(|_| wide);
    let heads = with_namespace
        .then_some(&"NAMESPACE")
        .into_iter()
        .chain(&COLUMNS)
        .chain(wide);
    heads.map(ToString::to_string).collect()
}

fn cells(lock: &DistributedLock, with_namespace: bool, wide: bool, now: Timestamp) -> Vec<String> {
    let dash = || "-".to_owned();
    let status = lock.status.clone().unwrap_or_default();
    let first = status.holders.first();
    let cells = [
        lock.name_any(),
        if status.holders.is_empty() {
            dash()
        } else {
            named(&status.holders)
        },
        first.map_or_else(dash, |holder| holder.fencing_token.to_string()),
        status.waiting.map_or_else(dash, |waiting| waiting.to_string()),
        first
            .and_then(|holder| holder.since.as_ref())
            .map_or_else(dash, |since| age(since.0, now)),
        ready(lock),
    ];
    let of_first = |cell: fn(&Holder) -> Option<String>| first.and_then(cell).unwrap_or_else(dash);
    let wide_cells = wide.then(|| {
        [
            of_first(|holder| holder.node.clone()),
            of_first(|holder| holder.lease_duration.map(|lease| lease.to_string())),
            of_first(|holder| holder.guard.clone()),
            of_first(|holder| holder.revision.clone()),
        ]
    });
    let namespace = with_namespace.then(|| lock.namespace().unwrap_or_default());
    namespace
        .into_iter()
        .chain(cells)
        .chain(wide_cells.into_iter().flatten())
        .collect()
}

/// Everything about one lock.
pub(crate) fn describe(lock: &DistributedLock, now: Timestamp) -> String {
    let status = lock.status.clone().unwrap_or_default();
    let mut lines = Vec::new();
    let mut line = |name: &str, value: &str| lines.push((format!("{name}:"), plain(value)));
    line("Lock", &lock.name_any());
    line("Mode", lock.spec.mode.as_str());
    if let Some(budget) = status.stop_budget {
        line("Stop grace", &format!("{budget} between SIGTERM and SIGKILL"));
    }
    line("Lease", &lease(lock.spec.lease_duration, &status.holders));
    for holder in status.holders.iter().take(HOLDERS_TOLD) {
        if let Some(from) = &holder.taken_from {
            line("Taken over", &format!("by {} from {}", holder.pod, taken(from)));
        }
    }
    let kept = |holder: &Holder| Some((holder.pod.clone(), holder.survivors?));
    for (pod, survivors) in status.holders.iter().filter_map(kept).take(HOLDERS_TOLD) {
        line("Kept", &format!("by {pod}: {survivors}"));
    }
    for condition in &status.conditions {
        let value = format!(
            "{} ({}: {})",
            condition.status, condition.reason, condition.message
        );
        line(&condition.type_, &value);
    }
    if let Some(ensemble) = &status.ensemble {
        line("Ensemble", &ensemble.id);
    }
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (name, value) in lines {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:<width$} {value}");
    }
    let heads = [
        "PLACE", "POD", "NODE", "TOKEN", "SINCE", "LEASE", "GUARD", "REVISION",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    for holder in &status.holders {
        rows.push(vec![
            "holds".to_owned(),
            holder.pod.clone(),
            or_dash(holder.node.clone()),
            holder.fencing_token.to_string(),
            or_dash(holder.since.as_ref().map(|since| age(since.0, now))),
            or_dash(holder.lease_duration.map(|lease| lease.to_string())),
            or_dash(holder.guard.clone()),
            or_dash(holder.revision.clone()),
        ]);
    }
    for (index, waiter) in status.queue.iter().enumerate() {
        rows.push(vec![
            (index + 1).to_string(),
            waiter.pod.clone(),
            or_dash(waiter.node.clone()),
            "-".to_owned(),
            "-".to_owned(),
            "-".to_owned(),
            or_dash(waiter.guard.clone()),
            or_dash(waiter.revision.clone()),
        ]);
    }
    if rows.len() > 1 {
        let _ = write!(text, "\n{}", columns(&rows));
    }
    let waiting = usize::try_from(status.waiting.unwrap_or(0)).unwrap_or(0);
    if let Some(more) = waiting.checked_sub(status.queue.len()).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {more} more");
    }
    text
}

/// After which silence the next one takes the place of a holder: the setting, and what it is for the pods that hold. A
/// pod keeps the settings that it was created with, and `auto` depends on the tick of the ensemble and on what its
/// servers grant; so only the holders know it.
fn lease(setting: ApiLease, holders: &[Holder]) -> String {
    let in_force: BTreeSet<_> = holders.iter().map(|holder| holder.lease_duration).collect();
    let setting_in_force = match setting {
        ApiLease::Of(lease) => Some(Some(lease)),
        ApiLease::Off => Some(None),
        ApiLease::Auto => None,
    };
    let word =
        |lease: &Option<ApiDuration>| lease.map_or_else(|| "off".to_owned(), |lease| lease.to_string());
    match (in_force.first(), in_force.len()) {
        (None, _) => setting.to_string(),
        (Some(lease), 1) if setting_in_force == Some(*lease) => setting.to_string(),
        (Some(Some(lease)), 1) if setting == ApiLease::Auto => format!("{lease} ({setting})"),
        (Some(lease), 1) => format!("{}; {setting} for pods that are created now", word(lease)),
        (Some(_), _) => format!("{setting}; the holders have different lease durations"),
    }
}

fn ready(lock: &DistributedLock) -> String {
    let status = lock.status.as_ref();
    let ready = status.and_then(|status| status.condition(ConditionType::Ready));
    ready.map_or_else(|| "-".to_owned(), |one| one.status.clone())
}

pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(since.as_second());
    table::age(Duration::from_secs(seconds.try_into().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lock() -> DistributedLock {
        serde_json::from_value(json!({
            "apiVersion": "lockkeeper.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": "report", "namespace": "shop"}, "spec": {},
            "status": {
                "holders": [{"pod": "report-1", "node": "n1", "contender": "c", "fencingToken": 4294967331i64,
                    "since": "2026-01-01T00:00:00Z", "revision": "6c9d", "guard": "wrap", "leaseDuration": "8500ms",
                    "takenFrom": {"pod": "report-0", "contender": "c-lock-0000000001", "silence": "8612ms"}}],
                "stopBudget": "3s",
                "ensemble": {"id": "6f1d"},
                "waiting": 12,
                "queue": [{"pod": "report-2", "contender": "c"}],
                "conditions": [{"type": "Ready", "status": "True", "reason": "Provisioned", "message": "there",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn the_status_of_a_lock_says_for_what_it_is_kept() {
        let mut lock = lock();
        lock.status.as_mut().unwrap().holders[0].survivors =
            serde_json::from_value(json!({ "processes": 2, "pid": 4711 })).unwrap();
        let said = describe(&lock, now());
        let kept =
            "Kept:       by report-1: 2 processes of its application have outlived SIGKILL (process 4711)\n";
        assert!(said.contains(kept), "{said}");
    }

    fn now() -> Timestamp {
        "2026-01-01T00:41:00Z".parse().unwrap()
    }

    #[test]
    fn a_list_has_a_line_for_each_lock_and_its_namespace_where_all_are_asked_for() {
        assert_eq!(
            list(&[lock()], false, false, now()),
            "NAME     HOLDER     TOKEN        WAITING   SINCE   READY\n\
             report   report-1   4294967331   12        41m     True\n"
        );
        assert!(list(&[lock()], true, false, now()).starts_with("NAMESPACE   NAME"));
        assert_eq!(list(&[], true, false, now()), "No locks found.\n");
    }

    #[test]
    fn a_wide_list_has_four_more_columns_and_a_row_of_its_own_is_as_wide() {
        let wide = list(&[lock()], false, true, now());
        let row_alone = row(&lock(), false, true, now());
        assert!(wide.ends_with(&row_alone), "{wide}{row_alone}");
        assert!(
            row_alone.ends_with("   n1     8500ms   wrap    6c9d\n"),
            "{row_alone}"
        );
    }

    #[test]
    fn a_lock_is_described_with_its_queue_and_how_many_are_not_shown() {
        let text = describe(&lock(), now());
        assert!(text.contains("Ready:      True (Provisioned: there)"), "{text}");
        assert!(
            text.contains("Stop grace: 3s between SIGTERM and SIGKILL"),
            "{text}"
        );
        assert!(
            text.contains("holds   report-1   n1     4294967331   41m     8500ms   wrap    6c9d"),
            "{text}"
        );
        assert!(text.contains("1       report-2   -      -"), "{text}");
        assert!(text.contains("Ensemble:   6f1d\n"), "{text}");
        assert!(text.ends_with("and 11 more\n"), "{text}");
    }

    #[test]
    fn a_lock_is_described_with_from_whom_each_of_the_first_holders_has_taken_it() {
        let mut lock = lock();
        let told = "Taken over: by report-1 from report-0, which was silent for 8612ms\n";
        assert!(
            describe(&lock, now()).contains(told),
            "{}",
            describe(&lock, now())
        );
        let status = lock.status.as_mut().unwrap();
        status.holders = vec![status.holders[0].clone(); 1_000];
        assert_eq!(describe(&lock, now()).matches(told).count(), HOLDERS_TOLD);
    }

    #[test]
    fn the_lease_duration_is_the_one_in_force_and_not_only_the_setting() {
        let millis = |millis| Some(ApiDuration::from_millis(millis));
        let shown = |setting: &str, in_force: &[Option<ApiDuration>]| {
            let of = |lease: &Option<ApiDuration>| Holder {
                lease_duration: *lease,
                ..lock().status.unwrap().holders.remove(0)
            };
            let holders: Vec<_> = in_force.iter().map(of).collect();
            lease(setting.parse().unwrap(), &holders)
        };
        assert_eq!(shown("auto", &[millis(8_500)]), "8500ms (auto)");
        assert_eq!(shown("auto", &[]), "auto");
        assert_eq!(shown("9s", &[millis(9_000); 2]), "9s");
        assert_eq!(shown("off", &[None]), "off");
        // Of a pod with other settings, or of another client.
        assert_eq!(
            shown("9s", &[millis(8_500)]),
            "8500ms; 9s for pods that are created now"
        );
        assert_eq!(shown("auto", &[None]), "off; auto for pods that are created now");
        assert_eq!(
            shown("auto", &[millis(8_500), None]),
            "auto; the holders have different lease durations"
        );
    }

    #[test]
    fn what_somebody_writes_into_a_status_is_shown_and_not_carried_out() {
        let mut lock = lock();
        let status = lock.status.as_mut().unwrap();
        status.holders[0].pod = "a\u{1b}]0;owned\u{7}\nreport-9 \u{202e}b".into();
        status.holders[0].revision = Some("\u{9b}31m".into());
        status.holders[0].taken_from.as_mut().unwrap().pod = "\u{1b}[31m\u{202e}b".into();
        status.conditions[0].message = "\u{1b}[2J".into();
        for text in [list(&[lock.clone()], true, true, now()), describe(&lock, now())] {
            let odd = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!text.contains(odd), "{text:?}");
            assert!(text.contains("a\\u{1b}]0;owned\\u{7}\\nreport-9"), "{text}");
        }
    }

    #[test]
    fn what_begins_later_by_another_clock_is_new() {
        let since = |seconds| Timestamp::from_second(now().as_second() - seconds).unwrap();
        assert_eq!(age(since(7_200), now()), "2h");
        assert_eq!(age(since(-5), now()), "0s");
    }
}
