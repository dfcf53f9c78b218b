//! The scenes of the first act, in their order: a queue, a release, a kill, an election, a server that is cut off.

use std::time::Duration;

use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::Unsupported;
use lockkeeper_testbed::faults;

use crate::cuts::{cut_off_with_a_way_out, cut_off_without};
use crate::outcome::{LOOK, hand_over, outcome};
use crate::run::{Reason, Run};
use crate::stage::Stage;
use crate::waiting::Watched;
use crate::words::{millis, seconds};

/// Performs all scenes; leaves out those that cut connections if `cannot_cut` has a reason.
pub(crate) fn play(stage: &mut Stage, cannot_cut: Option<&Unsupported>) -> anyhow::Result<()> {
    stage.watch_anew()?;
    queue(stage)?;
    release(stage)?;
    kill(stage)?;
    election(stage)?;
    match cannot_cut {
        None => {
            let follower = cut_off_with_a_way_out(stage)?;
            cut_off_without(stage, follower)?;
        }
        Some(reason) => {
            stage
                .console
                .title("5, 6. Left out: servers that are cut off from one another.")?;
            stage.console.line(&format!("Here {reason}."))?;
        }
    }
    stage
        .console
        .title("The end. The workers are asked to stop, the waiting ones first.")?;
    stage.end_workers()
}

fn queue(stage: &mut Stage) -> anyhow::Result<()> {
    stage.announce(
        "1. Three workers queue for one lock.",
        "The first one to come runs its application; the others wait, with no application running at all. \
         The fencing token is the number of the transaction that made a worker's place in the queue: it \
         only grows.",
    )?;
    for name in ["alice", "bob", "carol"] {
        // Two daemons each, for the third act.
        let options = stage.worker_options(name)?.with_recorder(&["--fork", "2"]);
        stage.start_worker(options)?;
        if name == "alice" {
            let run = stage.holder()?;
            stage.tell(run.begin, &format!("alice runs under token {}", run.token))?;
        } else {
            stage.ask_keeper(name, &["wait", "--for", "queued"])?;
            stage.tell(BootInstant::now(), &format!("{name} waits"))?;
        }
    }
    stage.pause(LOOK)
}

fn release(stage: &mut Stage) -> anyhow::Result<()> {
    let holder = stage.holder()?;
    stage.announce(
        &format!("2. {} hands the lock over: `lockkeeper release`.", holder.name),
        "Its application is stopped, then the lock is released: the next one runs some milliseconds \
         later, under a higher token, and the old holder queues again at the end.",
    )?;
    hand_over(stage, &holder)?;
    stage.pause(LOOK)
}

fn kill(stage: &mut Stage) -> anyhow::Result<()> {
    // Its daemons may just have started; and on a busy machine the lock may move meanwhile.
    let holder = stage.wait("the application and its daemons run", |stage| {
        let (_, run) = stage.runs.last_key_value()?;
        (run.pids.len() == 3).then(|| run.clone())
    })?;
    let Run { name, token, .. } = &holder;
    stage.announce(
        &format!("3. kill -9 for {name}."),
        &format!(
            "We kill the process that the user started. Nothing is left to stop {name}'s application in good \
             order, nor the two daemons that it has left in sessions of their own, deaf to SIGTERM; all of \
             them have to die with it at once. {name}'s keeper lives. It releases the lock as soon as it has \
             the proof that none of them is left, so the next one does not wait for the end of a lease.",
        ),
    )?;
    let pids = holder.pids.clone();
    let killed = BootInstant::now();
    faults::kill(stage.worker(name).guard_pid())?;
    stage.note(format!("{name}: kill -9"), killed);
    let gone = Run {
        pids,
        ..holder.clone()
    };
    gone.wait_until_gone()?;
    // All of its lines are written now.
    stage.pause(Duration::from_millis(20))?;
    let last = stage.runs[token].last;
    stage.tell(
        last,
        &format!(
            "the last instruction of its three processes, {} after the kill",
            millis(last.saturating_since(killed))
        ),
    )?;
    let deleted = stage.deletion(*token)?;
    let (next, gap) = stage.next_after(*token, Reason::Killed)?;
    stage.tell(deleted, &format!("{name}'s keeper has released the lock"))?;
    stage.tell(
        next.begin,
        &format!(
            "{} runs, {} after {name}; token {}",
            next.name,
            seconds(gap),
            next.token
        ),
    )?;
    let options = stage.worker_options(name)?;
    stage.start_worker(options)?;
    stage.ask_keeper(name, &["wait", "--for", "queued"])?;
    stage.tell(
        BootInstant::now(),
        &format!("{name} was started again, and waits at the end"),
    )?;
    stage.pause(LOOK)
}

fn election(stage: &mut Stage) -> anyhow::Result<()> {
    let holder = stage.holder()?;
    let leader = stage.wait("a server leads", |stage| stage.ensemble.leader())?;
    let server = stage.ensemble.server(leader).name().to_owned();
    stage.announce(
        &format!("4. The leader of the ensemble, {server}, is killed."),
        &format!(
            "Until the others have elected a new one, nothing can be renewed and no lock can go on. {} may \
             run for as long as its lease lasts: it goes on if the election is quick, and is stopped in \
             time if it is not. No other application runs beside it in either case.",
            holder.name
        ),
    )?;
    let killed = BootInstant::now();
    stage.ensemble.kill(leader);
    let label = format!("{server}, the leader, is down");
    stage.fault(&label, killed);
    let new = stage.wait("a new leader is elected", |stage| {
        let new = stage.ensemble.leader()?;
        (stage.ensemble.synced_followers(new)? >= 1).then_some(new)
    })?;
    let elected = BootInstant::now();
    stage.tell(
        elected,
        &format!(
            "{} leads, {} after the kill",
            stage.ensemble.server(new).name(),
            seconds(elected - killed)
        ),
    )?;
    stage.watch_anew()?;
    stage.ensemble.launch(leader)?;
    stage.wait("the killed server is back", |stage| {
        stage.ensemble.mode(leader).serves().then_some(())
    })?;
    let back = BootInstant::now();
    stage.timeline.unmark(&label, back);
    stage.tell(back, &format!("{server} is back"))?;
    outcome(stage, &holder, killed, Reason::Election)?;
    Ok(())
}
