//! The keeper, which owns the session, is killed, stopped or starved: the guard has the deadline.

use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_judge::checker::Rule;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::Worker;
use lockkeeper_testbed::faults::{self, Rationing};
use lockkeeper_testbed::process::wait_for;
use rustix::process::Pid;

use crate::context::Context;
use crate::figures::{Figures, Violations};
use crate::stage::{BOUND, CALM, SESSION_TIMEOUT, Stage};
use crate::times::Times;

/// The faults of a keeper, round after round.
#[derive(Clone, Copy)]
enum Fault {
    Killed,
    Stopped,
    Starved,
    KilledWhileWaiting,
}

const FAULTS: [Fault; 4] = [
    Fault::Killed,
    Fault::Stopped,
    Fault::Starved,
    Fault::KilledWhileWaiting,
];

pub(super) fn keeper(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    let mut stage = Stage::new("keeper")?;
    let mut violations = Violations::default();
    let (mut silences, mut stopped, mut starved) = (Times::default(), Times::default(), Times::default());
    let (mut starved_and_kept, mut waiting_killed) = (0, 0);
    for _ in 0..context.rounds {
        for fault in FAULTS {
            let round = stage.begin()?;
            let all = round.server_names();
            let mut options = stage.options(&round, "holder", &all)?;
            match fault {
                Fault::Killed => options.session_timeout = SESSION_TIMEOUT * 2,
                Fault::KilledWhileWaiting => options.session_timeout = CALM,
                Fault::Stopped | Fault::Starved => {}
            }
            let session_timeout = options.session_timeout;
            let mut holder = stage.start(options.with_recorder(&["--fork", "1"]))?;
            let token = holder.wait_until_it_runs(0, BOUND)?;
            let options = stage.options(&round, "waiter", &all)?;
            let waiter = stage.start(options)?;
            round.wait_until_queued(2)?;
            std::thread::sleep(Duration::from_millis(context.random.u64(500..2_500)));
            let number = round.number;
            match fault {
                Fault::Killed => {
                    faults::kill(keeper_of(&holder)?)?;
                    let at = BootInstant::now();
                    // Longer than the session would live without a keeper.
                    let end = at + session_timeout * 2;
                    let goes_on = || (holder.last_stamp(token).ok()? > end).then_some(());
                    if wait_for(BOUND, goes_on).is_none() {
                        violations.add(format!(
                            "round {number}: a killed keeper cost its application the lock"
                        ));
                    }
                    let silence = longest_silence(&holder, token, at)?;
                    silences.add(silence);
                    context.say(format!(
                        "round {number}: killed; the application went on, silent for {silence:.3} s at most"
                    ))?;
                }
                Fault::Stopped => {
                    let keeper = keeper_of(&holder)?;
                    faults::stop(keeper)?;
                    let next = waiter.wait_until_it_runs(token, BOUND)?;
                    let spare = round.spare(context, &holder, token, &mut violations)?;
                    // This is later than any deadline that it knew. It detects that, and lets its guard end.
                    faults::resume(keeper)?;
                    let status = holder.wait_until_it_ends(BOUND)?;
                    if status.code() != Some(75) {
                        violations.add(format!(
                            "round {number}: a resumed keeper ended with {status} instead of 75"
                        ));
                    }
                    if round
                        .deletions
                        .lives()
                        .iter()
                        .any(|life| life.token == next && life.deleted.is_some())
                    {
                        violations.add(format!(
                            "round {number}: a resumed keeper cost the next holder its lock"
                        ));
                    }
                    stopped.add(spare);
                    context.say(format!(
                        "round {number}: stopped; gone {spare:.3} s before the deletion; resumed: {status}"
                    ))?;
                }
                Fault::Starved => {
                    // From enough time to renew to too little.
                    let period = Duration::from_millis(context.random.u64(200..1_500));
                    let slice = Duration::from_micros(context.random.u64(100..1_000));
                    let starvation = Rationing::begin(keeper_of(&holder)?, period, slice)?;
                    // Starve it for two T: a lease that is not renewed ends in that time.
                    let lost = wait_for(SESSION_TIMEOUT * 2, || {
                        (!waiter.records().ok()?.is_empty()).then_some(())
                    });
                    drop(starvation);
                    if lost.is_some() {
                        let spare = round.spare(context, &holder, token, &mut violations)?;
                        starved.add(spare);
                        context.say(format!(
                            "round {number}: starved ({slice:?} in {period:?}); gone {spare:.3} s before the deletion"
                        ))?;
                    } else {
                        starved_and_kept += 1;
                        context.say(format!(
                            "round {number}: starved ({slice:?} in {period:?}); it could renew all the same"
                        ))?;
                    }
                }
                Fault::KilledWhileWaiting => {
                    faults::kill(keeper_of(&waiter)?)?;
                    // Its place in the queue ends with its session, and it takes another; the holder continues.
                    let begun = holder.last_stamp(token)?;
                    wait_for(BOUND, || {
                        (holder.last_stamp(token).ok()? > begun + SESSION_TIMEOUT * 2).then_some(())
                    })
                    .with_context(|| format!("the holder was disturbed:\n{}", holder.log()))?;
                    round.wait_until_queued(2)?;
                    waiting_killed += 1;
                    context.say(format!(
                        "round {number}: killed while waiting; it queued again, and the holder went on"
                    ))?;
                }
            }
            round.judge(context, [&holder, &waiter], Rule::Exclusive, &mut violations)?;
        }
    }
    let mut figures = Figures::default();
    figures.row(
        "keeper killed, the application went on: its longest silence",
        silences.to_string(),
    );
    figures.row(
        "keeper stopped, later resumed without harm, spare",
        stopped.to_string(),
    );
    figures.row(
        "keeper starved: gone before the deletion, spare",
        format!("{starved}; kept the lock in {starved_and_kept}"),
    );
    figures.row(
        "keeper killed while waiting: holder undisturbed",
        format!("{waiting_killed} of {}", context.rounds),
    );
    violations.finish(figures)
}

/// The longest time between two stamps after a moment, in seconds.
fn longest_silence(worker: &Worker, token: i64, since: BootInstant) -> anyhow::Result<f64> {
    let records = worker.records()?;
    let stamps: Vec<_> = records
        .iter()
        .filter(|record| record.token == token && record.at + Duration::from_millis(100) > since)
        .map(|record| record.at)
        .collect();
    let silences = stamps.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64());
    Ok(silences.fold(0.0, f64::max))
}

fn keeper_of(worker: &Worker) -> anyhow::Result<Pid> {
    worker
        .keeper_pid()
        .with_context(|| format!("{} has no keeper", worker.options().name))
}
