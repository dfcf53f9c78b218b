//! The part of the page about what locks offer when nothing breaks, and what the rounds say of their properties.

use std::fmt::Write as _;

use crate::cell::ONE_LINE;
use crate::faults::{FAULTS, Fault};
use crate::picture::{cell, seconds};
use crate::probe::{Answer, Found, PROBES, Probe};
use crate::results::{Properties, Results};
use crate::systems::{Driver, SYSTEMS, System};

const HOW: &str = "## Properties\n\n\
    `make rivals ARGS=\"--properties\"` asks each lock on its real servers: its driver makes the library's calls, and ours is asked \
    by its command line. A cell that names a call or an option says that it does this. *Not offered*: the library has no such call.\n\n\
    * *Reentrant*: the holder asks a second time, and has the lock. Then it releases once, and another client asks. A lock that does \
    not answer within 8 s waits for itself. A call that answers at once, and that the driver repeats, finds it taken. ShedLock's \
    `DefaultLockingTaskExecutor`, which no driver uses, lets its own thread in.\n\
    * *Try*: a call returns at once while another client holds. *Timed*: a call gives up after a second. Both get a free lock.\n\
    * *Shared*: two clients hold at once, and a writer, or one more than there are permits, is kept out. Where the cell names another \
    class, the library has that one for it.\n\
    * *Tells*: the library told its holder of a loss in the rounds below. (ShedLock tells a user who extends the lock with its own calls; its \
    `KeepAliveLockProvider` tells nobody.) *Never lost*: no fault took it from its holder.\n\
    * *Free after a death*: the next contender got it in [holder-killed](#holder-killed) and in [holder-crashed](#holder-crashed).\n\
    * *Stops the work*: the lock itself ended the program of a former holder in the rounds below. With a library the program that uses it \
    has to do that, and here the driver does.\n\
    * *One queue with*: another client that it excludes, tried with a contender of each in both orders. Pairs that are not named were not \
    tried.\n\n\
    | lock | reentrant | try | timed | shared | tells | free after a death | stops the work | one queue with |\n\
    |---|---|---|---|---|---|---|---|---|\n";

/// The table; nothing before the first answer.
pub(super) fn render(page: &mut String, results: &Results) {
    if results.properties.is_empty() {
        return;
    }
    page.push_str(HOW);
    for system in SYSTEMS {
        let properties = results.properties.get(system.name);
        let probed = PROBES.iter().map(|&probe| {
            let found = properties.and_then(|properties| properties.probed.get(&probe));
            found.map_or_else(
                || "[not measured](#what-was-not-measured)".to_owned(),
                |found| answer(system, probe, found),
            )
        });
        let of_rounds = [
            tells(results, system),
            free(results, system),
            stops(results, system),
        ];
        let queues = properties.map_or_else(String::new, queues);
        let cells: Vec<_> = probed.chain(of_rounds).chain([queues]).collect();
        // Writing to a string does not fail.
        let _ = writeln!(page, "| {} | {} |", system.title, cells.join(" | "));
    }
    page.push('\n');
}

fn answer(system: &System, probe: Probe, found: &Found) -> String {
    match (found.answer, &found.call) {
        (Answer::No, _) if probe == Probe::Reentrant && system.is_polled_by_driver() => {
            "no: finds it taken".to_owned()
        }
        (Answer::NotOffered, _) => "not offered".to_owned(),
        (Answer::No, _) => format!("no: {}", found.seen),
        (Answer::Yes, Some(call)) if probe != Probe::Reentrant => format!("`{call}`"),
        (Answer::Yes, _) => format!("yes: {}", found.seen),
    }
}

/// Whether the library told its holder of a loss, in whatever fault, and after which faults it did not although two ran.
fn tells(results: &Results, system: &System) -> String {
    if matches!(system.driver, Driver::Own(_)) {
        return "stops it".to_owned();
    }
    let cells = || {
        let all = FAULTS.iter();
        all.filter_map(|&fault| Some((fault, cell(results, system, fault)?)))
    };
    let silent: Vec<_> = cells()
        .filter(|(_, cell)| cell.overlaps > 0 && cell.told_in == 0)
        .map(|(fault, _)| link(fault))
        .collect();
    let yes = if system.is_watched_by_driver() {
        "the driver does"
    } else {
        "yes"
    };
    match (cells().any(|(_, cell)| cell.told_in > 0), silent.is_empty()) {
        (true, true) => yes.to_owned(),
        (true, false) => format!("{yes}, but not after {}", silent.join(", ")),
        (false, false) => "no".to_owned(),
        (false, true) => "never lost".to_owned(),
    }
}

fn free(results: &Results, system: &System) -> String {
    let is_free = |fault| Some(cell(results, system, fault)?.never_again == 0);
    match (is_free(Fault::HolderKilled), is_free(Fault::HolderCrashed)) {
        (Some(true), Some(true)) => "yes".to_owned(),
        (Some(true), Some(false)) => "killed only".to_owned(),
        (Some(false), Some(true)) => "crashed only".to_owned(),
        (Some(false), Some(false)) => "no".to_owned(),
        _ => String::new(),
    }
}

/// Of a command that runs the work: in the rounds the driver stopped nothing of it.
fn stops(results: &Results, system: &System) -> String {
    if !matches!(system.driver, Driver::Own(_)) && system.program.is_none() {
        return "no: a library".to_owned();
    }
    let mut worst: Option<f64> = None;
    for &fault in FAULTS {
        let Some(cell) = cell(results, system, fault) else {
            continue;
        };
        if cell.goes_on {
            return format!("no: {}", link(fault));
        }
        if worst < cell.worst_overlap {
            worst = cell.worst_overlap;
        }
    }
    worst.map_or_else(
        || "yes, in time".to_owned(),
        |worst| match worst {
            worst if worst < ONE_LINE => format!("yes, less than {} late", seconds(ONE_LINE)),
            worst => format!("yes, up to {} late", seconds(worst)),
        },
    )
}

fn queues(properties: &Properties) -> String {
    let known = properties.queues.iter().map(|(name, found)| {
        let title = System::named(name).map_or(name.as_str(), |system| system.title);
        let needs = found
            .call
            .as_ref()
            .map_or_else(String::new, |call| format!(" (`{call}`)"));
        match found.answer {
            Answer::Yes => format!("{title}{needs}"),
            _ => format!("not with {title}{needs}"),
        }
    });
    known.collect::<Vec<_>>().join("; ")
}

pub(super) fn link(fault: Fault) -> String {
    format!("[{0}](#{0})", fault.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Round;

    fn results() -> Results {
        let mut results = Results::default();
        let mut add = |system: &str, fault, overlap: Option<f64>, told| {
            let faults = results.rounds.entry(system.to_owned()).or_default();
            faults.entry(fault).or_default().push(Round {
                overlap,
                goes_on: overlap == Some(30.0),
                gap: (system != "jdbc-row@postgres").then_some(1.0),
                told,
                ..Round::default()
            });
        };
        for fault in [Fault::HolderKilled, Fault::HolderCrashed] {
            for system in [
                "lockkeeper",
                "kazoo",
                "etcdctl-lock",
                "consul-lock",
                "jdbc-row@postgres",
            ] {
                add(system, fault, None, None);
            }
        }
        add("kazoo", Fault::HolderPaused, Some(0.1), Some(10.0));
        add("kazoo", Fault::MemoryFull, Some(0.1), None);
        add("etcdctl-lock", Fault::HolderPaused, Some(30.0), None);
        add("consul-lock", Fault::HolderPaused, Some(2.0), Some(3.0));
        results
    }

    fn row(page: &str, title: &str) -> String {
        let start = format!("| {title} |");
        let line = page.lines().find(|line| line.starts_with(&start));
        line.unwrap_or_else(|| panic!("no row {title}: {page}"))
            .to_owned()
    }

    #[test]
    fn the_table_says_what_the_probes_and_the_rounds_have_shown() {
        let mut results = results();
        let mut page = String::new();
        render(&mut page, &results);
        assert_eq!(page, "", "nothing was asked yet");
        let found = |answer, call: Option<&str>, seen: &str| Found {
            call: call.map(str::to_owned),
            ..Found::new(answer, seen)
        };
        let kazoo = results.properties.entry("kazoo".to_owned()).or_default();
        kazoo.probed = [
            (
                Probe::Reentrant,
                found(Answer::No, Some("acquire()"), "waits for itself"),
            ),
            (
                Probe::Try,
                found(Answer::Yes, Some("tryIt()"), "gives up after 3 ms"),
            ),
            (Probe::Timed, found(Answer::NotOffered, None, "no such call")),
        ]
        .into();
        let with = found(Answer::Yes, Some("patterns"), "each waits");
        kazoo.queues.insert("lockkeeper".to_owned(), with);
        render(&mut page, &results);
        assert_eq!(
            row(&page, "kazoo `Lock`"),
            "| kazoo `Lock` | no: waits for itself | `tryIt()` | not offered | [not measured](#what-was-not-measured) \
             | yes, but not after [memory-full](#memory-full) | yes | no: a library | Lockkeeper `run` (`patterns`) |"
        );
        assert!(row(&page, "Lockkeeper `run`").ends_with("| stops it | yes | yes, in time |  |"));
        assert!(
            row(&page, "`etcdctl lock`").ends_with("| no | yes | no: [holder-paused](#holder-paused) |  |")
        );
        assert!(row(&page, "`consul lock`").ends_with("| yes | yes | yes, up to 2.0 s late |  |"));
        assert!(row(&page, "unique row, PostgreSQL").ends_with("| never lost | no | no: a library |  |"));
    }
}
