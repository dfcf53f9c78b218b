//! The costs of many locks, measured in turns.

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use crate::cost::{self, CONTENDERS};
use crate::results::{COSTS, Kept, lock};
use crate::servers::Servers;
use crate::site::versions_of;
use crate::systems::{FLOOR, System};
use crate::versions;

/// The costs of all these systems, one after the other, and that this often: what disturbs the machine for a while
/// disturbs one turn.
///
/// # Errors
/// When the file of the results cannot be written.
pub fn measure(systems: &[&'static System], turns: u32, kept: &Mutex<Kept>) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for turn in 0..turns as usize {
        for system in systems {
            if let Err(error) = turn_of(system, turn, kept) {
                println!("{}: {error:#}", system.name);
                lock(kept).miss(system.name, COSTS, format!("{error:#}"))?;
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

fn turn_of(system: &System, turn: usize, kept: &Mutex<Kept>) -> anyhow::Result<()> {
    let known = lock(kept).costs(system.name);
    let sizes: Vec<_> = CONTENDERS
        .into_iter()
        .filter(|&size| size <= system.largest_crowd)
        .filter(|size| known.handoffs.get(size).map_or(0, Vec::len) <= turn)
        .collect();
    let waits = has_queue_of_a_crowd(system) && known.waiting.len() <= turn;
    if sizes.is_empty() && !waits {
        return Ok(());
    }
    let servers = start(system, kept)?;
    for size in sizes {
        let found = cost::handoffs_at(system, &*servers, size)?;
        println!("{} {size}: {}", system.name, serde_json::to_string(&found)?);
        lock(kept).add_cost(system.name, |costs| {
            costs.handoffs.entry(size).or_default().push(found);
        })?;
    }
    if waits {
        let found = cost::waiting(system, &*servers)?;
        println!("{} waiting: {}", system.name, serde_json::to_string(&found)?);
        lock(kept).add_cost(system.name, |costs| costs.waiting.push(found))?;
    }
    Ok(())
}

/// Whether its queue is measured: there is one, and it is of a lock.
pub(crate) fn has_queue_of_a_crowd(system: &System) -> bool {
    system.largest_crowd >= cost::CROWD && system.name != FLOOR
}

/// Starts the servers of a system, and writes down which versions are measured.
fn start(system: &System, kept: &Mutex<Kept>) -> anyhow::Result<Box<dyn Servers>> {
    let servers = system.servers.start()?;
    let versions = versions::of(system, &versions_of(&*servers)?);
    lock(kept).add_versions(system.name, &versions)?;
    Ok(servers)
}

/// How evenly a lock is given, unless that is known.
///
/// # Errors
/// When the lock does not work, or the file of the results cannot be written.
pub fn fairness(system: &System, time: Duration, kept: &Mutex<Kept>) -> anyhow::Result<()> {
    let is_known = !lock(kept).costs(system.name).fairness.is_empty();
    if is_known || !has_queue_of_a_crowd(system) {
        return Ok(());
    }
    let servers = start(system, kept)?;
    let found = cost::fairness(system, &*servers, time)?;
    println!("{} fairness: {}", system.name, serde_json::to_string(&found)?);
    lock(kept).add_cost(system.name, |costs| costs.fairness.push(found))
}
