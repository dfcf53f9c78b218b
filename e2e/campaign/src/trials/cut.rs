//! A holder knows only one server, which is cut off from the leader. The server goes on answering pings and
//! reads, and the leader expires the session.

use std::time::Duration;

use lockkeeper_judge::checker::Rule;
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::{Ensemble, faults};

use crate::context::Context;
use crate::control::{Control, Setup};
use crate::figures::{Figures, Violations};
use crate::fixture::{BOUND, Fixture, Round};
use crate::sample::{Sample, seconds};
use crate::spares::Spares;
use crate::times::SESSION_TIMEOUT;

/// The server that is paused before the cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sleeper {
    Nobody,
    Follower,
    Leader,
}

/// The cut comes at a random moment.
pub(super) fn cut(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    trial(context, "cut", Sleeper::Nobody)
}

/// The cut comes right after the follower has woken from a pause, such as a garbage collection.
pub(super) fn cut_after_pause_of_the_follower(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    trial(context, "follower-pause", Sleeper::Follower)
}

/// The cut comes right after the leader has woken from a pause.
pub(super) fn cut_after_pause_of_the_leader(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    trial(context, "leader-pause", Sleeper::Leader)
}

/// The spare times by the three rules of the control client.
#[derive(Default)]
struct Rules {
    last_sent: Sample,
    last_acknowledged: Sample,
    lease: Sample,
}

fn trial(context: &mut Context<'_>, name: &'static str, sleeper: Sleeper) -> anyhow::Result<Figures> {
    let mut fixture = Fixture::new(name)?.with_lease(context.lease);
    let mut violations = Violations::default();
    let mut spares = Spares::default();
    let mut handover = Sample::default();
    let mut wake_to_cut = Sample::default();
    let mut rules = Rules::default();
    for _ in 0..context.rounds {
        let round = fixture.begin()?;
        let follower = round.followers[context.random.usize(..round.followers.len())];
        let others: Vec<_> = round
            .server_names()
            .into_iter()
            .filter(|&server| server != follower)
            .collect();

        let holder = fixture.options(&round, "holder", &[follower])?;
        // The application ignores SIGTERM, and so does its orphan, so both run until the very deadline.
        let holder = fixture.start(holder.with_recorder(&["--fork", "1", "--ignore-sigterm"]))?;
        let token = holder.wait_until_it_runs(0, BOUND)?;
        let waiter = fixture.options(&round, "waiter", &others)?;
        let waiter = fixture.start(waiter)?;
        let control = Control::start(Setup {
            host: fixture.host("control")?,
            server: fixture.ensemble.address(follower).to_string(),
            root: format!("{}/control", round.root),
            session_timeout: SESSION_TIMEOUT,
            tick: fixture.ensemble.config().tick,
        })?;
        // A random moment relative to the renewals and to the leader's pings, once some renewals are proven.
        std::thread::sleep(Duration::from_millis(context.random.u64(2_000..4_000)));
        let woken = strike(context, &fixture.ensemble, &round, follower, sleeper)?;
        let cut = BootInstant::now();
        if let Some(woken) = woken {
            wake_to_cut.add(seconds(cut, woken));
        }

        let next = waiter.wait_until_it_runs(token, BOUND)?;
        let spare = round.spare(context, &holder, token, &mut violations)?;
        let report = round.judge(context, [&holder, &waiter], Rule::Exclusive, &mut violations)?;
        let claims = control.claims()?;
        let forgotten = round.deletion(claims.token)?;
        let [by_sent, by_acknowledged, by_lease] =
            [claims.last_sent, claims.last_acknowledged, claims.lease].map(|end| seconds(forgotten, end));
        if by_lease <= 0.0 {
            violations.add(format!(
                "round {}: the lease ended {:.3} s after the leader deleted the node",
                round.number, -by_lease
            ));
        }
        // After a long pause the holder may have stopped its application by itself, and released the lock.
        spares.add(spare, &round.timing(&holder));
        rules.last_sent.add(by_sent);
        rules.last_acknowledged.add(by_acknowledged);
        rules.lease.add(by_lease);
        let until_next = report.holds.iter().find(|hold| hold.token == next);
        let until_next = until_next.map_or(f64::NAN, |hold| seconds(hold.begin, cut));
        handover.add(until_next);
        context.say(format!(
            "round {}: gone {:.3} s before {}, next began {until_next:.3} s after \
             the cut; control: last write sent + T {by_sent:.3}, acknowledged + T {by_acknowledged:.3}, \
             lease {by_lease:.3} s before the deletion",
            round.number,
            spare.seconds,
            spare.end()
        ))?;
        drop((holder, waiter));
        let (a, b) = (
            fixture.ensemble.server(follower),
            fixture.ensemble.server(round.leader),
        );
        fixture.ensemble.heal(a, b)?;
    }
    let mut figures = Figures::default();
    spares.tell(&mut figures, "everything gone");
    figures.row("from the cut to the next holder", handover.to_string());
    if !wake_to_cut.is_empty() {
        figures.row("from waking to the cut", wake_to_cut.to_string());
    }
    for (rule, times) in [
        (
            "control: last acknowledged write, send time + T",
            &rules.last_sent,
        ),
        (
            "control: last acknowledged write, acknowledgement + T",
            &rules.last_acknowledged,
        ),
        ("control: lease of lockkeeper_lock", &rules.lease),
    ] {
        figures.row(rule, format!("{} overlaps; spare {times}", times.negative()));
    }
    violations.finish(figures)
}

/// Cuts the follower off from the leader. Returns the moment at which the paused server was woken, if there
/// is one.
fn strike(
    context: &mut Context<'_>,
    ensemble: &Ensemble,
    round: &Round,
    follower: usize,
    sleeper: Sleeper,
) -> anyhow::Result<Option<BootInstant>> {
    let cut = || ensemble.cut(ensemble.server(follower), ensemble.server(round.leader));
    let server = match sleeper {
        Sleeper::Nobody => {
            cut()?;
            return Ok(None);
        }
        Sleeper::Follower => follower,
        Sleeper::Leader => round.leader,
    };
    let Some(pid) = ensemble.pid(server) else {
        anyhow::bail!("a server is down");
    };
    let asleep = Duration::from_millis(context.random.u64(500..1_600));
    // Making the cut takes some milliseconds, so it begins while the paused server wakes.
    let head_start = Duration::from_micros(context.random.u64(..8_000));
    faults::stop(pid)?;
    std::thread::sleep(asleep);
    let woken = std::thread::scope(|scope| {
        let waking = scope.spawn(|| {
            std::thread::sleep(head_start);
            let woken = BootInstant::now();
            faults::resume(pid).map(|()| woken)
        });
        let cut = cut();
        let woken = waking
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        cut?;
        anyhow::Ok(woken?)
    })?;
    Ok(Some(woken))
}
