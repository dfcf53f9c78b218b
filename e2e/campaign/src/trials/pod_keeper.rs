//! The keeper of a pod is killed on a Kubernetes node, where the kubelet starts another one.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::Space;
use lockkeeper_product::space::{BOUND, KEEPER, processes};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Cluster, Unsupported, faults};
use serde_json::json;

use crate::context::Context;
use crate::figures::{Figures, Violations};
use crate::sample::{Sample, longest_silence, seconds};
use crate::times::DEFAULT_SESSION_TIMEOUT;

/// Locks whose keepers are killed at the same time, each in a namespace of its own.
const AT_ONCE: u32 = 5;

/// What a killed keeper cost.
struct Outcome {
    round: u32,
    /// Of the application, or `None` if it was stopped.
    silence: Option<f64>,
    /// Until the kubelet had started the next keeper.
    absence: f64,
}

pub(super) fn pod_keeper(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    if Cluster::shared().is_none() {
        return Err(Unsupported::new("there is no cluster of this machine's own").into());
    }
    // Keeps all others away; the locks are beside it.
    let space = Space::alone("pod-keeper").context("there is no cluster")?;
    let rounds = context.rounds;
    let seeds: Vec<_> = (0..AT_ONCE).map(|_| context.random.u64(..)).collect();
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let lanes = (0u32..).zip(seeds).map(|(lane, seed)| {
            let (space, outcomes) = (&space, &outcomes);
            let rounds = (1..=rounds).filter(move |round| round % AT_ONCE == lane);
            scope.spawn(move || {
                run(
                    &space.beside(&format!("pod-keeper-{lane}")),
                    rounds,
                    seed,
                    outcomes,
                )
            })
        });
        // All at once, before the first is waited for.
        let lanes: Vec<_> = lanes.collect();
        lanes
            .into_iter()
            .try_for_each(|lane| lane.join().expect("a condition was not met"))
    })?;

    let (mut silences, mut absences) = (Sample::default(), Sample::default());
    let mut violations = Violations::default();
    for Outcome {
        round,
        silence,
        absence,
    } in outcomes.into_inner().expect("no lane panicked")
    {
        absences.add(absence);
        let about = match silence {
            Some(silence) => {
                silences.add(silence);
                format!("went on, silent for {silence:.3} s at most")
            }
            None => {
                violations.add(format!(
                    "round {round}: a killed keeper cost its application the lock"
                ));
                "was stopped".to_owned()
            }
        };
        context.say(format!(
            "round {round}: the next keeper ran {absence:.3} s later; the application {about}"
        ))?;
    }
    let mut figures = Figures::default();
    figures.row(
        "keeper of a pod killed: the application went on",
        format!("{} of {}", silences.len(), absences.len()),
    );
    figures.row("its longest silence", silences.to_string());
    figures.row(
        "until the kubelet had started the next keeper",
        absences.to_string(),
    );
    violations.finish(figures)
}

/// Rounds one after the other. The kubelet restarts a container that has ended before only after a pause, which
/// doubles (`MaxContainerBackOff`), so each round has new pods.
fn run(
    space: &Space,
    rounds: impl Iterator<Item = u32>,
    seed: u64,
    outcomes: &Mutex<Vec<Outcome>>,
) -> anyhow::Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    // The default times of a lock.
    let times =
        json!({ "sessionTimeout": format!("{}s", DEFAULT_SESSION_TIMEOUT.as_secs()), "stopGrace": "3s" });
    let pod = space.pod(&[space.recording(&[])]);
    space.apply(&[
        space.lock("report", &times),
        space.workload("Deployment", "report", Some(0), pod),
    ]);
    let mut last = 0;
    for round in rounds {
        space.kubectl(&["scale", "deployment", "report", "--replicas=2"])?;
        let (token, holder, _) = space.wait_until_it_runs(last);
        space.wait_until_waiting_behind(&holder, "report", 1);
        std::thread::sleep(Duration::from_millis(random.u64(..2_000)));

        let uid = space.kubectl(&["get", "pod", &holder, "--output=jsonpath={.metadata.uid}"])?;
        let keeper = space.process(&holder, KEEPER);
        let killed = BootInstant::now();
        faults::kill(keeper)?;
        let started = || {
            let mut all = processes(KEEPER, &uid).into_iter();
            all.any(|process| process != keeper).then(BootInstant::now)
        };
        let started =
            wait_for(BOUND, started).with_context(|| format!("no other keeper\n{}", space.story()))?;

        // Longer than the session would live without a keeper.
        let end = killed + DEFAULT_SESSION_TIMEOUT * 2;
        let outcome = || {
            let records = space.records();
            let next = records.iter().map(|record| record.token).max()?;
            let goes_on = records
                .iter()
                .any(|record| record.token == token && record.at > end);
            (goes_on || next > token).then_some((next == token, records))
        };
        let (is_kept, records) =
            wait_for(BOUND, outcome).with_context(|| format!("nobody runs\n{}", space.story()))?;
        let silence = is_kept
            .then(|| longest_silence(&records, token, killed))
            .transpose()?;
        space.assert_exclusive();
        outcomes.lock().expect("no lane panicked").push(Outcome {
            round,
            silence,
            absence: seconds(started, killed),
        });
        space.scale_to_zero("report");
        last = space
            .records()
            .iter()
            .map(|record| record.token)
            .max()
            .unwrap_or(token);
    }
    Ok(())
}
