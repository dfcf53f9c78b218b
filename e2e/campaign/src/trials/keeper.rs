//! The keeper, which owns the session, is killed, stopped or starved: the guard has the deadline.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use lockkeeper_judge::checker::Rule;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::Worker;
use lockkeeper_testbed::faults::{self, Rationing};
use lockkeeper_testbed::process::wait_for;
use rustix::process::Pid;

use crate::context::Context;
use crate::figures::{Figures, Violations};
use crate::fixture::{BOUND, Fixture};
use crate::sample::{Sample, longest_silence};
use crate::spares::Spares;
use crate::times::{CALM, SESSION_TIMEOUT};

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
    let mut fixture = Fixture::new("keeper")?.with_lease(context.lease);
    let mut violations = Violations::default();
    let mut silences = Sample::default();
    let (mut stopped, mut starved) = (Spares::default(), Spares::default());
    let (mut killed_and_lost, mut starved_and_kept, mut waiting_killed, mut disturbed) = (0, 0, 0, 0);
    for _ in 0..context.rounds {
        for fault in FAULTS {
            let round = fixture.begin()?;
            let all = round.server_names();
            let options = fixture.options(&round, "holder", &all)?;
            let options = fixture.with_times(
                options,
                match fault {
                    Fault::Killed | Fault::KilledWhileWaiting => CALM,
                    Fault::Stopped | Fault::Starved => SESSION_TIMEOUT,
                },
            );
            let session_timeout = options.session_timeout;
            let mut holder = fixture.start(options.with_recorder(&["--fork", "1"]))?;
            let token = holder.wait_until_it_runs(0, BOUND)?;
            let mut options = fixture.options(&round, "waiter", &all)?;
            if matches!(fault, Fault::Stopped) {
                // It has to keep the lock, while the resumed one ends.
                options = fixture.with_times(options, CALM);
            }
            let waiter = fixture.start(options)?;
            round.wait_until_queued(2)?;
            std::thread::sleep(Duration::from_millis(context.random.u64(500..2_500)));
            if !round.is_still_held(context, &waiter)? {
                disturbed += 1;
                continue;
            }
            let number = round.number;
            match fault {
                Fault::Killed => {
                    faults::kill(keeper_of(&holder)?)?;
                    let at = BootInstant::now();
                    // Longer than the session would live without a keeper.
                    let end = at + session_timeout * 4 / 3;
                    if goes_on(&holder, token, end, &waiter) {
                        let silence = longest_silence(&holder.records()?, token, at)?;
                        silences.add(silence);
                        context.say(format!(
                            "round {number}: killed; the application went on, silent for {silence:.3} s at most"
                        ))?;
                    } else {
                        killed_and_lost += 1;
                        let spare = round.spare(context, &holder, token, &mut violations)?;
                        context.say(format!(
                            "round {number}: killed; the application was stopped, {:.3} s before {}",
                            spare.seconds,
                            spare.end()
                        ))?;
                        // The trial's own times have the patience for another keeper.
                        if !context.lease.is_stated() {
                            violations.add(format!(
                                "round {number}: a killed keeper cost its application the lock"
                            ));
                        }
                    }
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
                    stopped.add(spare, &round.timing(&holder));
                    context.say(format!(
                        "round {number}: stopped; gone {:.3} s before {}; resumed: {status}",
                        spare.seconds,
                        spare.end()
                    ))?;
                }
                Fault::Starved => {
                    // From enough time to renew to too little.
                    let period = Duration::from_millis(context.random.u64(200..1_500));
                    let slice = Duration::from_micros(context.random.u64(100..1_000));
                    let starvation = Rationing::begin(keeper_of(&holder)?, period, slice)?;
                    // Starve it for two T: a lease that is not renewed ends in that time.
                    let lost = wait_for(session_timeout * 2, || {
                        (!waiter.records().ok()?.is_empty()).then_some(())
                    });
                    drop(starvation);
                    if lost.is_some() {
                        let spare = round.spare(context, &holder, token, &mut violations)?;
                        starved.add(spare, &round.timing(&holder));
                        context.say(format!(
                            "round {number}: starved ({slice:?} in {period:?}); gone {:.3} s before {}",
                            spare.seconds,
                            spare.end()
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
                    let end = holder.last_stamp(token)? + SESSION_TIMEOUT * 2;
                    if goes_on(&holder, token, end, &waiter) {
                        round.wait_until_queued(2)?;
                        waiting_killed += 1;
                        context.say(format!(
                            "round {number}: killed while waiting; it queued again, and the holder went on"
                        ))?;
                    } else {
                        ensure!(
                            context.lease.is_stated(),
                            "the holder was disturbed:\n{}",
                            holder.log()
                        );
                        round.spare(context, &holder, token, &mut violations)?;
                        disturbed += 1;
                        context.say(format!(
                            "round {number}: killed while waiting; the holder was stopped meanwhile"
                        ))?;
                    }
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
    if killed_and_lost > 0 {
        figures.row(
            "keeper killed, the next one came too late for the application",
            format!("{killed_and_lost} of {}", context.rounds),
        );
    }
    stopped.rows(&mut figures, "keeper stopped, later resumed without harm: gone");
    starved.rows(&mut figures, "keeper starved: gone");
    figures.row(
        "keeper starved: kept the lock",
        format!("{starved_and_kept} of {}", context.rounds),
    );
    figures.row(
        "keeper killed while waiting: holder undisturbed",
        format!("{waiting_killed} of {}", context.rounds),
    );
    if disturbed > 0 {
        figures.row(
            "rounds in which the holder was stopped without a fault",
            disturbed.to_string(),
        );
    }
    violations.finish(figures)
}

/// Waits until the application has recorded after `end`; false if the waiter has got the lock before.
fn goes_on(holder: &Worker, token: i64, end: BootInstant, waiter: &Worker) -> bool {
    let outcome = || {
        let is_kept = holder.last_stamp(token).ok()? > end;
        let is_lost = !waiter.records().ok()?.is_empty();
        (is_kept || is_lost).then_some(is_kept)
    };
    wait_for(BOUND, outcome).unwrap_or(false)
}

fn keeper_of(worker: &Worker) -> anyhow::Result<Pid> {
    worker
        .keeper_pid()
        .with_context(|| format!("{} has no keeper", worker.options().name))
}
