//! A holder knows all servers, and its server is cut off from the leader. The session moves to another
//! server, and the application should not notice.

use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_judge::checker::Rule;
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Ensemble, Host};

use crate::context::Context;
use crate::figures::{Figures, Violations};
use crate::fixture::{BOUND, Fixture};
use crate::sample::{Sample, longest_silence, seconds};
use crate::spares::Spares;

/// Long enough for half of it to be left when the loss of a server is noticed.
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);

pub(super) fn moved(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    let mut fixture = Fixture::new("moved")?.with_lease(context.lease);
    let mut violations = Violations::default();
    let mut lost_spares = Spares::default();
    let mut moves = Sample::default();
    let mut silences = Sample::default();
    let mut kept = 0;
    for _ in 0..context.rounds {
        let round = fixture.begin()?;
        let all = round.server_names();
        let (holder, token, follower) = loop {
            let options = fixture.options(&round, "holder", &all)?;
            let options = fixture.with_times(options, SESSION_TIMEOUT);
            let host = options.host.clone();
            let holder = fixture.start(options)?;
            let token = holder.wait_until_it_runs(0, BOUND)?;
            match wait_for(BOUND, || server_of(&fixture.ensemble, &host)) {
                Some(server) if server != round.leader => break (holder, token, server),
                // It chose the leader. Another process makes another choice, once this one's node is gone.
                _ => {
                    drop(holder);
                    round.deletion(token)?;
                    std::fs::remove_file(
                        fixture
                            .ensemble
                            .directory()
                            .join(format!("holder-{}.record", round.number)),
                    )?;
                }
            }
        };
        let options = fixture.options(&round, "waiter", &all)?;
        let waiter = fixture.start(fixture.with_times(options, SESSION_TIMEOUT))?;
        wait_for(BOUND, || {
            (round
                .deletions
                .lives()
                .iter()
                .filter(|life| life.deleted.is_none())
                .count()
                > 2)
            .then_some(())
        })
        .context("the waiter does not queue")?;
        std::thread::sleep(Duration::from_millis(context.random.u64(2_000..4_000)));
        let (a, b) = (
            fixture.ensemble.server(follower),
            fixture.ensemble.server(round.leader),
        );
        fixture.ensemble.cut(a, b)?;
        let cut = BootInstant::now();

        // Without a renewal the leader would expire the session one T and one tick later at most.
        let proof = cut + holder.options().session_timeout + fixture.ensemble.config().tick * 2;
        let mut moved_at = None;
        let outcome = wait_for(BOUND, || {
            if moved_at.is_none()
                && server_of(&fixture.ensemble, &holder.options().host)
                    .is_some_and(|server| server != follower)
            {
                moved_at = Some(BootInstant::now());
            }
            let last = holder.last_stamp(token).ok()?;
            if last > proof {
                return Some(true);
            }
            let is_over = waiter.records().is_ok_and(|records| !records.is_empty());
            is_over.then_some(false)
        });
        let is_kept = outcome
            .with_context(|| format!("round {}: neither kept nor lost:\n{}", round.number, holder.log()))?;
        round.judge(context, [&holder, &waiter], Rule::Exclusive, &mut violations)?;
        if is_kept {
            kept += 1;
            let moved_after = moved_at.map_or(f64::NAN, |at| seconds(at, cut));
            let silence = longest_silence(&holder.records()?, token, cut)?;
            moves.add(moved_after);
            silences.add(silence);
            context.say(format!(
                "round {}: kept; on another server {moved_after:.3} s after the cut; the application's longest \
                 silence was {silence:.3} s",
                round.number
            ))?;
        } else {
            let spare = round.spare(context, &holder, token, &mut violations)?;
            lost_spares.add(spare, &round.timing(&holder));
            context.say(format!(
                "round {}: lost; gone {:.3} s before {}\n{}",
                round.number,
                spare.seconds,
                spare.end(),
                holder.log()
            ))?;
        }
        drop((holder, waiter));
        fixture.ensemble.heal(
            fixture.ensemble.server(follower),
            fixture.ensemble.server(round.leader),
        )?;
    }
    let mut figures = Figures::default();
    figures.row(
        "lock kept and application never stopped",
        format!("{kept} of {} rounds", context.rounds),
    );
    figures.row("from the cut to another server", moves.to_string());
    figures.row("longest silence of the kept application", silences.to_string());
    lost_spares.tell(&mut figures, "where lost: gone");
    violations.finish(figures)
}

/// The server with which a host has its only session, as the servers report it (`cons`); `None` while an old
/// connection is not closed yet.
fn server_of(ensemble: &Ensemble, host: &Host) -> Option<usize> {
    let client = format!("/{}:", host.address());
    let serves = |&server: &usize| {
        let connections = ensemble.ask(server, "cons").unwrap_or_default();
        // A connection without a session is a four-letter word that is being answered.
        connections
            .lines()
            .any(|line| line.contains(&client) && line.contains("sid=") && !line.contains("sid=0x0,"))
    };
    let mut servers = (0..ensemble.len()).filter(serves);
    servers.next().filter(|_| servers.next().is_none())
}
