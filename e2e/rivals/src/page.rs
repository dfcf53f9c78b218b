//! `docs/comparison.md`, written from the results.

mod better;
mod costs;
mod properties;

use std::fmt::Write as _;

use crate::cell::Cell;
use crate::faults::{FAULTS, Fault};
use crate::picture::{cell, seconds};
use crate::results::{COSTS, PROPERTIES, Results};
use crate::systems::{Driver, OF_CROWDS, SYSTEMS, System};

pub fn render(results: &Results) -> String {
    let mut page = format!(
        "# Comparison\n\n\
         What do the locks of the field *do* when something breaks? `make rivals` does the same faults to each of them, and one \
         recorder writes down who ran when. This page is written from [its results](rivals/results.json). Each lock that takes a \
         lease, session timeout or expiry gets one of {} s; [some have another](#the-locks), and so has ours with its default \
         settings. {}\n\n",
        results.lease,
        rounds(results),
    );
    let first = [
        Some(better::render(results)),
        better::without_a_fault(results),
        costs::faster_than(results, better::OWN),
    ];
    for paragraph in first.into_iter().flatten() {
        page += &(paragraph + "\n\n");
    }
    for (picture, shows) in [
        ("rivals/heat-map", "Lock by fault"),
        ("rivals/scatter", "Overlap against time without a holder"),
    ] {
        let _ = write!(
            page,
            "<picture><source media=\"(prefers-color-scheme: dark)\" srcset=\"{picture}-dark.svg\">\
             <img alt=\"{shows}\" src=\"{picture}-light.svg\"></picture>\n\n"
        );
    }
    page.push_str(HOW);
    locks(&mut page, results);
    properties::render(&mut page, results);
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
    * *Two at once*: rounds in which both programs ran at the same time, and for how long at worst. After a fault, a \
    round watches an overlap for 30 s more; *at least* says that it had not ended then.\n\
    * *Nobody*: how long nobody ran after the fault.\n\
    * *Late writes*: what a former holder wrote after the next one had begun, and how many of these writes a resource refuses that \
    takes the highest [fencing token](fencing.md) only.\n\
    * *Told*: when the library told its holder of the loss, after the fault. Lockkeeper stops the program itself, and is not asked \
    when.\n\n\
    All contenders are root and have no precedence over others: Lockkeeper's guard may not take the \
    [real-time priority](safety.md) that it takes where it is allowed. Servers have their default settings, but for those that \
    throw data away when their memory is full: Redis has `maxmemory 32mb`, `maxmemory-policy allkeys-lru` and `appendonly yes`, \
    and memcached 16 MiB. Redis' defaults have no limit, and throw nothing away. A tick of ZooKeeper is 1 s (default: 3 s), a Sentinel \
    takes a server for down after 3 s (30 s), and a session of Hazelcast ends after 4 s (300 s).\n\n\
    `make rivals ARGS=\"--only kazoo --faults holder-paused --rounds 5 --results /tmp/cell.json\"` plays one cell again and prints \
    each round. [The names of the locks](#the-locks) are below, those of the faults are the titles.\n\n";

/// What takes part, by which name, and with which lease.
fn locks(page: &mut String, results: &Results) {
    page.push_str(
        "## The locks\n\nLibraries have the versions that the drivers' manifests pin, and servers those that they have answered when \
         they were asked. Where there are two, rounds of both are in the row.\n\n\
         | lock | name | lease, session timeout or expiry | servers | versions |\n|---|---|---|---|---|\n",
    );
    for system in SYSTEMS {
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "| {} | `{}` | {} | {} | {} |",
            system.title,
            system.name,
            system.lease.words(results.lease),
            system.servers.words(),
            versions(results, system)
        );
    }
    page.push('\n');
}

/// Which versions of its libraries and servers were measured.
fn versions(results: &Results, system: &System) -> String {
    let Some(parts) = results.versions.get(system.name) else {
        return "unknown".to_owned();
    };
    let parts = parts.iter().map(|(part, versions)| {
        let versions: Vec<_> = versions.iter().map(String::as_str).collect();
        format!("{part} {}", versions.join(" and "))
    });
    parts.collect::<Vec<_>>().join(", ")
}

fn about(fault: Fault) -> &'static str {
    match fault {
        Fault::None => {
            "Nothing is done, for longer than a lease. A lock that lets two run here does so without any fault, and its other \
             rows say nothing of theirs."
        }
        Fault::HolderKilled => {
            "Driver and program get SIGKILL. The kernel closes their connections, of which the servers hear."
        }
        Fault::HolderCrashed => {
            "The holder's machine crashes: driver and program are gone, and nobody hears that their connections have ended."
        }
        Fault::HolderPaused => {
            "The holder's machine stops for its lease and 6 s, and goes on: as a virtual machine does, or a garbage collector \
             right before a write."
        }
        Fault::LibraryPaused => {
            "Only the process with the library stops for as long; the program runs on. It concerns locks whose holder is another \
             process than the work, such as a sidecar or a command. Where both are one process, *holder-paused* tells what \
             happens."
        }
        Fault::HolderCutOff => {
            "The holder is cut off from all servers, and from the other contender, for as long."
        }
        Fault::ServerCutOff => {
            "The server that the holder talks to is cut off from the other servers for as long."
        }
        Fault::LeaderKilled => "The server that all writes depend on is killed, and started again 3 s later.",
        Fault::LeaderPaused => "That server stops for as long, and goes on.",
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
    // Writing to a string does not fail.
    let _ = write!(
        page,
        "## {}\n\n{}\n\n| lock | two at once | nobody: median, worst | nobody ever again | late writes | told |\n|---|---|---|---|---|---|\n",
        fault.name(),
        about(fault)
    );
    for system in SYSTEMS.iter().filter(|system| fault.applies_to(system).is_ok()) {
        let told = !matches!(system.driver, Driver::Own(_));
        let cells = cell(results, system, fault).map_or_else(
            || "[not measured](#what-was-not-measured) | | | | |".to_owned(),
            |cell| row(&cell, told),
        );
        let _ = writeln!(page, "| {} | {cells}", system.title);
    }
    page.push('\n');
}

/// `tells`: its library has a way to tell its holder of a loss, or none, which is measured as well.
fn row(cell: &Cell, tells: bool) -> String {
    let two = match cell.worst_overlap {
        None => format!("0 of {}", cell.rounds),
        Some(worst) => {
            let bound = if cell.goes_on { "at least " } else { "" };
            let before = match cell.before {
                0 => String::new(),
                count => format!(", in {count} before the fault"),
            };
            format!(
                "**{} of {}**, {bound}{}{before}",
                cell.overlaps,
                cell.rounds,
                seconds(worst)
            )
        }
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
        || if tells { "no" } else { "—" }.to_owned(),
        |told| format!("{}, in {}", seconds(told), cell.told_in),
    );
    format!("{two} | {nobody} | {never} | {late} | {told} |")
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
        (1, 1) => "Each fault was done once to each lock.".to_owned(),
        (least, most) if least == most => format!("Each fault was done {least} times to each lock."),
        (least, most) => format!("Each fault was done {least} to {most} times to each lock."),
    }
}

/// What could have been measured and is not there, with the reason if it was tried.
fn missing(page: &mut String, results: &Results) {
    let mut lines = String::new();
    for system in SYSTEMS.iter().chain(OF_CROWDS) {
        let of_system = results.missing.get(system.name);
        let why = |what: &str| Some(of_system?.get(what)?.lines().next().unwrap_or_default());
        let mut untried = Vec::new();
        let lacks =
            |fault: &&Fault| fault.applies_to(system).is_ok() && cell(results, system, **fault).is_none();
        for fault in FAULTS.iter().filter(lacks).map(|fault| fault.name()) {
            match why(&fault) {
                // Writing to a string does not fail.
                Some(why) => drop(writeln!(lines, "* {}, *{fault}*: {why}", system.title)),
                None => untried.push(fault),
            }
        }
        for part in [COSTS, PROPERTIES] {
            if let Some(why) = why(part) {
                let _ = writeln!(lines, "* {}, {part}: {why}", system.title);
            }
        }
        let is_asked = !results.properties.is_empty() && !matches!(system.driver, Driver::Crowd(_));
        if is_asked && !results.properties.contains_key(system.name) && why(PROPERTIES).is_none() {
            untried.push(PROPERTIES.to_owned());
        }
        if !untried.is_empty() {
            let _ = writeln!(lines, "* {}, not yet: {}", system.title, untried.join(", "));
        }
    }
    if !lines.is_empty() {
        let _ = write!(page, "## What was not measured\n\n{lines}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Round;

    #[test]
    fn the_page_says_first_where_others_are_better() {
        let mut results = Results::default();
        let mut add = |system: &str, fault, overlap, gap| {
            let faults = results.rounds.entry(system.to_owned()).or_default();
            faults.entry(fault).or_default().push(Round {
                overlap,
                goes_on: overlap == Some(30.0),
                gap: Some(gap),
                told: Some(0.5),
                ..Round::default()
            });
        };
        add("lockkeeper", Fault::HolderKilled, None, 2.0);
        add("etcd-mutex", Fault::HolderKilled, None, 1.0);
        add("kazoo", Fault::HolderKilled, Some(0.3), 0.5);
        add("pg-advisory", Fault::HolderKilled, None, 0.1);
        add("pg-advisory", Fault::LeaderKilled, Some(30.0), 0.1);
        // Sooner, but for no merit of its own.
        add("redis-setnx", Fault::HolderKilled, None, 0.1);
        add("redis-setnx", Fault::None, Some(2.0), 0.0);
        let page = render(&results);
        assert!(
            page.contains(
                "| [holder-killed](#holder-killed) | 2.0 s |  | etcd `concurrency.Mutex` | PostgreSQL advisory lock |\n"
            ),
            "{page}"
        );
        assert!(
            page.contains("| kazoo `Lock` | **1 of 1**, 0.3 s | 0.5 s, 0.5 s | 0 | 0 | 0.5 s, in 1 |"),
            "{page}"
        );
        assert!(page.contains("**1 of 1**, at least 30.0 s |"), "{page}");
        assert!(
            page.contains(
                "**Without any fault** these let two run, so their rows say nothing of a fault: `SETNX` and"
            ),
            "{page}"
        );
    }

    #[test]
    fn a_lock_says_which_versions_of_it_were_measured_and_all_of_them() {
        let mut results = Results::default();
        let of_kazoo = results.versions.entry("kazoo".to_owned()).or_default();
        for (part, version) in [
            ("kazoo", "2.11.0"),
            ("ZooKeeper", "3.9.5"),
            ("ZooKeeper", "3.9.6"),
        ] {
            of_kazoo
                .entry(part.to_owned())
                .or_default()
                .insert(version.to_owned());
        }
        let page = render(&results);
        assert!(
            page.contains("| 3 ZooKeeper | ZooKeeper 3.9.5 and 3.9.6, kazoo 2.11.0 |\n"),
            "{page}"
        );
        assert!(page.contains("| PostgreSQL | unknown |\n"), "{page}");
    }

    #[test]
    fn a_cell_that_was_not_measured_says_why_and_has_its_row_unless_the_fault_does_not_apply() {
        let mut results = Results::default();
        let of_kazoo = [("holder-killed".to_owned(), "no server".to_owned())];
        results.missing.insert("kazoo".to_owned(), of_kazoo.into());
        let page = render(&results);
        assert!(
            page.contains("* kazoo `Lock`, *holder-killed*: no server\n"),
            "{page}"
        );
        assert!(page.contains("| kazoo `Lock` | [not measured]"), "{page}");
        let (_, full) = page.split_once("## memory-full").unwrap();
        let (table, _) = full.split_once("\n## ").unwrap();
        assert!(!table.contains("kazoo"), "{table}");
    }
}
