//! What was measured, round by round, in a file that a stopped run goes on from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::cost::{Fairness, Handoffs, Waiting};
use crate::faults::Fault;
use crate::probe::{Found, Probe};
use crate::provenance::Run;

/// One round of a fault.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    pub seed: u64,
    /// For how long two ran at once, in seconds; `None`: never.
    pub overlap: Option<f64>,
    /// The overlap had not ended when the round did.
    #[serde(default, skip_serializing_if = "is_false")]
    pub goes_on: bool,
    /// There was an overlap before the fault.
    #[serde(default, skip_serializing_if = "is_false")]
    pub before: bool,
    /// For how long nobody ran, in seconds; `None`: nobody ever ran again.
    pub gap: Option<f64>,
    /// If servers were killed: after what time, in seconds, all of them served again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<f64>,
    /// Writes of a former holder after the next one had begun.
    pub late: u32,
    /// Of these, how many a resource refuses that takes the highest token only.
    pub refused: u32,
    /// Whether there is a fencing token, and each contender that began to run had a higher one than all before.
    #[serde(default)]
    pub grew: Option<bool>,
    /// How long after the fault the library told its holder of the loss, in seconds; `None`: it told nothing.
    pub told: Option<f64>,
    /// Which of [`Results::runs`] it belongs to.
    pub run: usize,
}

/// A round that could not be played to its end, or about which the judges disagree. It is not played again: the next one
/// has another seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    pub seed: u64,
    /// Why, in one line.
    pub why: String,
    /// As of a [`Round`].
    pub run: usize,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// What a lock costs when nothing breaks, turn by turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// By the size of the queue.
    pub handoffs: BTreeMap<u32, Vec<Handoffs>>,
    /// Of one more contender that waits.
    pub waiting: Vec<Waiting>,
    /// Of contenders that queue again at once.
    pub fairness: Vec<Fairness>,
}

/// What a lock offers when nothing breaks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Properties {
    #[serde(default)]
    pub probed: BTreeMap<Probe, Found>,
    /// Whether it stands in one queue with another one: by the name of that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<String, Found>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The lease of all systems that have one, in seconds.
    pub lease: f64,
    #[serde(default)]
    pub runs: Vec<Run>,
    /// By the name of the system, then the fault.
    pub rounds: BTreeMap<String, BTreeMap<Fault, Vec<Round>>>,
    /// By the name of the system, then the fault.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<String, BTreeMap<Fault, Vec<Failure>>>,
    /// By the name of the system.
    #[serde(default)]
    pub costs: BTreeMap<String, Costs>,
    /// By the name of the system.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, Properties>,
    /// By the name of the system, then that of a library or server: each version that was measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    /// Why something could not be measured: by the name of the system, then [`COSTS`] or [`PROPERTIES`].
    #[serde(default)]
    pub missing: BTreeMap<String, BTreeMap<String, String>>,
}

/// A part of the results that belongs to no fault.
pub const COSTS: &str = "costs";

/// See [`COSTS`].
pub const PROPERTIES: &str = "properties";

/// The results in their file.
#[derive(Debug)]
pub struct Kept {
    pub results: Results,
    file: PathBuf,
    /// Which of the runs this is.
    run: usize,
}

fn count<T>(all: &BTreeMap<String, BTreeMap<Fault, Vec<T>>>, system: &str, fault: Fault) -> usize {
    let of_system = all.get(system);
    of_system
        .and_then(|faults| faults.get(&fault))
        .map_or(0, Vec::len)
}

/// What several threads change, each change in one step: a thread that panicked has left it whole.
pub fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    /// Reads a file, or begins one, for a run.
    ///
    /// # Errors
    /// When it is not of this form, or of another lease: rounds of two leases cannot be compared.
    pub fn open(file: &Path, lease: f64, run: Run) -> anyhow::Result<Self> {
        let mut results = if file.exists() {
            Self::read(file)?
        } else {
            Results {
                lease,
                ..Results::default()
            }
        };
        anyhow::ensure!(
            (results.lease - lease).abs() < 1e-9,
            "{} has rounds with a lease of {} s, not {lease} s: give it as --lease, or begin another file",
            file.display(),
            results.lease
        );
        let known = results.runs.iter().position(|known| *known == run);
        let run = known.unwrap_or_else(|| {
            results.runs.push(run);
            results.runs.len() - 1
        });
        Ok(Self {
            results,
            file: file.to_owned(),
            run,
        })
    }

    /// What is in a file.
    ///
    /// # Errors
    /// When it cannot be read, or is not of this form.
    pub fn read(file: &Path) -> anyhow::Result<Results> {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is not a file of results", file.display()))
    }

    /// How many rounds there are of a fault.
    pub fn count(&self, system: &str, fault: Fault) -> usize {
        count(&self.results.rounds, system, fault)
    }

    /// How many there are that came to no result.
    pub fn count_failures(&self, system: &str, fault: Fault) -> usize {
        count(&self.results.failures, system, fault)
    }

    /// Adds a round of this run, and writes the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(&mut self, system: &str, fault: Fault, round: Round) -> anyhow::Result<()> {
        let round = Round {
            run: self.run,
            ..round
        };
        let faults = self.results.rounds.entry(system.to_owned()).or_default();
        faults.entry(fault).or_default().push(round);
        self.write()
    }

    /// Adds a round of this run that came to no result, and writes the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn fail(&mut self, system: &str, fault: Fault, seed: u64, why: &str) -> anyhow::Result<()> {
        let failure = Failure {
            seed,
            why: why.lines().next().unwrap_or_default().to_owned(),
            run: self.run,
        };
        let faults = self.results.failures.entry(system.to_owned()).or_default();
        faults.entry(fault).or_default().push(failure);
        self.write()
    }

    /// Adds a part of a system's costs, and writes the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn add_cost(&mut self, system: &str, add: impl FnOnce(&mut Costs)) -> anyhow::Result<()> {
        add(self.results.costs.entry(system.to_owned()).or_default());
        self.is_there(system, COSTS);
        self.write()
    }

    pub fn costs(&self, system: &str) -> Costs {
        self.results.costs.get(system).cloned().unwrap_or_default()
    }

    /// Adds to what a system offers, and writes the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn add_property(
        &mut self,
        system: &str,
        add: impl FnOnce(&mut Properties),
    ) -> anyhow::Result<()> {
        add(self.results.properties.entry(system.to_owned()).or_default());
        self.is_there(system, PROPERTIES);
        self.write()
    }

    /// Adds versions with which a system is measured to those before, and writes the file if they are new.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn add_versions(&mut self, system: &str, versions: &[(&str, String)]) -> anyhow::Result<()> {
        let of_system = self.results.versions.entry(system.to_owned()).or_default();
        let mut is_new = false;
        for (part, version) in versions {
            is_new |= of_system
                .entry((*part).to_owned())
                .or_default()
                .insert(version.clone());
        }
        if is_new { self.write() } else { Ok(()) }
    }

    /// Says why [`COSTS`] or [`PROPERTIES`] of a system could not be measured.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn miss(&mut self, system: &str, what: &str, why: String) -> anyhow::Result<()> {
        let of_system = self.results.missing.entry(system.to_owned()).or_default();
        of_system.insert(what.to_owned(), why);
        self.write()
    }

    /// This has been measured after all; what else is missing still is.
    fn is_there(&mut self, system: &str, what: &str) {
        if let Some(of_system) = self.results.missing.get_mut(system) {
            of_system.remove(what);
            if of_system.is_empty() {
                self.results.missing.remove(system);
            }
        }
    }

    /// Replaces the file in one step: a reader finds the former one or the new one.
    fn write(&self) -> anyhow::Result<()> {
        let beside = self.file.with_extension("new");
        std::fs::write(&beside, serde_json::to_string_pretty(&self.results)? + "\n")?;
        Ok(std::fs::rename(&beside, &self.file)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_run_goes_on_with_what_it_has_and_leases_are_not_mixed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("results.json");
        let round = Round {
            seed: 7,
            overlap: Some(0.25),
            late: 3,
            ..Round::default()
        };
        let run = |revision: &str| Run {
            revision: revision.to_owned(),
            day: "2026-11-29".to_owned(),
        };
        let open = |revision: &str| Kept::open(&file, 4.0, run(revision));
        let mut kept = open("one").unwrap();
        kept.add("kazoo", Fault::HolderPaused, round).unwrap();
        let again = open("one").unwrap();
        assert_eq!(again.results, kept.results);
        assert_eq!(again.count("kazoo", Fault::HolderPaused), 1);
        assert_eq!(again.count("kazoo", Fault::HolderKilled), 0);
        let mut later = open("two").unwrap();
        later
            .fail("kazoo", Fault::HolderPaused, 8, "no server\nand no log")
            .unwrap();
        later.add("kazoo", Fault::HolderPaused, Round::default()).unwrap();
        kept = open("two").unwrap();
        assert_eq!(kept.results.runs, [run("one"), run("two")]);
        assert_eq!(kept.count_failures("kazoo", Fault::HolderPaused), 1);
        let failed = &kept.results.failures["kazoo"][&Fault::HolderPaused][0];
        assert_eq!((failed.seed, &*failed.why, failed.run), (8, "no server", 1));
        let rounds = &kept.results.rounds["kazoo"][&Fault::HolderPaused];
        assert_eq!(rounds.iter().map(|round| round.run).collect::<Vec<_>>(), [0, 1]);
        kept.add_versions("kazoo", &[("ZooKeeper", "3.9.5".to_owned())])
            .unwrap();
        kept.add_versions("kazoo", &[("ZooKeeper", "3.9.6".to_owned())])
            .unwrap();
        let versions = open("two").unwrap().results.versions;
        assert_eq!(versions["kazoo"]["ZooKeeper"].len(), 2);
        let refused = Kept::open(&file, 15.0, run("two")).unwrap_err().to_string();
        assert!(refused.contains("give it as --lease"), "{refused}");
    }
}
