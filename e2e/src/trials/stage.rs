//! What all trials stand on: one ensemble for all rounds, and a lock of its own for each round.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use lockkeeper_lock::BootInstant;

use super::{Context, Violations, seconds};
use crate::checker::{Report, Rule, check};
use crate::ensemble::DeletionWatch;
use crate::worker::{self, Options, Worker};
use crate::{Config, Ensemble, Host};

/// For what takes seconds when the machine has nothing else to do.
pub(super) const BOUND: Duration = Duration::from_secs(90);

/// T of most trials. With a tick of 1 s that is twice what servers grant at least.
pub(super) const SESSION_TIMEOUT: Duration = Duration::from_secs(4);

/// T of who is not to be disturbed on a machine with other work to do: it may be without an answer for 9.2 s of it, and
/// for 0.9 s of [`SESSION_TIMEOUT`] (`lockkeeper_lock::Timing::spare`).
pub(super) const CALM: Duration = Duration::from_secs(20);

/// An ensemble, and hosts that are used again and again: a network has 255 at most.
pub(super) struct Stage {
    pub ensemble: Ensemble,
    trial: &'static str,
    hosts: BTreeMap<String, Host>,
    round: u32,
}

/// One round: a lock nobody has used, and the leader's view of everything below `root`.
pub(super) struct Round {
    pub number: u32,
    pub root: String,
    pub lock: String,
    pub leader: usize,
    pub followers: Vec<usize>,
    pub deletions: DeletionWatch,
}

impl Stage {
    pub fn new(trial: &'static str) -> anyhow::Result<Self> {
        let ensemble = Ensemble::start(Config::default())?;
        ensemble.network().can_cut()?;
        Ok(Self {
            ensemble,
            trial,
            hosts: BTreeMap::new(),
            round: 0,
        })
    }

    /// Waits until all servers serve, and one leads the others.
    pub fn begin(&mut self) -> anyhow::Result<Round> {
        self.ensemble.wait_ready()?;
        let (leader, followers) = self.ensemble.wait_for_roles()?;
        self.round += 1;
        let root = format!("/{}-{}", self.trial, self.round);
        let deletions = self.ensemble.watch_deletions(&root)?;
        Ok(Round {
            number: self.round,
            lock: format!("{root}/lock"),
            root,
            leader,
            followers,
            deletions,
        })
    }

    pub fn host(&mut self, name: &str) -> anyhow::Result<Host> {
        if let Some(host) = self.hosts.get(name) {
            return Ok(host.clone());
        }
        let host = self.ensemble.client(name)?;
        self.hosts.insert(name.to_owned(), host.clone());
        Ok(host)
    }

    /// A worker of this round that knows the given servers.
    pub fn options(&mut self, round: &Round, name: &str, servers: &[usize]) -> anyhow::Result<Options> {
        let connect: Vec<_> = servers
            .iter()
            .map(|&server| self.ensemble.address(server).to_string())
            .collect();
        let host = self.host(name)?;
        let name = format!("{name}-{}", round.number);
        Ok(Options {
            connect: connect.join(","),
            session_timeout: SESSION_TIMEOUT,
            ..Options::on(host, &self.ensemble, &name, &round.lock)
        })
    }

    pub fn start(&self, options: Options) -> anyhow::Result<Worker> {
        Worker::start(&self.ensemble, options)
    }
}

impl Round {
    pub fn server_names(&self) -> Vec<usize> {
        let mut all = self.followers.clone();
        all.push(self.leader);
        all.sort_unstable();
        all
    }

    /// When the leader deleted the node of `token`.
    pub fn deletion(&self, token: i64) -> anyhow::Result<BootInstant> {
        let deleted = self.deletions.wait_for_deletion(token, BOUND);
        ensure!(
            self.deletions.interrupted().is_none(),
            "round {}: the leader was lost from sight",
            self.number
        );
        deleted.with_context(|| format!("round {}: the node of {token} was not deleted", self.number))
    }

    /// Notes overlaps and tokens out of order in the records of all workers of the round.
    pub fn judge<'a>(
        &self,
        context: &mut Context<'_>,
        workers: impl IntoIterator<Item = &'a Worker> + Clone,
        rule: Rule,
        violations: &mut Violations,
    ) -> anyhow::Result<Report> {
        let report = check(&worker::all_records(workers.clone())?, rule);
        if !report.is_clean() {
            violations.add(format!(
                "round {}: {} overlaps or tokens out of order",
                self.number,
                report.violations.len()
            ));
            context.say(&report)?;
            for worker in workers {
                context.say(format!("--- log of {}:\n{}", worker.options().name, worker.log()))?;
            }
        }
        Ok(report)
    }

    /// The time from the last stamp under `token` to the deletion of its node: negative, and a
    /// violation, when something still ran when the lock was free.
    pub fn spare(
        &self,
        context: &mut Context<'_>,
        worker: &Worker,
        token: i64,
        violations: &mut Violations,
    ) -> anyhow::Result<f64> {
        let deleted = self.deletion(token)?;
        let spare = seconds(deleted, worker.last_stamp(token)?);
        if spare <= 0.0 {
            violations.add(format!(
                "round {}: {} ran {:.3} s longer than its node existed",
                self.number,
                worker.options().name,
                -spare
            ));
            context.say(format!("--- log of {}:\n{}", worker.options().name, worker.log()))?;
        }
        Ok(spare)
    }
}
