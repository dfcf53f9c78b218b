//! The leader is killed under a holder with the default times, again and again.

use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_judge::checker::Rule;
use lockkeeper_lock::{BootInstant, Timing};
use lockkeeper_product::Worker;
use lockkeeper_product::worker::{Options, all_records};
use lockkeeper_testbed::Ensemble;
use lockkeeper_testbed::ensemble::{block_on, connector};
use lockkeeper_testbed::process::wait_for;
use zookeeper_client::{Acls, CreateMode};

use crate::context::Context;
use crate::figures::{Figures, Violations};
use crate::fixture::{BOUND, Fixture, Round};
use crate::sample::{Sample, longest_silence, seconds};
use crate::times::DEFAULT_SESSION_TIMEOUT;

/// A write to servers without a leader gets no answer. It is sent anew after this.
const ATTEMPT: Duration = Duration::from_millis(500);

pub(super) fn elections(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    let mut fixture = Fixture::new("elections")?;
    let mut violations = Violations::default();
    let round = fixture.begin()?;
    let workers = [
        start(&mut fixture, &round, "one")?,
        start(&mut fixture, &round, "two")?,
    ];
    let timing = Timing::new(DEFAULT_SESSION_TIMEOUT);
    let lease = timing.lease().context("the default is a lease duration")?;
    round.wait_until_queued(2)?;
    workers_run(&workers, BootInstant::now())?;

    let (mut elected, mut joined, mut silences) = (Sample::default(), Sample::default(), Sample::default());
    let mut kept = 0;
    for number in 1..=context.rounds {
        let (leader, _) = fixture.ensemble.wait_for_roles()?;
        let (holder, token) = holder(&workers)?;
        // It renews at any moment of its interval.
        std::thread::sleep(Duration::from_millis(context.random.u64(1_000..3_000)));
        let killed = BootInstant::now();
        fixture.ensemble.kill(leader);
        let to_serve = seconds(wait_until_it_writes(&fixture.ensemble)?, killed);
        fixture.ensemble.launch(leader)?;
        fixture.ensemble.wait_ready()?;
        fixture.ensemble.wait_for_roles()?;
        let joining = BootInstant::now();
        // What the election cost is over by then: without a renewal the lease has ended.
        let proof = joining.max(killed + lease + timing.interval());
        std::thread::sleep(proof - BootInstant::now());
        workers_run(&workers, proof)?;

        let is_kept = self::holder(&workers)?.1 == token;
        let silence = longest_silence(&holder.records()?, token, killed)?;
        kept += u32::from(is_kept);
        elected.add(to_serve);
        joined.add(seconds(joining, killed));
        if is_kept {
            silences.add(silence);
        }
        context.say(format!(
            "round {number}: writes again after {to_serve:.3} s; the holder {}",
            if is_kept {
                format!("went on, silent for {silence:.3} s at most")
            } else {
                format!(
                    "was stopped\n--- log of {}:\n{}",
                    holder.options().name,
                    holder.log()
                )
            }
        ))?;
    }
    round.judge(context, &workers, Rule::Exclusive, &mut violations)?;
    let mut figures = Figures::default();
    figures.row(
        "leader killed, a new one elected: the holder went on under its token",
        format!("{kept} of {}", context.rounds),
    );
    figures.row(
        "from the kill until the ensemble serves writes again",
        elected.to_string(),
    );
    figures.row(
        "from the kill until the killed server was started again and had joined",
        joined.to_string(),
    );
    figures.row(
        "longest silence of the application that went on",
        silences.to_string(),
    );
    violations.finish(figures)
}

fn start(fixture: &mut Fixture, round: &Round, name: &str) -> anyhow::Result<Worker> {
    let options = fixture.options(round, name, &round.server_names())?;
    let worker = fixture.start(Options {
        session_timeout: DEFAULT_SESSION_TIMEOUT,
        stop_grace: Timing::new(DEFAULT_SESSION_TIMEOUT).stop_grace,
        ..options.with_run(&["--restart", "always"])
    })?;
    Ok(worker)
}

/// The worker that got the lock last, and its token.
fn holder(workers: &[Worker]) -> anyhow::Result<(&Worker, i64)> {
    let mut newest = None;
    for worker in workers {
        let token = worker.records()?.iter().map(|record| record.token).max();
        newest = newest.max(token.map(|token| (token, worker.options().name.clone())));
    }
    let (token, name) = newest.context("nobody has run")?;
    let worker = workers.iter().find(|worker| worker.options().name == name);
    Ok((worker.context("it is one of them")?, token))
}

/// Waits until an application runs after `from`.
fn workers_run(workers: &[Worker], from: BootInstant) -> anyhow::Result<()> {
    let runs = || {
        let records = all_records(workers).ok()?;
        records.iter().any(|record| record.at > from).then_some(())
    };
    wait_for(BOUND, runs).with_context(|| {
        let logs: String = workers.iter().map(Worker::log).collect();
        format!("no application runs any more:\n{logs}")
    })
}

/// The moment at which a write of another client is acknowledged.
fn wait_until_it_writes(ensemble: &Ensemble) -> anyhow::Result<BootInstant> {
    let end = BootInstant::now() + BOUND;
    let servers = ensemble.connect_string();
    block_on(ensemble.observer(), || async {
        while BootInstant::now() < end {
            let write = async {
                let client = connector().connect(&servers).await?;
                let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
                client.create("/elections-probe-", b"", &options).await
            };
            if let Ok(Ok(_)) = tokio::time::timeout(ATTEMPT, write).await {
                return Some(BootInstant::now());
            }
            // Servers that look for a leader refuse at once.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        None
    })?
    .with_context(|| format!("the ensemble has acknowledged no write for {BOUND:?}"))
}
