//! What locks offer when nothing breaks, asked of one after the other: see [`Probe`] and [`queues`].

mod command;
mod driver;
mod queues;

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use crate::cost::LEASE;
use crate::probe::{Answer, Done, Found, PROBES, Probe, Released};
use crate::results::{Kept, PROPERTIES, lock};
use crate::servers::Kind;
use crate::site::Site;
use crate::systems::{Driver, SYSTEMS, System};
use crate::versions;

/// How long a step may take. What waits for longer waits, and [`LEASE`] has not ended by then.
pub const BOUND: Duration = Duration::from_secs(8);

/// How often a call that gives up is asked that was too late, on a machine that may have been busy.
const TRIES: u32 = 3;

/// Whose lock stays its own until the lease ends: it was not told `ReleaseOnCancel`.
const KEEPS: &str = "k8s-lease-defaults";

/// A running site, if there is one.
type Used = Option<(Kind, Site)>;

/// Asks all these systems, kind of servers by kind of servers, and writes down what each has answered.
///
/// # Errors
/// When the file of the results cannot be written.
pub fn measure(systems: &[&'static System], kept: &Mutex<Kept>) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    let mut used = None;
    let mut kinds = Vec::new();
    for system in systems {
        if !kinds.contains(&system.servers) {
            kinds.push(system.servers);
        }
    }
    for kind in kinds {
        let of_kind = systems.iter().filter(|system| system.servers == kind);
        for system in of_kind.filter(|system| !matches!(system.driver, Driver::Crowd(_))) {
            let found = measure_one(system, &mut used, kept);
            if let Err(error) = found.and_then(|()| measure_queues(system, &mut used, kept)) {
                // What is the matter with the site is unknown.
                used = None;
                println!("{}: {error:#}", system.name);
                lock(kept).miss(system.name, PROPERTIES, format!("{error:#}"))?;
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

fn measure_one(system: &'static System, used: &mut Used, kept: &Mutex<Kept>) -> anyhow::Result<()> {
    let site = site(used, system.servers)?;
    let versions = versions::of(system, site.server_versions()?);
    lock(kept).add_versions(system.name, &versions)?;
    for &probe in PROBES {
        let found = ask(system, site, probe, BOUND)?;
        println!(
            "{} {}: {}",
            system.name,
            probe.name(),
            serde_json::to_string(&found)?
        );
        lock(kept).add_property(system.name, |properties| {
            properties.probed.insert(probe, found);
        })?;
    }
    Ok(())
}

/// The pairs that this system is the first one of.
fn measure_queues(system: &'static System, used: &mut Used, kept: &Mutex<Kept>) -> anyhow::Result<()> {
    for pair in queues::PAIRS.iter().filter(|pair| pair.one.system == system.name) {
        let found = queues::play(pair, site(used, system.servers)?)?;
        let (one, other) = (&pair.one, &pair.other);
        println!(
            "{} and {}: {}",
            one.name(),
            other.name(),
            serde_json::to_string(&found)?
        );
        let mut kept = lock(kept);
        let both = [(one, other), (other, one)];
        for (of, with) in both.into_iter().filter(|(of, _)| of.is_the_system()) {
            kept.add_property(of.system, |properties| {
                properties.queues.insert(with.name().to_owned(), found.clone());
            })?;
        }
    }
    Ok(())
}

fn site(used: &mut Used, kind: Kind) -> anyhow::Result<&mut Site> {
    let (_, site) = match used.take() {
        Some(same) if same.0 == kind => used.insert(same),
        // The servers of another kind end before others begin.
        former => {
            drop(former);
            used.insert((kind, Site::start(kind)?))
        }
    };
    Ok(site)
}

/// Asks a system one question on a site that serves. A step that takes longer than `bound` waits.
///
/// # Errors
/// When its driver cannot be built, or the answer says nothing of the question.
pub fn ask(system: &System, site: &mut Site, probe: Probe, bound: Duration) -> anyhow::Result<Found> {
    let released = match system.name == KEEPS {
        true => Released::AfterItsLease,
        false => Released::Free,
    };
    let mut found = probe.judge(&steps(system, site, probe, bound)?, released)?;
    for _ in 1..TRIES {
        let may_be_late = matches!(probe, Probe::Try | Probe::Timed) && found.answer == Answer::No;
        if may_be_late {
            found = probe.judge(&steps(system, site, probe, bound)?, released)?;
        }
    }
    Ok(found)
}

fn steps(system: &System, site: &mut Site, probe: Probe, bound: Duration) -> anyhow::Result<Vec<Done>> {
    let name = system.name.replace('@', "-");
    let lock = format!("{name}-{}-{}", probe.name(), site.next_round());
    site.make_ready()?;
    if matches!(system.driver, Driver::Own(_)) || system.program.is_some() {
        command::run(system, site, probe, &lock, bound)
    } else {
        driver::run(system, site, probe, &lock, LEASE, bound)
    }
}

/// Whether two clients of [`queues`] stand in one queue, on a site that serves. `None` if they are no pair of it.
///
/// # Errors
/// When one of them does not get the free lock.
pub fn ask_queue(one: &str, other: &str, site: &mut Site) -> anyhow::Result<Option<Found>> {
    let is_meant = |pair: &&queues::Pair| pair.one.name() == one && pair.other.name() == other;
    let pair = queues::PAIRS.iter().find(is_meant);
    pair.map(|pair| queues::play(pair, site)).transpose()
}

/// Starts the servers of each of these systems, asks which version they are, and writes it down beside the versions of the
/// libraries.
///
/// # Errors
/// When servers do not start, or the file of the results cannot be written.
pub fn ask_versions(systems: &[&'static System], kept: &Mutex<Kept>) -> anyhow::Result<()> {
    let mut systems: Vec<_> = systems.to_vec();
    systems.sort_by_key(|system| SYSTEMS.iter().position(|other| other.servers == system.servers));
    let mut used = None;
    for system in systems {
        let versions = versions::of(system, site(&mut used, system.servers)?.server_versions()?);
        println!("{}: {versions:?}", system.name);
        lock(kept).add_versions(system.name, &versions)?;
    }
    Ok(())
}
