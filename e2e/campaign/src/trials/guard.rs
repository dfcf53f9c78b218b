//! The guard is killed, the process that would stop the application in time.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_judge::checker::Rule;
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::faults;
use lockkeeper_testbed::process::wait_for;

use crate::context::Context;
use crate::figures::{Figures, Violations};
use crate::fixture::{BOUND, Fixture};
use crate::sample::{Sample, seconds};
use crate::spares::Spares;

pub(super) fn guard(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    let mut fixture = Fixture::new("guard")?.with_lease(context.lease);
    let mut violations = Violations::default();
    let (mut reactions, mut spares, mut gaps) = (Sample::default(), Spares::default(), Sample::default());
    for _ in 0..context.rounds {
        let round = fixture.begin()?;
        let all = round.server_names();
        let options = fixture.options(&round, "holder", &all)?;
        // Two orphans in sessions of their own, and all of them ignore SIGTERM.
        let holder = fixture.start(options.with_recorder(&["--fork", "2", "--ignore-sigterm"]))?;
        let token = holder.wait_until_it_runs(0, BOUND)?;
        let options = fixture.options(&round, "waiter", &all)?;
        let waiter = fixture.start(options)?;
        let records = || {
            let pids: HashSet<u32> = holder.records().ok()?.iter().map(|record| record.pid).collect();
            (pids.len() >= 3).then_some(())
        };
        wait_for(BOUND, records).with_context(|| format!("not all of it runs:\n{}", holder.log()))?;
        std::thread::sleep(Duration::from_millis(context.random.u64(500..2_500)));
        faults::kill(holder.guard_pid())?;
        let killed = BootInstant::now();

        let next = waiter.wait_until_it_runs(token, BOUND)?;
        let spare = round.spare(context, &holder, token, &mut violations)?;
        let report = round.judge(context, [&holder, &waiter], Rule::Exclusive, &mut violations)?;
        let last = holder.last_stamp(token)?;
        let reaction = seconds(last, killed);
        let processes = report
            .holds
            .iter()
            .find(|hold| hold.token == token)
            .map_or(0, |hold| hold.pids.len());
        if processes != 3 {
            violations.add(format!(
                "round {}: {processes} processes recorded instead of 3",
                round.number
            ));
        }
        let gap = report
            .holds
            .iter()
            .find(|hold| hold.token == next)
            .map_or(f64::NAN, |hold| seconds(hold.begin, last));
        reactions.add(reaction);
        spares.add(spare, &round.timing(&holder));
        gaps.add(gap);
        context.say(format!(
            "round {}: all {processes} processes gone {reaction:.3} s after the guard, {:.3} s before {}; \
             the next began {gap:.3} s later",
            round.number,
            spare.seconds,
            spare.end()
        ))?;
    }
    let mut figures = Figures::default();
    figures.row(
        "child and orphans gone, from the kill of the guard",
        reactions.to_string(),
    );
    spares.tell(&mut figures, "all gone");
    figures.row("from the last stamp to the next holder", gaps.to_string());
    violations.finish(figures)
}
