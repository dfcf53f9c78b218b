//! Which rounds are left to play, and who plays them.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use crate::faults::Fault;
use crate::pace::Pace;
use crate::results::{Kept, lock};
use crate::round;
use crate::servers::Kind;
use crate::site::Site;
use crate::systems::System;
use crate::versions;

/// How often a round of one cell may fail before the rest of it is given up.
const FAILURES: u32 = 3;

/// A lock under a fault.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub system: &'static System,
    pub fault: Fault,
}

/// What all rounds have in common.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Rounds of each cell, those included that have been played before.
    pub rounds: usize,
    /// The lease of all locks that take any.
    pub lease: Duration,
    /// The seed of the first round.
    pub seed: u64,
    /// Where the records and logs of rounds go in which two ran.
    pub logs: Option<PathBuf>,
}

/// The cells that nobody has taken yet.
pub struct Plan {
    settings: Settings,
    left: Mutex<Vec<Cell>>,
    pace: Pace,
}

impl Plan {
    /// All cells of these systems and faults that lack rounds. Those that take longest come first, so that none of them
    /// is still played when all others have ended.
    pub fn new(
        systems: &[&'static System],
        faults: &[Fault],
        settings: Settings,
        kept: &Mutex<Kept>,
    ) -> Self {
        let kept = lock(kept);
        let mut left = Vec::new();
        for &system in systems {
            let lacks = |fault: &Fault| {
                fault.applies_to(system).is_ok() && kept.count(system.name, *fault) < settings.rounds
            };
            let faults = faults.iter().copied().filter(lacks);
            left.extend(faults.map(|fault| Cell { system, fault }));
        }
        left.sort_by_key(|cell| std::cmp::Reverse(cell.system.lease.bound(settings.lease)));
        Self {
            settings,
            left: Mutex::new(left),
            pace: Pace::default(),
        }
    }

    /// Whether nothing is left to play.
    pub fn is_empty(&self) -> bool {
        lock(&self.left).is_empty()
    }

    /// The next cell: one that needs the servers that there are, if there is one.
    fn take(&self, kind: Option<Kind>) -> Option<Cell> {
        let mut left = lock(&self.left);
        let same = left.iter().position(|cell| Some(cell.system.servers) == kind);
        let at = same.or((!left.is_empty()).then_some(0))?;
        Some(left.remove(at))
    }

    /// Plays cells until none is left, on servers that go on as long as they can be used. Returns how many cells failed.
    pub fn play(&self, kept: &Mutex<Kept>) -> usize {
        let mut site = None;
        let mut failed = 0;
        while let Some(cell) = self.take(site.as_ref().map(|(kind, _)| *kind)) {
            let mut failures = 0;
            while let Err(Failed { seed, error }) = self.play_cell(cell, &mut site, kept) {
                // What is the matter with the site is unknown.
                site = None;
                let (system, fault) = (cell.system.name, cell.fault);
                println!("{system} {} {seed}: {error:#}", fault.name());
                // That the file cannot be written shows at the next round of another cell.
                let _ = lock(kept).fail(system, fault, seed, &format!("{error:#}"));
                failures += 1;
                if failures == FAILURES {
                    failed += 1;
                    break;
                }
            }
        }
        failed
    }

    fn play_cell(
        &self,
        Cell { system, fault }: Cell,
        site: &mut Option<(Kind, Site)>,
        kept: &Mutex<Kept>,
    ) -> Result<(), Failed> {
        let (first, failures) = {
            let kept = lock(kept);
            let count = kept.count(system.name, fault);
            (count, kept.count_failures(system.name, fault))
        };
        for number in first..self.settings.rounds {
            let seed = self.settings.seed + (number + failures) as u64;
            self.play_round(Cell { system, fault }, seed, site, kept)
                .map_err(|error| Failed { seed, error })?;
        }
        Ok(())
    }

    fn play_round(
        &self,
        Cell { system, fault }: Cell,
        seed: u64,
        site: &mut Option<(Kind, Site)>,
        kept: &Mutex<Kept>,
    ) -> anyhow::Result<()> {
        self.pace.wait()?;
        let (_, used) = match site.take() {
            Some(used) if used.0 == system.servers => site.insert(used),
            // The servers of another system end before others begin.
            former => {
                drop(former);
                site.insert((system.servers, Site::start(system.servers)?))
            }
        };
        let versions = versions::of(system, used.server_versions()?);
        let logs = self.settings.logs.as_deref();
        let round = round::play(system, fault, used, self.settings.lease, seed, logs)?;
        println!(
            "{} {} {seed}: {}",
            system.name,
            fault.name(),
            serde_json::to_string(&round)?
        );
        {
            let mut kept = lock(kept);
            kept.add_versions(system.name, &versions)?;
            kept.add(system.name, fault, round)?;
        }
        if fault.needs_new_servers(system.servers) {
            *site = None;
        }
        Ok(())
    }
}

/// A round that came to no result.
struct Failed {
    seed: u64,
    error: anyhow::Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_the_cells_that_lack_rounds_and_keeps_to_the_servers_that_run() {
        let directory = tempfile::tempdir().unwrap();
        let kept =
            Mutex::new(Kept::open(&directory.path().join("results"), 4.0, Default::default()).unwrap());
        lock(&kept)
            .add("kazoo", Fault::HolderKilled, Default::default())
            .unwrap();
        let settings = Settings {
            rounds: 1,
            lease: Duration::from_secs(4),
            seed: 1,
            logs: None,
        };
        let systems =
            ["kazoo", "redis-lock", "shedlock", "zk-naive"].map(|name| System::named(name).unwrap());
        let faults = [Fault::HolderKilled, Fault::MemoryFull];
        let plan = Plan::new(&systems, &faults, settings, &kept);
        let mut taken = Vec::new();
        let mut kind = Some(Kind::Redis);
        while let Some(cell) = plan.take(kind) {
            kind = Some(cell.system.servers);
            taken.push((cell.system.name, cell.fault));
        }
        assert_eq!(
            taken,
            [
                ("redis-lock", Fault::HolderKilled),
                ("redis-lock", Fault::MemoryFull),
                ("shedlock", Fault::HolderKilled),
                ("zk-naive", Fault::HolderKilled)
            ]
        );
        assert!(plan.is_empty());
    }
}
