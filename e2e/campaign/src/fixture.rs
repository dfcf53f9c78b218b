//! The fixture of all trials: one ensemble for all rounds, and a new lock for each round.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use lockkeeper_judge::checker::{NodeLife, Report, Rule, check};
use lockkeeper_lock::{BootInstant, Timing};
use lockkeeper_product::DeletionWatch;
use lockkeeper_product::worker::{self, Options, Worker};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble, Host};

use crate::context::Context;
use crate::figures::Violations;
use crate::sample::seconds;
use crate::spares::Spare;
use crate::times::{LeaseOption, SESSION_TIMEOUT, STOP_GRACE, TICK};

/// Bound for steps that take seconds on an idle machine.
pub(crate) const BOUND: Duration = Duration::from_secs(90);

/// An ensemble, and hosts that rounds reuse, because a network has 255 at most.
pub(crate) struct Fixture {
    pub ensemble: Ensemble,
    trial: &'static str,
    lease: LeaseOption,
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
    lease: LeaseOption,
}

impl Fixture {
    pub(crate) fn new(trial: &'static str) -> anyhow::Result<Self> {
        Self::with_servers(trial, Config::default())
    }

    /// With servers of another configuration than the default.
    pub(crate) fn with_servers(trial: &'static str, config: Config) -> anyhow::Result<Self> {
        let ensemble = Ensemble::start(Config { tick: TICK, ..config })?;
        ensemble.network().can_cut()?;
        Ok(Self {
            ensemble,
            trial,
            lease: LeaseOption::default(),
            hosts: BTreeMap::new(),
            round: 0,
        })
    }

    /// With the lease duration that the user wants for contenders that state none.
    pub(crate) fn with_lease(self, lease: LeaseOption) -> Self {
        Self { lease, ..self }
    }

    /// Waits until all servers serve, and one leads the others.
    pub(crate) fn begin(&mut self) -> anyhow::Result<Round> {
        self.ensemble.wait_ready()?;
        let (leader, followers) = self.ensemble.wait_for_roles()?;
        self.round += 1;
        let root = format!("/{}-{}", self.trial, self.round);
        let deletions = DeletionWatch::begin(&self.ensemble, &root)?;
        Ok(Round {
            number: self.round,
            lock: format!("{root}/lock"),
            lease: self.lease,
            root,
            leader,
            followers,
            deletions,
        })
    }

    pub(crate) fn host(&mut self, name: &str) -> anyhow::Result<Host> {
        if let Some(host) = self.hosts.get(name) {
            return Ok(host.clone());
        }
        let host = self.ensemble.client(name)?;
        self.hosts.insert(name.to_owned(), host.clone());
        Ok(host)
    }

    /// A worker of this round that knows the given servers.
    pub(crate) fn options(
        &mut self,
        round: &Round,
        name: &str,
        servers: &[usize],
    ) -> anyhow::Result<Options> {
        let connect: Vec<_> = servers
            .iter()
            .map(|&server| self.ensemble.address(server).to_string())
            .collect();
        let host = self.host(name)?;
        let name = format!("{name}-{}", round.number);
        let mut options = Options::on(host, &self.ensemble, &name, &round.lock);
        options.connect = connect.join(",");
        if let Some(lease) = self.lease.value() {
            options = options.with_run(&["--lease-duration", &lease]);
        }
        Ok(self.with_times(options, SESSION_TIMEOUT))
    }

    /// The same worker with this T, or more if the user's lease duration needs that.
    pub(crate) fn with_times(&self, options: Options, session_timeout: Duration) -> Options {
        let timing = self.lease.timing(session_timeout, STOP_GRACE);
        Options {
            session_timeout: timing.session_timeout,
            stop_grace: timing.stop_grace,
            ..options
        }
    }

    pub(crate) fn start(&self, options: Options) -> anyhow::Result<Worker> {
        Worker::start(&self.ensemble, options)
    }
}

impl Round {
    pub(crate) fn server_names(&self) -> Vec<usize> {
        let mut all = self.followers.clone();
        all.push(self.leader);
        all.sort_unstable();
        all
    }

    /// Waits until this many contenders are in the queue.
    pub(crate) fn wait_until_queued(&self, contenders: usize) -> anyhow::Result<()> {
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

    /// Whether the holder still has the lock when the fault is to come. A busy machine may have cost a short
    /// lease the lock: then the round says nothing about the fault.
    pub(crate) fn is_still_held(&self, context: &mut Context<'_>, waiter: &Worker) -> anyhow::Result<bool> {
        let is_held = waiter.records()?.is_empty();
        if !is_held {
            context.say(format!(
                "round {}: the holder was stopped before the fault came",
                self.number
            ))?;
        }
        Ok(is_held)
    }

    /// When the leader deleted the node of `token`.
    pub(crate) fn deletion(&self, token: i64) -> anyhow::Result<BootInstant> {
        let deleted = self.deletions.wait_for_deletion(token, BOUND);
        ensure!(
            self.deletions.interrupted().is_none(),
            "round {}: the leader was lost from sight",
            self.number
        );
        deleted.with_context(|| format!("round {}: the node of {token} was not deleted", self.number))
    }

    /// Records overlaps and tokens out of order, from the records of all workers of the round.
    pub(crate) fn judge<'a>(
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

    /// The times of a worker that this fixture has started.
    pub(crate) fn timing(&self, worker: &Worker) -> Timing {
        let options = worker.options();
        self.lease.timing(options.session_timeout, options.stop_grace)
    }

    /// The time from the last stamp under `token` to the deletion of its node. It is a violation if something
    /// still ran when the lock was free, or almost did.
    pub(crate) fn spare(
        &self,
        context: &mut Context<'_>,
        worker: &Worker,
        token: i64,
        violations: &mut Violations,
    ) -> anyhow::Result<Spare> {
        let deleted = self.deletion(token)?;
        let spare = Spare {
            seconds: seconds(deleted, worker.last_stamp(token)?),
            is_released: self.deletions.was_released(token),
        };
        let who = format!("round {}: {}", self.number, worker.options().name);
        if !spare.judge(&who, &self.timing(worker), violations) {
            context.say(format!("--- log of {}:\n{}", worker.options().name, worker.log()))?;
        }
        Ok(spare)
    }
}
