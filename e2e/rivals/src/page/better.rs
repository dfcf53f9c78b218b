//! The first paragraph of the page: where others are better than ours, and which locks need no fault to fail.

use std::fmt::Write as _;

use crate::cell::Cell;
use crate::faults::{FAULTS, Fault};
use crate::picture::{cell, seconds};
use crate::results::Results;
use crate::systems::{SYSTEMS, System};

/// Ours: the default settings.
pub(super) const OWN: &str = "lockkeeper";

/// Ours with a lease as short as theirs.
const OWN_SHORT: &str = "lockkeeper-short";

/// Gaps that differ by less than this, in seconds, are the same.
const SAME: f64 = 0.2;

/// The locks with which a program ran again sooner than with ours, fault by fault: of those that never let two run, in
/// any fault or in this one.
pub(super) fn render(results: &Results) -> String {
    if !results.rounds.contains_key(OWN) {
        return "**Where others are better** than ours is not measured yet.".to_owned();
    }
    let mut rows = String::new();
    for &fault in FAULTS.iter().filter(|fault| **fault != Fault::None) {
        let of = |name| System::named(name).and_then(|system| cell(results, system, fault));
        let Some(own) = of(OWN) else {
            continue;
        };
        let is_better = |system: &&System| {
            !system.name.starts_with(OWN)
                && !lets_two_run_without_a_fault(results, system)
                && cell(results, system, fault).is_some_and(|other| is_sooner(&other, &own))
        };
        let (always, here): (Vec<_>, Vec<_>) = SYSTEMS
            .iter()
            .filter(is_better)
            .partition(|system| never_lets_two_run(results, system));
        if always.is_empty() && here.is_empty() {
            continue;
        }
        // Writing to a string does not fail.
        let _ = writeln!(
            rows,
            "| [{0}](#{0}) | {1} | {2} | {3} | {4} |",
            fault.name(),
            own.median_gap.map_or("never".to_owned(), seconds),
            of(OWN_SHORT)
                .and_then(|cell| cell.median_gap)
                .map_or_else(String::new, seconds),
            titles(&always),
            titles(&here)
        );
    }
    if rows.is_empty() {
        return "**Where others are better**: of the locks that did not let two run, with none a program ran again sooner than \
                with ours, after any fault."
            .to_owned();
    }
    format!(
        "**Where others are better.** With these locks a program ran again sooner than with ours, which has its default settings, \
         and two did not run at once:\n\n\
         | fault | ours | ours, short lease | sooner, and never two after any of these faults | sooner, and never two after this fault |\n\
         |---|---|---|---|---|\n{}",
        rows.trim_end()
    )
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

fn is_sooner(other: &Cell, own: &Cell) -> bool {
    let is_sooner = match (other.median_gap, own.median_gap) {
        (Some(other), Some(own)) => other + SAME < own,
        (Some(_), None) => true,
        (None, _) => false,
    };
    is_sooner && other.overlaps == 0 && other.never_again == 0
}

fn never_lets_two_run(results: &Results, system: &System) -> bool {
    let mut cells = FAULTS.iter().filter_map(|&fault| cell(results, system, fault));
    cells.all(|cell| cell.overlaps == 0)
}

fn titles(systems: &[&System]) -> String {
    let titles: Vec<_> = systems.iter().map(|system| system.title).collect();
    titles.join("; ")
}
