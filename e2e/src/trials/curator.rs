//! Curator's `InterProcessMutex` and `lockkeeper run` stand in one queue.

use std::time::Duration;

use anyhow::ensure;

use super::stage::{BOUND, SESSION_TIMEOUT, Stage};
use super::{Context, Figures, Times, Violations};
use crate::checker::{Rule, check};
use crate::java::Contender;
use crate::record::Records;
use crate::worker;

/// How often each Curator client takes the lock in a round.
const TIMES: u32 = 10;
const HOLD: Duration = Duration::from_millis(200);

pub(super) fn curator(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    let mut stage = Stage::new("curator")?;
    let mut violations = Violations::default();
    let mut gaps = Times::default();
    let (mut by_curator, mut by_us, mut changes) = (0, 0, 0);
    for _ in 0..context.rounds {
        let round = stage.begin()?;
        let all = round.server_names();
        let mut workers = Vec::new();
        for name in ["one", "two"] {
            let options = stage
                .options(&round, name, &all)?
                .with_run(&["--restart", "always"]);
            let hold = format!("{}ms", HOLD.as_millis());
            workers.push(stage.start(options.with_recorder(&["--hold", &hold]))?);
        }
        let mut clients = Vec::new();
        for name in ["curator-one", "curator-two"] {
            let contender = Contender {
                connect: stage.ensemble.connect_string(),
                path: round.lock.clone(),
                times: TIMES,
                hold: HOLD,
                session_timeout: SESSION_TIMEOUT,
                name: name.to_owned(),
                record: stage
                    .ensemble
                    .directory()
                    .join(format!("{name}-{}.record", round.number)),
            };
            let process = stage.host(name)?.spawn(name, contender.command()?)?;
            clients.push((process, contender.record));
        }
        // One that is started again and again, as by cron: it never pauses for longer than a start takes.
        let mut crons = Vec::new();
        while clients.iter_mut().any(|(process, _)| process.is_running()) {
            let mut options = stage.options(&round, "cron", &all)?;
            options.name = format!("{}-{}", options.name, crons.len());
            let hold = format!("{}ms", HOLD.as_millis());
            let mut cron = stage.start(options.with_recorder(&["--hold", &hold]))?;
            let status = cron.wait_until_it_ends(BOUND)?;
            ensure!(status.success(), "{status}:\n{}", cron.log());
            crons.push(cron);
        }
        for (process, _) in &mut clients {
            let status = process.wait(BOUND)?;
            ensure!(
                status.is_some_and(|status| status.success()),
                "{} ended with {status:?}",
                process.name()
            );
        }
        workers.extend(crons);
        let ours: Vec<i64> = worker::all_records(&workers)?
            .iter()
            .map(|record| record.token)
            .collect();
        let mut records = worker::all_records(&workers)?;
        for (_, file) in &clients {
            records.extend(Records::read(file)?.records);
        }
        let report = check(&records, Rule::Exclusive);
        if !report.is_clean() {
            violations.add(format!(
                "round {}: {} violations",
                round.number,
                report.violations.len()
            ));
            context.say(&report)?;
        }
        let is_ours: Vec<bool> = report
            .holds
            .iter()
            .map(|hold| ours.contains(&hold.token))
            .collect();
        let of_us = is_ours.iter().filter(|&&ours| ours).count();
        let of_curator = is_ours.len() - of_us;
        let turns = is_ours.windows(2).filter(|pair| pair[0] != pair[1]).count();
        if of_us < 2 || of_curator != 2 * TIMES as usize {
            violations.add(format!(
                "round {}: Curator held {of_curator} times, ours {of_us} times",
                round.number
            ));
        }
        report
            .gaps
            .iter()
            .for_each(|(_, gap)| gaps.add(gap.as_secs_f64()));
        by_curator += of_curator;
        by_us += of_us;
        changes += turns;
        context.say(format!(
            "round {}: Curator held {of_curator} times, lockkeeper {of_us} times, {turns} changes between them",
            round.number
        ))?;
    }
    let mut figures = Figures::default();
    figures.row(
        "Curator and lockkeeper in one queue: order of begin is order of tokens, no overlap",
        format!("{by_curator} and {by_us} holds, {changes} changes between them"),
    );
    figures.row("from one holder's last stamp to the next begin", gaps.to_string());
    violations.finish(figures)
}
