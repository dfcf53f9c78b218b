//! Eight chains of processes that fork and end run under a lock that is lost: the guard stops them at its
//! deadline, by each containment.

use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_lock::{BootInstant, KILL_ALLOWANCE};
use lockkeeper_product::Worker;
use lockkeeper_testbed::faults;
use lockkeeper_testbed::process::wait_for;

use crate::context::Context;
use crate::figures::{Figures, Violations};
use crate::fixture::{BOUND, Fixture};
use crate::sample::{Sample, seconds};
use crate::spares::{Spare, Spares};

/// The containments (`--containment`).
const HELD: [&str; 3] = ["cgroup", "pidns", "sweep"];

/// The containment that does not promise to stop a storm of forks in time. Its result is only a figure.
const WITHOUT_PROMISE: &str = "sweep";

/// A hundred times the life of a link of a chain.
const QUIET: Duration = Duration::from_millis(500);

pub(super) fn storm(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    let mut fixture = Fixture::new("storm")?.with_lease(context.lease);
    let mut violations = Violations::default();
    let mut figures = Figures::default();
    for held in HELD {
        let (mut late, mut spares) = (Sample::default(), Spares::default());
        let (mut in_time, mut overlaps, mut struck) = (0, 0, 0);
        for _ in 0..context.rounds {
            let round = fixture.begin()?;
            let all = round.server_names();
            let options = fixture
                .options(&round, "holder", &all)?
                .with_run(&["--containment", held])
                .with_recorder(&["--chains", "8", "--ignore-sigterm"]);
            let holder = fixture.start(options)?;
            let token = holder.wait_until_it_runs(0, BOUND)?;
            let options = fixture.options(&round, "waiter", &all)?;
            let waiter = fixture.start(options)?;
            std::thread::sleep(Duration::from_millis(context.random.u64(500..1_500)));
            if !round.is_still_held(context, &waiter)? {
                continue;
            }
            // Without the keeper only the guard's deadline ends it.
            let Some(keeper) = holder.keeper_pid() else {
                continue; // it has just lost the lock
            };
            struck += 1;
            faults::stop(keeper)?;
            waiter.wait_until_it_runs(token, BOUND)?;
            faults::resume(keeper)?;
            wait_until_it_is_over(&holder)?;

            let last = holder.last_stamp(token)?;
            let after = seconds(last, last_deadline(&holder)?);
            let spare = Spare {
                seconds: seconds(round.deletion(token)?, last),
                is_released: round.deletions.was_released(token),
            };
            if held != WITHOUT_PROMISE {
                let who = format!("round {}: {held}: the storm", round.number);
                spare.judge(&who, &round.timing(&holder), &mut violations);
            }
            // The checker is not used here, because it keeps every process, and there are tens of thousands.
            let next = waiter
                .records()?
                .first()
                .context("the next one has recorded nothing")?
                .at;
            let is_in_time = after < KILL_ALLOWANCE.as_secs_f64();
            in_time += u32::from(is_in_time);
            overlaps += u32::from(last >= next);
            if held != WITHOUT_PROMISE && last >= next {
                violations.add(format!(
                    "round {}: {held}: two ran for {:.3} s",
                    round.number,
                    seconds(last, next)
                ));
            }
            if held != WITHOUT_PROMISE && !is_in_time {
                violations.add(format!(
                    "round {}: {held}: the last instruction came {after:.3} s after the deadline",
                    round.number
                ));
            }
            context.say(format!(
                "round {}: {held}: last instruction {after:.3} s after the deadline, {:.3} s before {}",
                round.number,
                spare.seconds,
                spare.end()
            ))?;
            late.add(after);
            spares.add(spare, &round.timing(&holder));
        }
        figures.row(
            format!("{held}: the storm is gone within the margin of its deadline"),
            format!("{in_time} of {struck}"),
        );
        figures.row(
            format!("{held}: ran beside the next holder"),
            format!("{overlaps} of {struck}"),
        );
        figures.row(
            format!("{held}: last instruction, after the deadline"),
            late.to_string(),
        );
        spares.rows(&mut figures, &format!("{held}: gone"));
    }
    violations.finish(figures)
}

/// Waits until no process of the storm has recorded for a while.
fn wait_until_it_is_over(worker: &Worker) -> anyhow::Result<()> {
    let size = || Some(std::fs::metadata(worker.record_file()).ok()?.len());
    wait_for(BOUND, || {
        let before = size()?;
        std::thread::sleep(QUIET);
        (size()? == before).then_some(())
    })
    .context("the storm goes on")
}

/// The last deadline that the keeper gave the guard, according to its log.
fn last_deadline(worker: &Worker) -> anyhow::Result<BootInstant> {
    let log = worker.log();
    let said = log
        .rsplit("kill_at: ")
        .next()
        .and_then(|rest| rest.split("s after boot").next());
    let seconds: f64 = said
        .and_then(|seconds| seconds.parse().ok())
        .with_context(|| format!("no deadline in the log of the keeper:\n{log}"))?;
    Ok(BootInstant::from_nanos((seconds * 1e9) as u64))
}
