//! Contenders with a lease duration whose machine crashes: how soon the next one runs.

use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_judge::checker::Rule;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::Worker;
use lockkeeper_product::worker::Options;
use lockkeeper_testbed::faults;
use rustix::process::{Signal, kill_process};

use crate::context::Context;
use crate::figures::{Figures, Violations};
use crate::fixture::{BOUND, Fixture, Round};
use crate::sample::{Sample, seconds};
use crate::times::DEFAULT_SESSION_TIMEOUT;

/// What the next one may take beyond L, in seconds: the error of two clocks, a transaction, and the start of a program.
const BEYOND: f64 = 0.3;

struct Lease {
    about: &'static str,
    option: &'static str,
    stop_grace: Duration,
    /// In seconds.
    length: f64,
}

const LEASES: [Lease; 3] = [
    Lease {
        about: "defaults, L = 8.5 s",
        option: "auto",
        stop_grace: Duration::from_secs(3),
        length: 8.5,
    },
    Lease {
        about: "L = 2 s",
        option: "2s",
        stop_grace: Duration::from_millis(400),
        length: 2.0,
    },
    Lease {
        about: "L = 1 s",
        option: "1s",
        stop_grace: Duration::from_millis(400),
        length: 1.0,
    },
];

pub(super) fn takeover(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    let mut fixture = Fixture::new("takeover")?;
    let mut violations = Violations::default();
    let mut holders = LEASES.map(|lease| (lease, Sample::default()));
    let (mut alive, mut dead, mut disturbed) = (Sample::default(), Sample::default(), 0);
    for _ in 0..context.rounds {
        for (lease, times) in &mut holders {
            match holder_crashes(context, &mut fixture, lease, &mut violations)? {
                Some(took) => times.add(took),
                None => disturbed += 1,
            }
        }
        alive.add(heir_waits(context, &mut fixture, false, &mut violations)?);
        dead.add(heir_waits(context, &mut fixture, true, &mut violations)?);
    }
    let mut figures = Figures::default();
    for (lease, times) in &holders {
        let within = times
            .all()
            .iter()
            .filter(|time| **time <= lease.length + BEYOND)
            .count();
        figures.row(
            format!(
                "holder's machine crashes, {}: next one's first instruction",
                lease.about
            ),
            format!("{times}; {within} of {} within L + {BEYOND} s", times.len()),
        );
    }
    figures.row(
        "clean release, next in the queue is alive: its first instruction",
        alive.to_string(),
    );
    figures.row(
        "clean release, next in the queue had crashed: the one behind it",
        dead.to_string(),
    );
    if disturbed > 0 {
        figures.row(
            "rounds in which the holder was stopped without a fault",
            disturbed.to_string(),
        );
    }
    violations.finish(figures)
}

/// From the crash to the next one's first instruction, in seconds; `None` if the holder was stopped before.
fn holder_crashes(
    context: &mut Context<'_>,
    fixture: &mut Fixture,
    lease: &Lease,
    violations: &mut Violations,
) -> anyhow::Result<Option<f64>> {
    let round = fixture.begin()?;
    let holder = start(fixture, &round, "holder", lease)?;
    let token = holder.wait_until_it_runs(0, BOUND)?;
    let waiter = start(fixture, &round, "waiter", lease)?;
    round.wait_until_queued(2)?;
    // It renews at any moment of its interval.
    std::thread::sleep(Duration::from_millis(context.random.u64(1_500..3_000)));
    if !round.is_still_held(context, &waiter)? {
        return Ok(None);
    }
    let crashed = crash(fixture, &holder)?;
    let next = waiter.wait_until_it_runs(token, BOUND)?;
    let took = seconds(waiter.first_stamp(next)?, crashed);
    restore(fixture, &holder)?;
    round.judge(context, [&holder, &waiter], Rule::Exclusive, violations)?;
    context.say(format!(
        "round {}: {}; the next one ran {took:.3} s after the crash",
        round.number, lease.about
    ))?;
    if took > lease.length + BEYOND {
        // Its log tells what it waited for.
        context.say(waiter.log())?;
    }
    Ok(Some(took))
}

/// From the deletion of the holder that releases to the first instruction of the one that runs next, in seconds.
/// The heir may have crashed before.
fn heir_waits(
    context: &mut Context<'_>,
    fixture: &mut Fixture,
    has_crashed: bool,
    violations: &mut Violations,
) -> anyhow::Result<f64> {
    let lease = &LEASES[1];
    let round = fixture.begin()?;
    let mut holder = start(fixture, &round, "holder", lease)?;
    let token = holder.wait_until_it_runs(0, BOUND)?;
    let heir = start(fixture, &round, "heir", lease)?;
    round.wait_until_queued(2)?;
    let third = start(fixture, &round, "third", lease)?;
    round.wait_until_queued(3)?;
    std::thread::sleep(Duration::from_millis(context.random.u64(1_500..3_000)));
    if has_crashed {
        crash(fixture, &heir)?;
        round
            .wait_until_queued(2)
            .context("the one behind the heir takes its place")?;
    }
    kill_process(holder.guard_pid(), Signal::TERM)?;
    let next = if has_crashed { &third } else { &heir };
    let ran = next.wait_until_it_runs(token, BOUND)?;
    let took = seconds(next.first_stamp(ran)?, round.deletion(token)?);
    holder.wait_until_it_ends(BOUND)?;
    if has_crashed {
        restore(fixture, &heir)?;
    }
    round.judge(context, [&holder, &heir, &third], Rule::Exclusive, violations)?;
    context.say(format!(
        "round {}: the next in the queue {}; {took:.4} s from the release to the first instruction",
        round.number,
        if has_crashed { "had crashed" } else { "was alive" },
    ))?;
    Ok(took)
}

fn start(fixture: &mut Fixture, round: &Round, name: &str, lease: &Lease) -> anyhow::Result<Worker> {
    let options = fixture.options(round, name, &round.server_names())?;
    fixture.start(Options {
        session_timeout: DEFAULT_SESSION_TIMEOUT,
        stop_grace: lease.stop_grace,
        ..options.with_run(&["--lease-duration", lease.option])
    })
}

/// Nothing more comes from the worker's machine, and nothing runs there. Returns when that began.
fn crash(fixture: &Fixture, worker: &Worker) -> anyhow::Result<BootInstant> {
    let keeper = worker.keeper_pid().context("it has a keeper")?;
    let crashed = BootInstant::now();
    for server in 0..fixture.ensemble.len() {
        fixture
            .ensemble
            .cut(&worker.options().host, fixture.ensemble.server(server))?;
    }
    faults::kill(keeper)?;
    // Everything else goes with its guard.
    faults::kill(worker.guard_pid())?;
    Ok(crashed)
}

fn restore(fixture: &Fixture, worker: &Worker) -> anyhow::Result<()> {
    for server in 0..fixture.ensemble.len() {
        fixture
            .ensemble
            .heal(&worker.options().host, fixture.ensemble.server(server))?;
    }
    Ok(())
}
