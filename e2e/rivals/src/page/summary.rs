//! What the rounds say together: which lock never let two run, and with which a program always ran again.

use std::fmt::Write as _;

use super::properties::link;
use crate::cell::{Cell, ONE_LINE};
use crate::faults::{FAULTS, Fault};
use crate::picture::{cell, seconds};
use crate::results::Results;
use crate::systems::{SYSTEMS, System};

const WORDS: &str = "## In short\n\n\
    *Never two*: the worst overlap after any fault that was done to the lock, if there was one. *But a late line*: when a \
    [paused machine](#holder-paused) wakes, its program may write one line more before it is stopped, which no lock that expires \
    prevents. *Within one process*: the same without [library-paused](#library-paused), which cannot happen where the lock's library \
    and the work are one process. A program that a lock of a library starts as a child, or a sidecar, is in danger of it. *Runs \
    again*: after each fault, a program ran again in every round. *Holder crashed*: how long nobody ran \
    after [that fault](#holder-crashed): median, worst. *Faults*: how many were done to it; below each table is who was left out, and \
    why. [memory-full](#memory-full) counts for memcached only: Redis throws keys away only if it is told to.\n\n\
    | lock | never two | within one process | runs again | holder crashed | faults |\n|---|---|---|---|---|---|\n";

pub(super) fn render(page: &mut String, results: &Results) {
    if results.rounds.is_empty() {
        return;
    }
    page.push_str(WORDS);
    for system in SYSTEMS {
        let cells = cells_of(results, system);
        if cells.is_empty() {
            continue;
        }
        let crashed = cells.iter().find(|(fault, _)| *fault == Fault::HolderCrashed);
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} |",
            system.title,
            overlap(cells.iter()),
            overlap(cells.iter().filter(|(fault, _)| *fault != Fault::LibraryPaused)),
            again(&cells),
            crashed.map_or(String::new(), |(_, cell)| nobody(cell)),
            cells.len(),
        );
    }
    page.push_str(&sentence(results));
}

/// What was measured of a system, and is no fault of how its servers are set.
fn cells_of(results: &Results, system: &System) -> Vec<(Fault, Cell)> {
    let counts = |fault: &&Fault| !fault.is_of_a_setting(system);
    let measured = |&fault: &Fault| Some((fault, cell(results, system, fault)?));
    FAULTS.iter().filter(counts).filter_map(measured).collect()
}

/// How long nobody ran.
pub(super) fn nobody(cell: &Cell) -> String {
    match (cell.median_gap, cell.worst_gap) {
        (Some(median), Some(worst)) => format!("{}, {}", seconds(median), seconds(worst)),
        _ => "nobody again".to_owned(),
    }
}

/// The worst overlap, with its fault.
fn overlap<'a>(cells: impl Iterator<Item = &'a (Fault, Cell)>) -> String {
    let mut woke = false;
    let overlaps = cells.filter_map(|(fault, cell)| {
        let is_late_line = cell.has_only_late_lines(*fault);
        woke |= is_late_line;
        (!is_late_line).then_some((fault, cell, cell.worst_overlap?))
    });
    match overlaps.max_by(|(.., one), (.., other)| one.total_cmp(other)) {
        None if woke => format!("yes, but [a late line](#{})", Fault::HolderPaused.name()),
        None => "yes".to_owned(),
        Some((fault, cell, worst)) => {
            let bound = if cell.goes_on { "at least " } else { "" };
            format!("{bound}{} ({})", brief(worst), link(*fault))
        }
    }
}

fn again(cells: &[(Fault, Cell)]) -> String {
    let never: Vec<_> = cells
        .iter()
        .filter(|(_, cell)| cell.never_again > 0)
        .map(|(fault, _)| link(*fault))
        .collect();
    match never.is_empty() {
        true => "yes".to_owned(),
        false => format!("not after {}", never.join(", ")),
    }
}

/// An overlap, in words.
pub(super) fn brief(worst: f64) -> String {
    if worst < ONE_LINE {
        "under 5 ms".to_owned()
    } else {
        seconds(worst)
    }
}

/// Which locks passed everything.
fn sentence(results: &Results) -> String {
    let passes = |system: &System, but: Option<Fault>| {
        let mut cells = cells_of(results, system);
        cells.retain(|(fault, _)| Some(*fault) != but);
        let passes = |(fault, cell): &(Fault, Cell)| cell.never_two(*fault) && cell.never_again == 0;
        !cells.is_empty() && cells.iter().all(passes)
    };
    let title = |system: &System| system.title;
    let (always, others): (Vec<&System>, Vec<&System>) = SYSTEMS
        .iter()
        .filter(|system| results.rounds.contains_key(system.name))
        .partition(|system| passes(system, None));
    let within: Vec<_> = others
        .into_iter()
        .filter(|system| passes(system, Some(Fault::LibraryPaused)))
        .map(title)
        .collect();
    let always: Vec<_> = always.into_iter().map(title).collect();
    let named = |titles: Vec<&str>| match titles.is_empty() {
        true => "none".to_owned(),
        false => titles.join("; "),
    };
    format!(
        "\nNever two, but for a late line, and a program ran again after each fault: {}. Within one process also: {}.\n\n",
        named(always),
        named(within)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Round;

    #[test]
    fn a_lock_that_only_fails_beside_its_library_is_named_as_one_for_a_single_process() {
        let mut results = Results::default();
        let mut add = |system: &str, fault, overlap, gap| {
            let faults = results.rounds.entry(system.to_owned()).or_default();
            faults.entry(fault).or_default().push(Round {
                overlap,
                gap,
                ..Round::default()
            });
        };
        add("lockkeeper", Fault::HolderCrashed, None, Some(7.8));
        add("lockkeeper", Fault::LibraryPaused, None, Some(3.0));
        add("lockkeeper", Fault::HolderPaused, Some(0.0), Some(7.0));
        add("kazoo", Fault::HolderCrashed, None, Some(3.0));
        add("kazoo", Fault::LibraryPaused, Some(6.0), Some(0.0));
        add("jdbc-row@postgres", Fault::HolderCrashed, None, None);
        let mut page = String::new();
        render(&mut page, &results);
        for line in [
            "| Lockkeeper `run` | yes, but [a late line](#holder-paused) | yes, but [a late line](#holder-paused) | yes | 7.8 s, 7.8 s | 3 |\n",
            "| kazoo `Lock` | 6.0 s ([library-paused](#library-paused)) | yes | yes | 3.0 s, 3.0 s | 2 |\n",
            "| unique row, PostgreSQL | yes | yes | not after [holder-crashed](#holder-crashed) | nobody again | 1 |\n",
            "after each fault: Lockkeeper `run`. Within one process also: kazoo `Lock`.\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
    }
}
