//! Random faults under guarded pods on two Kubernetes nodes.

use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_judge::checker::{Rule, check_with_pauses};
use lockkeeper_lock::{BootInstant, Timing};
use lockkeeper_product::Space;
use lockkeeper_product::chart::SYSTEM;
use lockkeeper_testbed::Cluster;
use lockkeeper_testbed::Unsupported;
use lockkeeper_testbed::process::wait_for;
use serde_json::{Value, json};

use crate::context::Context;
use crate::figures::{Figures, Violations};
use crate::sample::Sample;
use crate::spares::Spares;
use crate::times::LeaseOption;
use crate::witness::Witness;

mod faults;

use faults::{Broken, strike};

/// Length of the faults of one round, in a test and in a campaign by minutes.
const SHORT: Duration = Duration::from_secs(40);
const LONG: Duration = Duration::from_secs(180);
/// A program that wrote nothing for this time, a hundred times its period, was stopped: by a fault or by
/// `onLoss: Pause`.
const SILENCE: Duration = Duration::from_millis(500);
/// T of a lock whose kind states none, and its stop grace.
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);
const STOP_GRACE: Duration = Duration::from_millis(600);
/// The most faults at the same time.
const AT_ONCE: usize = 2;
/// The kubelet waits for up to five minutes before it restarts a container that has ended often
/// (`MaxContainerBackOff`).
const BOUND: Duration = Duration::from_secs(420);

/// The kind of pods of a round.
struct Kind {
    about: &'static str,
    guard: &'static str,
    spec: fn() -> Value,
    session_timeout: Duration,
    recorder: &'static [&'static str],
    /// Changes to its container.
    container: fn(&mut Value),
    /// Whether a stopped application may go on later, and record under the token of its first hold.
    pauses: bool,
}

const KINDS: &[Kind] = &[
    Kind {
        about: "wrap",
        guard: "wrap",
        spec: || json!({}),
        session_timeout: SESSION_TIMEOUT,
        recorder: &["--ignore-sigterm"],
        container: |_| {},
        pauses: false,
    },
    Kind {
        about: "wrap, chains of forks",
        guard: "wrap",
        spec: || json!({}),
        session_timeout: SESSION_TIMEOUT,
        recorder: &["--ignore-sigterm", "--chains", "4", "--chain-rest", "2ms"],
        container: |_| {},
        pauses: false,
    },
    Kind {
        about: "signal, last words by a link in the image",
        guard: "signal",
        spec: || json!({}),
        session_timeout: SESSION_TIMEOUT,
        recorder: &["--ignore-sigterm"],
        container: |container| container["terminationMessagePath"] = json!("/var/run/term"),
        pauses: false,
    },
    Kind {
        about: "wrap, onLoss: Pause",
        guard: "wrap",
        spec: || json!({ "onLoss": "Pause" }),
        session_timeout: SESSION_TIMEOUT,
        recorder: &[],
        container: |_| {},
        pauses: true,
    },
    Kind {
        about: "wrap, onSuspect: Pause, T 15 s",
        guard: "wrap",
        spec: || json!({ "onSuspect": "Pause" }),
        session_timeout: Duration::from_secs(15),
        recorder: &[],
        container: |_| {},
        pauses: true,
    },
];

#[derive(Default)]
struct Tally {
    struck: usize,
    holds: usize,
    spares: Spares,
    gaps: Sample,
}

impl Kind {
    fn timing(&self, lease: LeaseOption) -> Timing {
        lease.timing(self.session_timeout, STOP_GRACE)
    }

    /// The specification of its lock.
    fn lock(&self, lease: LeaseOption) -> Value {
        let timing = self.timing(lease);
        let mut spec = (self.spec)();
        spec["sessionTimeout"] = json!(format!("{}ms", timing.session_timeout.as_millis()));
        spec["stopGrace"] = json!(format!("{}ms", timing.stop_grace.as_millis()));
        if let Some(lease) = lease.value() {
            spec["leaseDuration"] = json!(lease);
        }
        spec
    }
}

/// Rounds of 40 s, or rounds of three minutes for the given number of minutes.
pub(super) fn nodes(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    if Cluster::shared().is_none() {
        return Err(Unsupported::new("there is no cluster of this machine's own").into());
    }
    let length = if context.minutes.is_some() { LONG } else { SHORT };
    let rounds = context.rounds_of(length);
    let mut violations = Violations::default();
    let mut tally = Tally::default();
    let first = context.random.usize(..KINDS.len());
    for number in 1..=rounds {
        let kind = &KINDS[(first + number as usize) % KINDS.len()];
        context.say(format!("round {number}: {}", kind.about))?;
        round(context, number, kind, length, &mut tally, &mut violations)?;
    }
    let mut figures = Figures::default();
    figures.row(
        format!(
            "random faults on two nodes, {rounds} rounds of {} s: no overlap, tokens in order",
            length.as_secs()
        ),
        format!("{} faults, {} holds", tally.struck, tally.holds),
    );
    figures.row("time without an application", tally.gaps.to_string());
    tally.spares.tell(&mut figures, "everything gone");
    violations.finish(figures)
}

fn round(
    context: &mut Context<'_>,
    number: u32,
    kind: &Kind,
    length: Duration,
    tally: &mut Tally,
    violations: &mut Violations,
) -> anyhow::Result<()> {
    let space = Space::alone(&format!("campaign-{number}")).context("there is no cluster")?;
    let mut container = space.recording(kind.recorder);
    container["securityContext"] = json!({ "runAsUser": 1000 });
    (kind.container)(&mut container);
    let mut workload = space.workload("Deployment", "report", Some(3), space.pod(&[container]));
    workload["metadata"]["annotations"]["lockkeeper.io/guard"] = json!(kind.guard);
    space.apply(&[space.lock("report", &kind.lock(context.lease)), workload]);
    space.wait_until_waiting("report", 2);
    space.wait_until_it_runs(0);

    let mut witness = Witness::new(space.installation.ensemble(), ROOT);
    let mut broken: Vec<Broken<'_>> = Vec::new();
    let end = BootInstant::now() + length;
    while BootInstant::now() < end {
        witness.keep_up();
        for is_over in broken.extract_if(.., |broken| broken.until <= BootInstant::now()) {
            is_over.mend(context)?;
        }
        if broken.len() < AT_ONCE {
            tally.struck += usize::from(strike(context, &space, &mut broken)?);
        }
        // The time until the next fault is drawn, too.
        std::thread::sleep(Duration::from_millis(context.random.u64(200..4_000)));
    }
    for last in broken {
        last.mend(context)?;
    }
    space.wait_for_nodes()?;
    // The operator may have been moved to another root and back.
    let rollout = [
        "rollout",
        "status",
        "deployment/lockkeeper",
        "--namespace",
        SYSTEM,
        "--timeout=180s",
    ];
    space.cluster.kubectl(&rollout)?;

    let over = BootInstant::now();
    let runs_again = wait_for(BOUND, || {
        witness.keep_up();
        space
            .records()
            .iter()
            .any(|record| record.at > over)
            .then_some(())
    });
    if runs_again.is_none() {
        violations.add(format!("round {number}: no application runs any more"));
    }
    let report = check_with_pauses(&space.records(), Rule::Exclusive, SILENCE);
    if !report.is_clean() {
        violations.add(format!(
            "round {number}: {} overlaps or tokens out of order",
            report.violations.len()
        ));
    }
    let timing = kind.timing(context.lease);
    let late = witness.judge(
        &report,
        (number, kind.pauses),
        &timing,
        &mut tally.spares,
        violations,
    );
    if !report.is_clean() || runs_again.is_none() || late > 0 {
        context.say(&report)?;
        context.say(space.story())?;
    }
    tally.holds += report.holds.len();
    for (_, gap) in &report.gaps {
        tally.gaps.add(gap.as_secs_f64());
    }
    context.say(format!(
        "round {number}: {} holds, {} violations",
        report.holds.len(),
        report.violations.len()
    ))
}

/// The operator's root, above all locks and their control nodes.
const ROOT: &str = "/lockkeeper";
