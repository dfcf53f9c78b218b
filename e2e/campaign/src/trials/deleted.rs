//! A user deletes the holder's node by hand: the one case in which Lockkeeper promises only a quick stop.

use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_product::worker;
use lockkeeper_testbed::ensemble::{block_on, connector};

use crate::context::Context;
use crate::figures::{Figures, Violations};
use crate::fixture::{BOUND, Fixture};
use crate::sample::{Sample, seconds};
use crate::times::{CALM, SESSION_TIMEOUT};

pub(super) fn deleted(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    let mut fixture = Fixture::new("deleted")?;
    let mut violations = Violations::default();
    let (mut reactions, mut both) = (Sample::default(), Sample::default());
    for _ in 0..context.rounds {
        let round = fixture.begin()?;
        let all = round.server_names();
        let options = fixture.options(&round, "holder", &all)?;
        let options = fixture.with_times(options, CALM);
        // A grace would be visible, because none of its processes ends on SIGTERM.
        let mut holder = fixture.start(options.with_recorder(&["--fork", "1", "--ignore-sigterm"]))?;
        let token = holder.wait_until_it_runs(0, BOUND)?;
        let options = fixture.options(&round, "waiter", &all)?;
        let waiter = fixture.start(options)?;
        let queued = || {
            round
                .deletions
                .lives()
                .iter()
                .filter(|life| life.name.starts_with("lock/"))
                .count()
                == 2
        };
        lockkeeper_testbed::process::wait_for(BOUND, || queued().then_some(()))
            .context("the waiter does not queue")?;
        std::thread::sleep(Duration::from_millis(context.random.u64(500..2_500)));
        let lives = round.deletions.lives();
        let node = lives
            .iter()
            .find(|life| life.token == token)
            .context("the holder's node was not seen")?;
        let path = format!("{}/{}", round.root, node.name);
        // An administrator's shell, at any server.
        let server = fixture
            .ensemble
            .address(context.random.usize(..all.len()))
            .to_string();
        block_on(fixture.ensemble.observer(), || async {
            connector().connect(&server).await?.delete(&path, None).await
        })??;

        let next = waiter.wait_until_it_runs(token, BOUND)?;
        let status = holder.wait_until_it_ends(BOUND)?;
        let deleted = round.deletion(token)?;
        let last = holder.last_stamp(token)?;
        let reaction = seconds(last, deleted);
        let report = check(&worker::all_records([&holder, &waiter])?, Rule::Exclusive);
        let begin = report
            .holds
            .iter()
            .find(|hold| hold.token == next)
            .context("the next one recorded")?
            .begin;
        let overlap = seconds(last, begin);
        if status.code() != Some(75) {
            violations.add(format!(
                "round {}: the holder ended with {status} instead of 75",
                round.number
            ));
        }
        if reaction > SESSION_TIMEOUT.as_secs_f64() {
            violations.add(format!(
                "round {}: it ran {reaction:.3} s longer, beyond its lease",
                round.number
            ));
        }
        reactions.add(reaction);
        both.add(overlap);
        context.say(format!(
            "round {}: killed {reaction:.4} s after the deletion; {}",
            round.number,
            if overlap > 0.0 {
                format!("both ran for {overlap:.4} s")
            } else {
                format!("the next began {:.4} s later", -overlap)
            }
        ))?;
    }
    let mut figures = Figures::default();
    figures.row(
        "from the deletion to the last stamp, without grace",
        reactions.to_string(),
    );
    figures.row(
        "both ran (allowed here); last stamp − begin of the next",
        format!(
            "{} of {} rounds; {both}",
            both.len() - both.negative(),
            both.len()
        ),
    );
    violations.finish(figures)
}
