//! Servers stop, die and come back: applications never overlap, and one runs again without help.

use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_judge::checker::Rule;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::Worker;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Ensemble, faults};

use crate::context::Context;
use crate::figures::{Figures, Violations};
use crate::fixture::{BOUND, Fixture, Round};
use crate::sample::{Sample, seconds};
use crate::spares::Spares;
use crate::witness::Witness;

#[derive(Clone, Copy)]
enum Fault {
    LeaderStopped,
    TwoDown,
    RollingRestart,
    AllDown,
}

const FAULTS: [(Fault, &str); 4] = [
    (Fault::LeaderStopped, "leader stopped for 20 s"),
    (Fault::TwoDown, "two of three servers down for 10 s"),
    (Fault::RollingRestart, "rolling restart"),
    (Fault::AllDown, "all servers down for 10 s"),
];

pub(super) fn servers(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    let mut fixture = Fixture::new("servers")?.with_lease(context.lease);
    let mut violations = Violations::default();
    let mut back: [Sample; 4] = Default::default();
    let mut pauses: [Sample; 4] = Default::default();
    let (mut spares, mut holds) = (Spares::default(), 0);
    for _ in 0..context.rounds {
        for (kind, (fault, name)) in FAULTS.into_iter().enumerate() {
            let round = fixture.begin()?;
            let all = round.server_names();
            let mut workers = Vec::new();
            for worker in ["one", "two", "three"] {
                let options = fixture
                    .options(&round, worker, &all)?
                    .with_run(&["--restart", "always"]);
                workers.push(fixture.start(options)?);
            }
            wait_until_one_runs(&workers, BootInstant::now())?;
            let mut witness = Witness::new(&fixture.ensemble, &round.root);
            let (over, again) = witness.during(|| {
                strike(&fixture.ensemble, &round, fault)?;
                let over = BootInstant::now();
                let again = wait_until_one_runs(&workers, over)?;
                // Long enough for an overlap to become visible.
                fixture.ensemble.wait_ready()?;
                wait_until_one_runs(&workers, BootInstant::now() + Duration::from_secs(2))?;
                anyhow::Ok((over, again))
            })?;
            witness.keep_up();
            let report = round.judge(context, &workers, Rule::Exclusive, &mut violations)?;
            let timing = round.timing(&workers[0]);
            witness.judge(
                &report,
                (round.number, true),
                &timing,
                &mut spares,
                &mut violations,
            );
            holds += report.holds.len();
            let pause = report
                .gaps
                .iter()
                .map(|&(_, gap)| gap.as_secs_f64())
                .fold(0.0, f64::max);
            let again = seconds(again, over);
            back[kind].add(again);
            pauses[kind].add(pause);
            context.say(format!(
                "round {}: {name}: one runs {again:.3} s after its end; none ran for {pause:.3} s at most; {} holds",
                round.number,
                report.holds.len()
            ))?;
        }
    }
    let mut figures = Figures::default();
    for (kind, (_, name)) in FAULTS.into_iter().enumerate() {
        figures.row(
            format!("{name}: no overlap; one runs again after"),
            back[kind].to_string(),
        );
        figures.row(
            format!("{name}: longest time without a holder"),
            pauses[kind].to_string(),
        );
    }
    spares.tell_of(holds, &mut figures);
    violations.finish(figures)
}

fn strike(ensemble: &Ensemble, round: &Round, fault: Fault) -> anyhow::Result<()> {
    let down = |servers: &[usize]| {
        servers.iter().for_each(|&server| ensemble.kill(server));
        std::thread::sleep(Duration::from_secs(10));
        servers.iter().try_for_each(|&server| ensemble.launch(server))?;
        ensemble.wait_ready()
    };
    match fault {
        Fault::LeaderStopped => {
            let pid = ensemble.pid(round.leader).context("the leader is down")?;
            faults::stop(pid)?;
            std::thread::sleep(Duration::from_secs(20));
            Ok(faults::resume(pid)?)
        }
        Fault::TwoDown => down(&[round.leader, round.followers[0]]),
        Fault::RollingRestart => ensemble.rolling_restart(),
        Fault::AllDown => down(&round.server_names()),
    }
}

/// The first stamp of any application after `from`.
fn wait_until_one_runs(workers: &[Worker], from: BootInstant) -> anyhow::Result<BootInstant> {
    let stamp = || {
        let records = lockkeeper_product::worker::all_records(workers).ok()?;
        records
            .iter()
            .map(|record| record.at)
            .filter(|&at| at > from)
            .min()
    };
    wait_for(BOUND, stamp).with_context(|| {
        let logs: String = workers
            .iter()
            .map(|worker| format!("--- {}:\n{}\n", worker.options().name, worker.log()))
            .collect();
        format!("no application runs any more:\n{logs}")
    })
}
