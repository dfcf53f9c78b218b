//! The part of the page about what locks cost when nothing breaks.

use std::fmt::Write as _;

use crate::cost::{CONTENDERS, Handoffs};
use crate::rank::{percentile, sorted};
use crate::results::{Costs, Results};
use crate::systems::{Driver, FLOOR, OF_CROWDS, SYSTEMS, System};

/// The size of the queue that is compared.
const TYPICAL: u32 = 50;

/// Handoffs that differ by less than this part are the same.
const SAME: f64 = 0.1;

const HOW: &str = "## What it costs\n\n\
    All contenders of a lock run in one process, each with a client of its own, and hold for 5 ms (of two: 150 ms). One that has \
    released stands back until another one holds, so each handoff is one to a contender that waited. It is the library that is measured, \
    ours too, with no program to stop and to start: from program to program, `lockkeeper run` takes longer, and needs more memory, as \
    [faults.md](faults.md) and [why.md](why.md) say. Lease, session timeout or expiry is 15 s; the servers wait for their disk where \
    that is their default. The locks are measured in turn, one after the other, by `make rivals ARGS=\"--costs\"`.";

/// What follows [`HOW`].
const FLOOR_IS: &str = " In the last row there is no recipe: one connection deletes a node, and the watch of another one tells. It is measured \
    in the same way, and so it is no lower bound: what differs less than turns do is the same.\n\n";

/// Who takes part, with what is known of it.
fn rows(results: &Results) -> impl Iterator<Item = (&'static System, &Costs)> {
    let all = SYSTEMS.iter().chain(OF_CROWDS);
    all.filter_map(|system| Some((system, results.costs.get(system.name)?)))
}

/// All tables; nothing before the first measurement.
pub(crate) fn render(page: &mut String, results: &Results) {
    if results.costs.is_empty() {
        return;
    }
    page.push_str(HOW);
    page.push_str(&turns(results));
    page.push_str(FLOOR_IS);
    handoffs(page, results);
    of_each(page, results);
    waiting(page, results);
    fairness(page, results);
}

/// How many turns there were.
fn turns(results: &Results) -> String {
    let counts = rows(results).flat_map(|(_, costs)| costs.handoffs.values().map(Vec::len));
    match counts.max() {
        None | Some(0) => String::new(),
        Some(1) => " Each value is of a single turn.".to_owned(),
        Some(most) => format!(" Each value is the median of up to {most} turns."),
    }
}

fn handoffs(page: &mut String, results: &Results) {
    let floor = results
        .costs
        .get(FLOOR)
        .and_then(|costs| value(costs, TYPICAL, |one| one.p50));
    page.push_str("### From a release to the next holder\n\nMedian and 99th percentile, by the number of contenders.\n\n");
    head(page, &["lock", "2", "50", "500", "50, of the floor"]);
    for (system, costs) in rows(results) {
        let both = |size| {
            let p50 = value(costs, size, |one| one.p50)?;
            let p99 = value(costs, size, |one| one.p99)?;
            Some(format!("{}, {}", millis(p50), millis(p99)))
        };
        let multiple = value(costs, TYPICAL, |one| one.p50)
            .zip(floor)
            .map(|(own, floor)| format!("{:.1}", own / floor));
        let cells = CONTENDERS.map(both);
        row(page, system, cells.into_iter().chain([multiple]));
    }
}

fn of_each(page: &mut String, results: &Results) {
    page.push_str(
        "\n### What a handoff takes\n\nRequests to the servers, by the number of contenders; more with more contenders is a herd that is \
         woken in vain. Then the time of processors with 50 contenders: of all servers, and of all contenders.\n\n",
    );
    head(
        page,
        &["lock", "requests: 2", "50", "500", "servers", "contenders"],
    );
    for (system, costs) in rows(results) {
        let requests = CONTENDERS.map(|size| {
            let values = costs.handoffs.get(&size)?;
            let median = median(values.iter().filter_map(|one| one.requests))?;
            Some(format!("{median:.0}"))
        });
        let largest = TYPICAL.min(system.largest_crowd);
        let times = [|one: &Handoffs| one.servers, |one: &Handoffs| one.contenders]
            .map(|time| value(costs, largest, time).map(millis));
        row(page, system, requests.into_iter().chain(times));
    }
}

fn waiting(page: &mut String, results: &Results) {
    page.push_str(
        "\n### What a minute of waiting takes\n\nOf one more contender that waits: its requests, the time of processors, and the memory \
         of one more client in a process that has the library already.\n\n",
    );
    head(page, &["lock", "requests", "servers", "waiter", "memory"]);
    for (system, costs) in rows(results) {
        if costs.waiting.is_empty() {
            continue;
        }
        let of = |pick: fn(&crate::cost::Waiting) -> f64| median(costs.waiting.iter().map(pick));
        let requests = median(costs.waiting.iter().filter_map(|one| one.requests));
        let cells = [
            requests.map(|requests| difference(requests, |requests| format!("{requests:.1}"))),
            of(|one| one.servers).map(|time| difference(time, millis)),
            of(|one| one.waiter).map(|time| difference(time, millis)),
            of(|one| one.memory).map(|bytes| difference(bytes, |bytes| format!("{:.2} MB", bytes / 1e6))),
        ];
        row(page, system, cells);
    }
}

fn fairness(page: &mut String, results: &Results) {
    let seconds = rows(results).find_map(|(_, costs)| Some(costs.fairness.first()?.seconds));
    let Some(seconds) = seconds else {
        return;
    };
    let _ = write!(
        page,
        "\n### Who gets it\n\n50 contenders that queue again at once, for {:.0} minutes (`make rivals ARGS=\"--fairness\"`): the longest \
         wait, and Jain's index of how often each held: 1 is equally often, 0.02 is one alone.\n\n",
        seconds / 60.0
    );
    head(page, &["lock", "longest wait", "Jain's index"]);
    for (system, costs) in rows(results) {
        if let Some(found) = costs.fairness.first() {
            let cells = [format!("{:.1} s", found.longest), format!("{:.3}", found.index)];
            row(page, system, cells.map(Some));
        }
    }
}

/// Who hands over sooner than `own` does.
pub(crate) fn faster_than(results: &Results, own: &str) -> Option<String> {
    let of = |name: &str| value(results.costs.get(name)?, TYPICAL, |one| one.p50);
    let ours = of(own)?;
    let better: Vec<_> = SYSTEMS
        .iter()
        .filter(|system| of(system.name).is_some_and(|p50| p50 < ours * (1.0 - SAME)))
        .map(|system| system.title)
        .collect();
    (!better.is_empty()).then(|| {
        format!(
            "**Faster handoffs** between {TYPICAL} contenders than ours ({}): {}.",
            millis(ours),
            better.join("; ")
        )
    })
}

fn head(page: &mut String, columns: &[&str]) {
    // Writing to a string does not fail.
    let _ = writeln!(
        page,
        "| {} |\n|{}",
        columns.join(" | "),
        "---|".repeat(columns.len())
    );
}

fn row(page: &mut String, system: &System, cells: impl IntoIterator<Item = Option<String>>) {
    let cells: Vec<_> = cells.into_iter().map(Option::unwrap_or_default).collect();
    let title = match system.driver {
        Driver::Own(_) => "Lockkeeper's library",
        _ => system.title,
    };
    let _ = writeln!(page, "| {title} | {} |", cells.join(" | "));
}

fn value(costs: &Costs, size: u32, pick: impl Fn(&Handoffs) -> f64) -> Option<f64> {
    median(costs.handoffs.get(&size)?.iter().map(pick))
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    percentile(&sorted(values), 50)
}

/// More with one more waiter than without.
fn difference(more: f64, words: impl Fn(f64) -> String) -> String {
    if more > 0.0 {
        words(more)
    } else {
        "lost in what else is done".to_owned()
    }
}

/// Three digits are what such a measurement can tell.
fn millis(seconds: f64) -> String {
    match seconds * 1e3 {
        millis if millis < 10.0 => format!("{millis:.2} ms"),
        millis if millis < 1000.0 => format!("{millis:.0} ms"),
        millis => format!("{:.1} s", millis / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(p50: f64) -> Costs {
        let one = Handoffs {
            count: 9,
            p50,
            p99: p50 * 2.0,
            requests: Some(4.0),
            servers: 0.001,
            contenders: 0.0005,
        };
        let mut costs = Costs::default();
        costs.handoffs.insert(50, vec![one.clone()]);
        costs.handoffs.insert(2, vec![one]);
        costs
    }

    #[test]
    fn a_faster_lock_is_named_and_handoffs_are_multiples_of_the_floor() {
        let mut results = Results::default();
        results.costs.insert("lockkeeper".to_owned(), of(0.002));
        results.costs.insert("kazoo".to_owned(), of(0.0019));
        assert_eq!(faster_than(&results, "lockkeeper"), None);
        results.costs.insert("pg-advisory".to_owned(), of(0.0005));
        results.costs.insert(FLOOR.to_owned(), of(0.001));
        let faster = faster_than(&results, "lockkeeper").unwrap();
        assert!(
            faster.ends_with("than ours (2.00 ms): PostgreSQL advisory lock."),
            "{faster}"
        );
        let mut page = String::new();
        render(&mut page, &results);
        let ours = "| Lockkeeper's library | 2.00 ms, 4.00 ms | 2.00 ms, 4.00 ms |  | 2.0 |\n";
        assert!(page.contains(ours), "{page}");
        assert!(
            page.contains("| Lockkeeper's library | 4 | 4 |  | 1.00 ms | 0.50 ms |\n"),
            "{page}"
        );
    }
}
