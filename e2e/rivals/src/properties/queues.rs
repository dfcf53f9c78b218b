//! Which other clients stand in the same queue: a contender of each, and who ran when.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use lockkeeper_testbed::process::wait_for;
use rustix::process::Signal;

use crate::activity::{overlap, stretches};
use crate::contender::{Contender, Part};
use crate::cost::LEASE;
use crate::driver_commands::OWN_ROOT;
use crate::probe::{Answer, Found};
use crate::site::Site;
use crate::systems::System;

/// How long a contender may take to get a lock that is free.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the other one is watched while the lock is held: it has begun by then, and would run.
const WATCH: Duration = Duration::from_secs(6);

/// Two clients of which a documentation says whether they exclude one another.
pub(super) struct Pair {
    pub one: Side,
    pub other: Side,
    /// What one of them has to be told, so that they do.
    needs: Option<&'static str>,
}

/// A client, and what it has to be told so that it meets the other one.
pub(super) struct Side {
    pub system: &'static str,
    /// What it is called, if it is not what the system is in the rounds.
    label: Option<&'static str>,
    /// For its driver, where it is not the name of the system.
    driver: Option<&'static str>,
    /// Its name for a lock.
    lock: fn(&str) -> String,
}

impl Side {
    pub(super) fn name(&self) -> &'static str {
        self.label.unwrap_or(self.system)
    }

    pub(super) fn is_the_system(&self) -> bool {
        self.label.is_none()
    }
}

const fn side(system: &'static str, lock: fn(&str) -> String) -> Side {
    Side {
        system,
        label: None,
        driver: None,
        lock,
    }
}

fn plain(lock: &str) -> String {
    lock.to_owned()
}

fn below_ours(lock: &str) -> String {
    format!("{OWN_ROOT}/{lock}")
}

/// `consul lock` takes a prefix, and this key below it: `DefaultSemaphoreKey` of its API.
fn below_a_prefix(lock: &str) -> String {
    format!("{lock}/.lock")
}

/// It does not look for the nodes of others.
const BLIND_KAZOO: &str = "kazoo without `extra_lock_patterns`";

/// All pairs. Of ours: `docs/migration.md`.
pub(super) const PAIRS: &[Pair] = &[
    Pair {
        one: side("lockkeeper", plain),
        other: side("curator-mutex", below_ours),
        needs: None,
    },
    Pair {
        one: side("lockkeeper", plain),
        other: Side {
            driver: Some("kazoo-in-one-queue"),
            ..side("kazoo", below_ours)
        },
        needs: Some("extra_lock_patterns"),
    },
    Pair {
        one: side("lockkeeper", plain),
        other: Side {
            label: Some(BLIND_KAZOO),
            ..side("kazoo", below_ours)
        },
        needs: None,
    },
    Pair {
        one: side("etcd-mutex", plain),
        other: side("etcdctl-lock", plain),
        needs: None,
    },
    Pair {
        one: side("consul-api", below_a_prefix),
        other: side("consul-lock", plain),
        needs: Some("PREFIX/.lock"),
    },
];

/// Lets each of the two hold while the other one waits, and give the lock to it.
///
/// # Errors
/// When the first one does not get the free lock.
pub(super) fn play(pair: &Pair, site: &mut Site) -> anyhow::Result<Found> {
    for (first, second) in [(&pair.one, &pair.other), (&pair.other, &pair.one)] {
        if let Some(what) = play_in_order(first, second, site)? {
            return Ok(Found::new(Answer::No, what));
        }
    }
    Ok(Found {
        call: pair.needs.map(str::to_owned),
        ..Found::new(
            Answer::Yes,
            "each waits for the other one, and gets the lock from it",
        )
    })
}

/// `None` if the second one waited, and got the lock when the first one gave it back; else what happened.
fn play_in_order(first: &Side, second: &Side, site: &mut Site) -> anyhow::Result<Option<String>> {
    let lock = format!("queue-{}", site.next_round());
    site.make_ready()?;
    let start = |side: &Side, machine: usize| {
        let system = System::named(side.system).with_context(|| format!("no system {}", side.system))?;
        let own_name = (side.lock)(&lock);
        let part = Part {
            driver: side.driver.unwrap_or(system.name_for_driver()),
            files: &lock,
            ..Part::of(system, &own_name, LEASE)
        };
        Contender::start(system, &*site.servers, &site.machines[machine], part)
    };
    let runs =
        |contender: &Contender, bound| wait_for(bound, || contender.last_ran().transpose()).transpose();
    let mut holder = start(first, 0)?;
    ensure!(
        runs(&holder, PATIENCE)?.is_some(),
        "{} does not get the free lock:\n{}",
        first.system,
        holder.last_lines()
    );
    let waiter = start(second, 1)?;
    let too_soon = runs(&waiter, WATCH)?.is_some();
    if !too_soon {
        holder.end();
    }
    let got_it = runs(&waiter, PATIENCE)?.is_some();
    let both = overlap(&stretches(&[holder.records()?, waiter.records()?], &[]));
    let last = waiter.last_lines();
    for machine in &site.machines {
        machine.signal_contender(Signal::KILL)?;
    }
    Ok(match (both, too_soon, got_it) {
        (Some(_), ..) | (_, true, _) => Some(format!("{} runs beside {}", second.name(), first.name())),
        (None, false, false) => {
            println!("{last}");
            Some(format!("{} never gets it after {}", second.name(), first.name()))
        }
        (None, false, true) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_one_queue_have_the_same_servers() {
        for pair in PAIRS {
            let kind = |side: &Side| System::named(side.system).unwrap().servers;
            assert_eq!(kind(&pair.one), kind(&pair.other), "{}", pair.one.system);
        }
    }
}
