//! Other clients and `lockkeeper run` share a queue.

use std::time::Duration;

use anyhow::ensure;
use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_judge::record::Records;
use lockkeeper_product::worker::{self, Options};

use crate::context::Context;
use crate::figures::{Figures, Violations};
use crate::fixture::{BOUND, Fixture};
use crate::other_clients::{Client, Contender};
use crate::sample::Sample;
use crate::times::CALM;

/// How often each of the other clients takes the lock in a round.
const TIMES: u32 = 10;
const HOLD: Duration = Duration::from_millis(200);

/// Curator's `InterProcessMutex`.
pub(super) fn curator(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    share(context, "curator", &[&[Client::Curator; 2]])
}

/// The others. go-zookeeper fails at names of ZooKeeper's own recipe, in which it finds no number, so these
/// two never share a queue.
pub(super) fn all(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    let queues: [&[Client]; 2] = [
        &[
            Client::Kazoo,
            Client::Kazoo,
            Client::GoZookeeper,
            Client::GoZookeeper,
        ],
        &[Client::Kazoo, Client::Recipe, Client::Recipe],
    ];
    share(context, "other-clients", &queues)
}

/// In each round, one queue after the other: its clients and ours take turns.
fn share(context: &mut Context<'_>, trial: &'static str, queues: &[&[Client]]) -> anyhow::Result<Figures> {
    let mut fixture = Fixture::new(trial)?;
    let mut violations = Violations::default();
    let mut gaps = Sample::default();
    let (mut by_others, mut by_us, mut changes) = (0, 0, 0);
    for queue in (0..context.rounds).flat_map(|_| queues) {
        let round = fixture.begin()?;
        let all = round.server_names();
        let mut workers = Vec::new();
        for name in ["one", "two"] {
            let options = Options {
                session_timeout: CALM,
                ..fixture.options(&round, name, &all)?
            };
            let options = options.with_run(&["--restart", "always"]);
            let hold = format!("{}ms", HOLD.as_millis());
            workers.push(fixture.start(options.with_recorder(&["--hold", &hold]))?);
        }
        let mut clients = Vec::new();
        for (index, &client) in queue.iter().enumerate() {
            let name = format!("{client:?}-{index}").to_lowercase();
            let contender = Contender {
                client,
                connect: fixture.ensemble.connect_string(),
                path: round.lock.clone(),
                times: TIMES,
                hold: HOLD,
                session_timeout: CALM,
                name: name.clone(),
                record: fixture
                    .ensemble
                    .directory()
                    .join(format!("{name}-{}.record", round.number)),
            };
            let process = fixture.host(&name)?.spawn(&name, contender.command()?)?;
            clients.push((process, contender.record));
        }
        // A worker that is started again and again, as by cron, without a pause between two starts.
        let mut crons = Vec::new();
        while clients.iter_mut().any(|(process, _)| process.is_running()) {
            let mut options = fixture.options(&round, "cron", &all)?;
            options.name = format!("{}-{}", options.name, crons.len());
            options.session_timeout = CALM;
            let hold = format!("{}ms", HOLD.as_millis());
            let mut cron = fixture.start(options.with_recorder(&["--hold", &hold]))?;
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
        // Read only once: two of our workers go on, and their later holds would count as those of other
        // clients.
        let mut records = worker::all_records(&workers)?;
        let ours: Vec<i64> = records.iter().map(|record| record.token).collect();
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
        let of_others = is_ours.len() - of_us;
        let turns = is_ours.windows(2).filter(|pair| pair[0] != pair[1]).count();
        if of_us < 2 || of_others != queue.len() * TIMES as usize {
            violations.add(format!(
                "round {}: {queue:?} held {of_others} times, ours {of_us} times",
                round.number
            ));
        }
        report
            .gaps
            .iter()
            .for_each(|(_, gap)| gaps.add(gap.as_secs_f64()));
        by_others += of_others;
        by_us += of_us;
        changes += turns;
        context.say(format!(
            "round {}: {queue:?} held {of_others} times, lockkeeper {of_us} times, {turns} changes between them",
            round.number
        ))?;
    }
    let mut figures = Figures::default();
    figures.row(
        "other clients and lockkeeper in one queue: order of begin is order of tokens, no overlap",
        format!("{by_others} and {by_us} holds, {changes} changes between them"),
    );
    figures.row("from one holder's last stamp to the next begin", gaps.to_string());
    violations.finish(figures)
}
