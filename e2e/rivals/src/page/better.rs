//! The first paragraph of the page: where others are better than ours, and which locks need no fault to fail.

use std::cmp::Ordering;

use super::properties::link;
use super::summary::nobody;
use crate::cell::Cell;
use crate::faults::{FAULTS, Fault};
use crate::picture::cell;
use crate::results::Results;
use crate::systems::{SYSTEMS, System};

/// Ours: the default settings.
pub(super) const OWN: &str = "lockkeeper";

/// Ours with the session timeout that all have.
const OWN_SHORT: &str = "lockkeeper-short";

/// Gaps that differ by less than this, in seconds, are the same.
const SAME: f64 = 0.2;

/// After which faults another lock let a program run again sooner than ours, and did not let two run: the soonest one,
/// and how many there are.
pub(super) fn render(results: &Results) -> String {
    if !results.rounds.contains_key(OWN) {
        return "**Where others are better** than Lockkeeper is not measured yet.".to_owned();
    }
    let rows: String = FAULTS
        .iter()
        .filter(|fault| **fault != Fault::None)
        .filter_map(|fault| row(results, *fault))
        .collect();
    if rows.is_empty() {
        return "**Where others are better**: with none of the locks that did not let two run did a program run again sooner than \
                with Lockkeeper, after any fault."
            .to_owned();
    }
    format!(
        "**Where others are better.** After these faults another lock let a program run again sooner than Lockkeeper did, and \
         did not let two run. Locks whose holder never loses the lock by time are among them. With a session of 4 s, as \
         ZooKeeper's other clients have it here, Lockkeeper's lease is 1.7 s (by default 8.5 s), and the program gets 0.2 s \
         between SIGTERM and SIGKILL (3 s). \
         Times are median and worst; the last two columns count the locks that were sooner by the median, and by the worst.\n\n\
         | nobody runs after | Lockkeeper, defaults | Lockkeeper, session of 4 s | the soonest | sooner than the defaults | \
         sooner than the session of 4 s |\n\
         |---|---|---|---|---|---|\n{}",
        rows.trim_end()
    )
}

/// What of a cell is compared.
type Measure = fn(&Cell) -> Option<f64>;

const MEASURES: [Measure; 2] = [|cell| cell.median_gap, |cell| cell.worst_gap];

/// Nothing if no lock is better.
fn row(results: &Results, fault: Fault) -> Option<String> {
    let own = |name| cell(results, System::named(name)?, fault);
    let others = || {
        let all = SYSTEMS.iter().filter(|system| !system.name.starts_with(OWN));
        all.filter_map(|system| Some((system, cell(results, system, fault)?)))
    };
    let better_than = |own: Option<&Cell>, measure: Measure| {
        let own = own.and_then(measure);
        let is_better = |(system, other): &(&'static System, Cell)| {
            !lets_two_run_without_a_fault(results, system)
                && is_sooner(measure(other), own)
                && other.never_two(fault)
                && other.never_again == 0
        };
        others().filter(is_better).collect::<Vec<_>>()
    };
    // The fault may not apply to ours.
    let default = own(OWN)?;
    let short = own(OWN_SHORT);
    let better: Vec<_> = [Some(&default), short.as_ref()]
        .into_iter()
        .map(|own| MEASURES.map(|measure| better_than(own, measure)))
        .collect();
    let (soonest, of_soonest) = better.iter().flatten().flatten().min_by(|(_, one), (_, other)| {
        let order = one.median_gap.partial_cmp(&other.median_gap);
        order.unwrap_or(Ordering::Equal)
    })?;
    let measured = others().count();
    let counts = better
        .iter()
        .map(|[median, worst]| format!("{}, {} of {measured}", median.len(), worst.len()));
    Some(format!(
        "| {} | {} | {} | {}: {} | {} |\n",
        link(fault),
        nobody(&default),
        short.as_ref().map_or("not measured".to_owned(), nobody),
        soonest.title,
        nobody(of_soonest),
        counts.collect::<Vec<_>>().join(" | "),
    ))
}

/// The locks that let two run without any fault.
pub(super) fn without_a_fault(results: &Results) -> Option<String> {
    let two_run = |system: &&System| cell(results, system, Fault::None).is_some_and(|cell| cell.overlaps > 0);
    let found: Vec<_> = SYSTEMS.iter().filter(two_run).collect();
    (!found.is_empty()).then(|| {
        format!(
            "**Without any fault** these let two run, so their rows say nothing of a fault: {}.",
            titles(&found)
        )
    })
}

fn lets_two_run_without_a_fault(results: &Results, system: &System) -> bool {
    cell(results, system, Fault::None).is_some_and(|cell| cell.overlaps > 0)
}

fn is_sooner(other: Option<f64>, own: Option<f64>) -> bool {
    match (other, own) {
        (Some(other), Some(own)) => other + SAME < own,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

fn titles(systems: &[&System]) -> String {
    let titles: Vec<_> = systems.iter().map(|system| system.title).collect();
    titles.join("; ")
}
