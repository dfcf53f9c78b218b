//! The stage of all trials: one ensemble for all rounds, and a new lock for each round.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use lockkeeper_judge::checker::{NodeLife, Report, Rule, check};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::DeletionWatch;
use lockkeeper_product::worker::{self, Options, Worker};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble, Host};

use crate::context::Context;
use crate::figures::Violations;
use crate::times::seconds;

/// Bound for steps that take seconds on an idle machine.
pub(crate) const BOUND: Duration = Duration::from_secs(90);

/// T of most trials. With a tick of 1 s that is twice the least timeout that servers grant.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(4);

/// T of contenders that must keep the lock on a busy machine: they tolerate 9.2 s without an answer, and with
/// [`SESSION_TIMEOUT`] 0.9 s (`lockkeeper_lock::Timing::spare`).
pub(crate) const CALM: Duration = Duration::from_secs(20);

/// An ensemble, and hosts that rounds reuse, because a network has 255 at most.
pub(crate) struct Stage {
    pub ensemble: Ensemble,
    trial: &'static str,
    hosts: BTreeMap<String, Host>,
    round: u32,
}

/// One round: an unused lock, and the leader's view of everything below `root`.
pub(crate) struct Round {
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
        let deletions = DeletionWatch::begin(&self.ensemble, &root)?;
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

    /// Waits until this many contenders are in the queue.
    pub fn wait_until_queued(&self, contenders: usize) -> anyhow::Result<()> {
        let count = || {
            let lives = self.deletions.lives();
            let is_in = |life: &&NodeLife| life.deleted.is_none() && life.name.starts_with("lock/");
            lives.iter().filter(is_in).count()
        };
        wait_for(BOUND, || (count() == contenders).then_some(())).with_context(|| {
            format!(
                "round {}: there are {} contenders in the queue instead of {contenders}",
                self.number,
                count()
            )
        })
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

    /// Records overlaps and tokens out of order, from the records of all workers of the round.
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

    /// The time from the last stamp under `token` to the deletion of its node: negative, and a violation, if
    /// something still ran when the lock was free.
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
