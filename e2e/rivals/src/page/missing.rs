//! What the page has no figures of, and why.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::faults::{FAULTS, Fault};
use crate::picture::cell;
use crate::results::{COSTS, Failure, PROPERTIES, Results};
use crate::systems::{Driver, OF_CROWDS, SYSTEMS};
use crate::turns::has_queue_of_a_crowd;

/// Who is not in the table of a fault.
pub(super) fn left_out(page: &mut String, fault: Fault) {
    let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for system in SYSTEMS {
        let Err(why) = fault.applies_to(system) else {
            continue;
        };
        match by_reason.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, titles)) => titles.push(system.title),
            None => by_reason.push((why, vec![system.title])),
        }
    }
    for (why, titles) in by_reason {
        // Writing to a string does not fail.
        let _ = writeln!(page, "Not done to {}: {why}.\n", titles.join("; "));
    }
}

/// The rounds that are in no table.
pub(super) fn failures(page: &mut String, results: &Results) {
    page.push_str("## Rounds without a result\n\n");
    let mut lines = String::new();
    for system in SYSTEMS {
        let Some(faults) = results.failures.get(system.name) else {
            continue;
        };
        for (fault, failures) in faults {
            let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            for Failure { seed, why, .. } in failures {
                by_reason.entry(why).or_default().push(seed.to_string());
            }
            for (why, seeds) in by_reason {
                let _ = writeln!(
                    lines,
                    "* {}, *{}*, seed {}: {why}",
                    system.title,
                    fault.name(),
                    seeds.join(", ")
                );
            }
        }
    }
    if lines.is_empty() {
        lines.push_str("None: each round that began was played to its end, and the judges agreed.\n");
    }
    page.push_str(&lines);
    page.push('\n');
}

/// What could have been measured and is not there, with the reason if it was tried.
pub(super) fn render(page: &mut String, results: &Results) {
    let mut lines = String::new();
    for system in SYSTEMS.iter().chain(OF_CROWDS) {
        let of_system = results.missing.get(system.name);
        let why = |what: &str| Some(of_system?.get(what)?.lines().next().unwrap_or_default());
        let mut untried = Vec::new();
        let lacks =
            |fault: &&Fault| fault.applies_to(system).is_ok() && cell(results, system, **fault).is_none();
        untried.extend(FAULTS.iter().filter(lacks).map(|fault| fault.name()));
        for part in [COSTS, PROPERTIES] {
            if let Some(why) = why(part) {
                // Writing to a string does not fail.
                let _ = writeln!(lines, "* {}, {part}: {why}", system.title);
            }
        }
        if !results.costs.is_empty() {
            let costs = results.costs.get(system.name);
            let has_handoffs = costs.is_some_and(|costs| !costs.handoffs.is_empty());
            let has_fairness = costs.is_some_and(|costs| !costs.fairness.is_empty());
            if system.largest_crowd > 0 && !has_handoffs && why(COSTS).is_none() {
                untried.push(COSTS.to_owned());
            }
            if has_queue_of_a_crowd(system) && !has_fairness {
                untried.push("who gets it".to_owned());
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
