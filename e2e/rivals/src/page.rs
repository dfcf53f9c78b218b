//! `docs/comparison.md`, written from the results.

mod costs;

use std::fmt::Write as _;

use crate::cell::Cell;
use crate::faults::{FAULTS, Fault};
use crate::picture::{cell, seconds};
use crate::results::Results;
use crate::systems::{SYSTEMS, System};

/// Ours: the default settings.
const OWN: &str = "lockkeeper";

/// Gaps that differ by less than this, in seconds, are the same.
const SAME: f64 = 0.2;

pub fn render(results: &Results) -> String {
    let mut page = format!(
        "# Comparison\n\n\
         What do the locks of the field *do* when something breaks? `make rivals` does the same faults to each of them, and one \
         recorder writes down who ran when. This page is written from [its results](rivals/results.json). The lease, session \
         timeout or expiry of all locks that have one is {} s. {}\n\n{}\n\n{}\
         ![Lock by fault](rivals/heat-map.svg)\n\n![Overlap against time without a holder](rivals/scatter.svg)\n\n",
        results.lease,
        rounds(results),
        where_others_are_better(results),
        costs::faster_than(results, OWN).map_or_else(String::new, |faster| faster + "\n\n"),
    );
    page.push_str(HOW);
    for &fault in FAULTS {
        table(&mut page, results, fault);
    }
    costs::render(&mut page, results);
    missing(&mut page, results);
    page
}

const HOW: &str = "## How it is measured\n\n\
    Two contenders compete for the lock, each on a machine of its own (a network namespace). The one that has the lock runs a \
    program that writes down the time every 5 ms. A small driver uses the lock's library as its documentation tells; the header of \
    each driver names the page. The driver stops the program when, and only when, the library says that the lock is lost.\n\n\
    * *Two at once*: rounds in which both programs ran at the same time, and for how long at worst.\n\
    * *Nobody*: how long nobody ran after the fault.\n\
    * *Late writes*: what a former holder wrote after the next one had begun, and how many of these writes a resource refuses that \
    takes the highest [fencing token](fencing.md) only.\n\
    * *Told*: when the library told its holder of the loss, after the fault.\n\n\
    `make rivals ARGS=\"--only NAME --faults NAME --rounds 5\"` repeats one cell.\n\n";

fn about(fault: Fault) -> &'static str {
    match fault {
        Fault::HolderKilled => "The holder's machine crashes: driver and program get SIGKILL.",
        Fault::HolderPaused => {
            "The holder's machine stops for two leases and 2 s, and goes on: as a virtual machine does, or a garbage collector \
             right before a write."
        }
        Fault::LibraryPaused => {
            "Only the process with the library stops for as long; the program runs on. It concerns locks whose holder is another \
             process than the work, such as a sidecar or a command. Where both are one process, *holder-paused* tells what \
             happens."
        }
        Fault::HolderCutOff => "The holder is cut off from all servers for as long.",
        Fault::ServerCutOff => {
            "The server that the holder talks to is cut off from the other servers for as long."
        }
        Fault::LeaderKilled => "The server that all writes depend on is killed, and started again 3 s later.",
        Fault::LeaderPaused => "That server stops for two leases and 2 s, and goes on.",
        Fault::Failover => {
            "The primary dies right after it has granted the lock, while its replica lags behind."
        }
        Fault::AllRestarted => "All servers are killed, and started again 3 s later.",
        Fault::ClockAhead => "The wall clock of the holder jumps an hour ahead.",
        Fault::WaiterAhead => "The wall clock of the waiting contender jumps an hour ahead.",
        Fault::MemoryFull => "Other data fills the memory of the servers.",
    }
}

fn table(page: &mut String, results: &Results, fault: Fault) {
    let rows: Vec<_> = SYSTEMS
        .iter()
        .filter_map(|system| Some((system, cell(results, system, fault)?)))
        .collect();
    if rows.is_empty() {
        return;
    }
    // Writing to a string does not fail.
    let _ = write!(
        page,
        "## {}\n\n{}\n\n| lock | two at once | nobody: median, worst | nobody ever again | late writes | told |\n|---|---|---|---|---|---|\n",
        fault.name(),
        about(fault)
    );
    for (system, cell) in rows {
        let _ = writeln!(page, "| {} | {}", system.title, row(&cell));
    }
    page.push('\n');
}

fn row(cell: &Cell) -> String {
    let two = match cell.worst_overlap {
        None => format!("0 of {}", cell.rounds),
        Some(worst) => format!("**{} of {}**, {}", cell.overlaps, cell.rounds, seconds(worst)),
    };
    let nobody = match (cell.median_gap, cell.worst_gap) {
        (Some(median), Some(worst)) => format!("{}, {}", seconds(median), seconds(worst)),
        _ => String::new(),
    };
    let never = match cell.never_again {
        0 => "0".to_owned(),
        count => format!("**{count}**"),
    };
    let late = match cell.late {
        0 => "0".to_owned(),
        late => format!("{late}, {} refused", cell.refused),
    };
    let told = cell.told.map_or_else(
        || "no".to_owned(),
        |told| format!("{}, in {}", seconds(told), cell.told_in),
    );
    format!("{two} | {nobody} | {never} | {late} | {told} |")
}

/// The faults after which a contender ran sooner than with ours, of the locks that never let two run in any fault.
fn where_others_are_better(results: &Results) -> String {
    let is_safe = |system: &&System| {
        let cells = FAULTS.iter().filter_map(|&fault| cell(results, system, fault));
        !system.name.starts_with(OWN) && cells.map(|cell| cell.overlaps).sum::<usize>() == 0
    };
    let safe: Vec<_> = SYSTEMS
        .iter()
        .filter(|system| results.rounds.contains_key(system.name))
        .filter(is_safe)
        .collect();
    let mut lines = Vec::new();
    for &fault in FAULTS {
        let own = SYSTEMS
            .iter()
            .find(|system| system.name == OWN)
            .and_then(|own| cell(results, own, fault));
        let Some(own) = own.and_then(|cell| cell.median_gap) else {
            continue;
        };
        let is_sooner = |system: &&&System| {
            cell(results, system, fault).is_some_and(|cell| {
                cell.never_again == 0 && cell.median_gap.is_some_and(|gap| gap + SAME < own)
            })
        };
        let better: Vec<_> = safe.iter().filter(is_sooner).map(|system| system.title).collect();
        if !better.is_empty() {
            lines.push(format!(
                "* *{}* (ours: {}): {}.",
                fault.name(),
                seconds(own),
                better.join("; ")
            ));
        }
    }
    if lines.is_empty() {
        return "**Where others are better**: of the locks that never let two run, with none a program ran again sooner than with \
                ours, after any fault."
            .to_owned();
    }
    format!(
        "**Where others are better.** Of the locks that never let two run in any of these faults, with these a program ran again \
         sooner than with ours:\n\n{}",
        lines.join("\n")
    )
}

fn rounds(results: &Results) -> String {
    let counts = results
        .rounds
        .values()
        .flat_map(|faults| faults.values().map(Vec::len));
    let (least, most) = counts.fold((usize::MAX, 0), |(least, most), count| {
        (least.min(count), most.max(count))
    });
    match (least, most) {
        (usize::MAX, _) => "There are no rounds yet.".to_owned(),
        (least, most) if least == most => format!("Each fault was done {least} times to each lock."),
        (least, most) => format!("Each fault was done {least} to {most} times to each lock."),
    }
}

fn missing(page: &mut String, results: &Results) {
    if results.missing.is_empty() {
        return;
    }
    page.push_str("## What could not be run\n\n");
    for (system, why) in &results.missing {
        let _ = writeln!(page, "* `{system}`: {}", why.lines().next().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Round;

    #[test]
    fn the_page_says_first_where_others_are_better() {
        let mut results = Results::default();
        let round = |overlap, gap| Round {
            seed: 1,
            overlap,
            gap,
            late: 0,
            refused: 0,
            grew: None,
            told: Some(0.5),
        };
        let mut add = |system: &str, round| {
            let faults = results.rounds.entry(system.to_owned()).or_default();
            faults.entry(Fault::HolderKilled).or_default().push(round);
        };
        add("lockkeeper", round(None, Some(2.0)));
        add("etcd-mutex", round(None, Some(1.0)));
        add("kazoo", round(Some(0.3), Some(0.5)));
        let page = render(&results);
        assert!(
            page.contains("* *holder-killed* (ours: 2.0 s): etcd `concurrency.Mutex`.\n"),
            "{page}"
        );
        assert!(
            page.contains("| kazoo `Lock` | **1 of 1**, 0.3 s | 0.5 s, 0.5 s | 0 | 0 | 0.5 s, in 1 |"),
            "{page}"
        );
    }
}
