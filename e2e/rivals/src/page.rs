//! `docs/comparison.md`, written from the results.

mod better;
mod costs;
mod missing;
mod properties;
mod summary;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use crate::cell::Cell;
use crate::faults::{FAULTS, Fault};
use crate::picture::{cell, seconds};
use crate::results::Results;
use crate::systems::{Driver, SYSTEMS, System};

pub fn render(results: &Results) -> String {
    let mut page = format!(
        "# Comparison\n\n\
         What do the locks of the field *do* when something breaks? `make rivals` does each fault to all of them to which it can be done, and one \
         recorder writes down who ran when. This page is written from [its results](rivals/results.json). Each lock that takes a \
         lease, session timeout or expiry gets one of {} s; [some have another](#the-locks), and so has Lockkeeper with its default \
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
    summary::render(&mut page, results);
    page.push_str(words::HOW);
    for (picture, shows) in PICTURES {
        let _ = write!(
            page,
            "<picture><source media=\"(prefers-color-scheme: dark)\" srcset=\"{picture}-dark.svg\">\
             <img alt=\"{shows}\" src=\"{picture}-light.svg\"></picture>\n\n"
        );
    }
    locks(&mut page, results);
    properties::render(&mut page, results);
    for &fault in FAULTS {
        table(&mut page, results, fault);
    }
    costs::render(&mut page, results);
    missing::failures(&mut page, results);
    missing::render(&mut page, results);
    page
}

const PICTURES: [(&str, &str); 2] = [
    (
        "rivals/heat-map",
        "A row for each lock, a column for each fault. Green: two never ran at once. Amber: for less than 0.1 s. Red: for longer. \
         The tables below have the same figures",
    ),
    (
        "rivals/scatter",
        "Each lock by its worst overlap, and by the longest of its faults' median times in which nobody ran. The tables below have the same \
         figures",
    ),
];

/// What takes part, by which name, and with which lease.
fn locks(page: &mut String, results: &Results) {
    page.push_str(
        "## The locks\n\nThe versions of libraries are those that the drivers' manifests pin. Each server told its own version. If a row \
         names two versions, both were measured. Redis, PostgreSQL, MariaDB and memcached are those of Debian 12. Hazelcast 5.3 is the last one \
         whose locks are open source. The modules of Consul's later servers cannot be verified by Go.\n\n\
         *Faults last*: how long a fault lasts that waits for the lock to be given away: 6 s longer than the time after which that happens \
         at the latest.\n\n\
         | lock | name | lease, session timeout or expiry | faults last | servers | versions |\n|---|---|---|---|---|---|\n",
    );
    for system in SYSTEMS {
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "| {} | `{}` | {} | {} s | {} | {} |",
            system.title,
            system.name,
            system.lease.words(results.lease),
            Fault::HolderPaused
                .length(system.lease.bound(Duration::from_secs_f64(results.lease)))
                .as_secs(),
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

fn table(page: &mut String, results: &Results, fault: Fault) {
    // Writing to a string does not fail.
    let _ = write!(
        page,
        "## {}\n\n{}\n\n| lock | two at once | nobody: median, worst | nobody ever again | late writes | told |\n|---|---|---|---|---|---|\n",
        fault.name(),
        words::about(fault)
    );
    for system in SYSTEMS.iter().filter(|system| fault.applies_to(system).is_ok()) {
        let told = !matches!(system.driver, Driver::Own(_));
        let cells = cell(results, system, fault).map_or_else(
            || "[not measured](#what-was-not-measured) | | | | |".to_owned(),
            |cell| row(&cell, told, system),
        );
        let _ = writeln!(page, "| {} | {cells}", system.title);
    }
    page.push('\n');
    missing::left_out(page, fault);
}

/// In seconds: servers that are killed are back after 1 s, and the time that they need to begin and to agree on a leader.
const LONG_AWAY: f64 = 6.0;

/// Nobody ran, in seconds, between two of whom one followed the other at once.
const AT_ONCE: f64 = 0.2;

/// `tells`: its library has a way to tell its holder of a loss, or none, which is measured as well.
fn row(cell: &Cell, tells: bool, system: &System) -> String {
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
                summary::brief(worst)
            )
        }
    };
    let nobody = match (cell.median_gap, cell.worst_gap) {
        // Two ran, and never nobody.
        (Some(median), _) if cell.overlaps == cell.rounds && median < AT_ONCE => "—".to_owned(),
        (Some(median), Some(worst)) => {
            // It says why, if it is most of it.
            let away = cell
                .servers_away
                .filter(|away| *away > LONG_AWAY && 2.0 * away > worst);
            let away = away.map_or(String::new(), |away| {
                format!(" (the servers were away for {})", seconds(away))
            });
            format!("{}, {}{away}", seconds(median), seconds(worst))
        }
        _ => "never again".to_owned(),
    };
    let never = match cell.never_again {
        0 => "0".to_owned(),
        count => format!("**{count}**"),
    };
    let late = match cell.late {
        0 => "0".to_owned(),
        late => {
            let by = if system.has_token_by_driver() {
                " by a number of the server's"
            } else {
                ""
            };
            format!("{late}, {} refused{by}", cell.refused)
        }
    };
    let told = cell.told.map_or_else(
        || if tells { "no" } else { "—" }.to_owned(),
        |told| {
            let by = if system.is_watched_by_driver() {
                " by the driver"
            } else {
                ""
            };
            format!("{}{by}, in {}", seconds(told), cell.told_in)
        },
    );
    format!("{two} | {nobody} | {never} | {late} | {told} |")
}

fn rounds(results: &Results) -> String {
    let cells = SYSTEMS.iter().flat_map(|system| {
        let faults = FAULTS.iter().filter(|fault| fault.applies_to(system).is_ok());
        faults.map(|&fault| cell(results, system, fault))
    });
    let counts = cells.map(|cell| cell.map_or(0, |cell| cell.rounds));
    let (least, most) = counts.fold((usize::MAX, 0), |(least, most), count| {
        (least.min(count), most.max(count))
    });
    let times = match (least, most) {
        (_, 0) => return "There are no rounds yet.".to_owned(),
        (1, 1) => "once".to_owned(),
        (least, most) if least == most => format!("{least} times"),
        (least, most) => format!("{least} to {most} times"),
    };
    format!(
        "Each fault was done {times} to each lock to which it can be done{}.",
        runs(results)
    )
}

/// With which revisions, and on which days.
fn runs(results: &Results) -> String {
    let rounds = results.rounds.values().flat_map(BTreeMap::values).flatten();
    let played: BTreeSet<_> = rounds.map(|round| round.run).collect();
    let words = played.iter().filter_map(|run| results.runs.get(*run));
    let words = words.map(|run| format!("on {} with revision {}", run.day, run.revision));
    let words: Vec<_> = words.collect();
    if words.is_empty() {
        String::new()
    } else {
        format!(", {}", words.join(", "))
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
        add("lockkeeper", Fault::HolderKilled, None, 7.0);
        add("lockkeeper-short", Fault::HolderKilled, None, 2.0);
        add("curator-mutex", Fault::HolderKilled, None, 3.0);
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
                "| [holder-killed](#holder-killed) | 7.0 s, 7.0 s | 2.0 s, 2.0 s | PostgreSQL advisory lock: 0.1 s, 0.1 s | \
                 3, 3 of 5 | 2, 2 of 5 |\n"
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
    fn a_cell_that_was_not_measured_has_its_row_and_a_round_without_a_result_is_listed_with_its_reason() {
        let mut results = Results::default();
        let failure = crate::results::Failure {
            why: "no server".to_owned(),
            seed: 7,
            ..Default::default()
        };
        let of_kazoo = [(Fault::HolderKilled, vec![failure])];
        results.failures.insert("kazoo".to_owned(), of_kazoo.into());
        let page = render(&results);
        assert!(
            page.contains("* kazoo `Lock`, *holder-killed*, seed 7: no server\n"),
            "{page}"
        );
        assert!(page.contains("| kazoo `Lock` | [not measured]"), "{page}");
        let (_, full) = page.split_once("## memory-full").unwrap();
        let (table, _) = full.split_once("\nNot done to").unwrap();
        assert!(!table.contains("kazoo"), "{table}");
        let (reasons, _) = full.split_once("\n## ").unwrap();
        assert!(
            reasons.contains("kazoo `Lock`") && reasons.contains(": its servers throw nothing away.\n"),
            "{reasons}"
        );
    }
}
