//! What happens, act by act.

use std::time::Duration;

use lockkeeper_lock::BootInstant;

use super::run::{Reason, Run};
use super::stage::{SILENCE, Stage};
use crate::faults;
use crate::network::Unsupported;

/// Time in which a new situation is shown.
const LOOK: Duration = Duration::from_millis(1000);
/// There are four workers: more tries find nobody else.
const ROUND: usize = 4;

/// All acts; without those that cut connections when there is a reason why they cannot be given.
pub(super) fn play(stage: &mut Stage, cannot_cut: Option<&Unsupported>) -> anyhow::Result<()> {
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
        let mut options = stage.worker_options(name)?;
        if name == "bob" {
            // For the third act.
            options = options.with_recorder(&["--fork", "2"]);
        }
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

fn hand_over(stage: &mut Stage, holder: &Run) -> anyhow::Result<Run> {
    stage.note(format!("{}: release", holder.name), BootInstant::now());
    stage.ask_keeper(&holder.name, &["release"])?;
    let (next, gap) = stage.next_after(holder.token, Reason::Released)?;
    stage.tell(
        next.begin,
        &format!(
            "{} runs, {} after {}; token {}",
            next.name,
            millis(gap),
            holder.name,
            next.token
        ),
    )?;
    Ok(next)
}

fn kill(stage: &mut Stage) -> anyhow::Result<()> {
    let holder = stage.holder()?;
    let Run { name, token, .. } = &holder;
    stage.announce(
        &format!("3. kill -9 for {name}."),
        &format!(
            "We kill the process that the user started. Nobody is left to stop {name}'s application in good \
             order, nor the two daemons that it has left in sessions of their own, deaf to SIGTERM; all of \
             them have to die with it at once. The lock stays taken until the ensemble gives {name}'s \
             session up: 4 s after it last heard of it, plus up to a tick of 1 s.",
        ),
    )?;
    // Its daemons may just have started.
    let pids = stage.wait("the application and its daemons run", |stage| {
        let pids = &stage.runs[token].pids;
        (pids.len() == 3).then(|| pids.clone())
    })?;
    let killed = BootInstant::now();
    faults::kill(stage.worker(name).guard_pid())?;
    stage.note(format!("{name}: kill -9"), killed);
    let gone = Run {
        pids,
        ..holder.clone()
    };
    gone.wait_until_gone()?;
    // All of its lines are there now.
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
    stage.tell(deleted, &format!("the ensemble gives {name}'s place up"))?;
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
    let leader = stage.wait("somebody leads", |stage| stage.ensemble.leader())?;
    let server = stage.ensemble.server(leader).name().to_owned();
    stage.announce(
        &format!("4. The leader of the ensemble, {server}, is killed."),
        &format!(
            "Until the others have elected a new one, nothing can be renewed and no lock can go on. {} may \
             run for as long as its lease lasts: it goes on if the election is quick, and is stopped in \
             time if it is not. Nobody else runs beside it in either case.",
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

/// Waits until the holder has either outlived the lease that it had at the fault, or been followed by
/// another one, and says which. True when it went on.
fn outcome(stage: &mut Stage, holder: &Run, fault: BootInstant, reason: Reason) -> anyhow::Result<bool> {
    let session_timeout = stage.worker(&holder.name).options().session_timeout;
    let went_on = stage.wait("the holder goes on, or another one runs", |stage| {
        if stage.runs.range(holder.token + 1..).next().is_some() {
            return Some(false);
        }
        // Every renewal that was sent before the fault is worth nothing by then.
        (stage.runs[&holder.token].last > fault + session_timeout).then_some(true)
    })?;
    let name = &holder.name;
    if went_on {
        let text = format!("{name} has gone on all the time, under the same token");
        stage.tell(BootInstant::now(), &text)?;
    } else {
        let (next, gap) = stage.next_after(holder.token, reason)?;
        let last = stage.runs[&holder.token].last;
        stage.tell(
            last,
            &format!("{name} was stopped, {} after the fault", seconds(last - fault)),
        )?;
        stage.tell(
            next.begin,
            &format!(
                "{} runs, {} after {name}; token {}",
                next.name,
                seconds(gap),
                next.token
            ),
        )?;
    }
    Ok(went_on)
}

/// Gives the server that was cut off and is back.
fn cut_off_with_a_way_out(stage: &mut Stage) -> anyhow::Result<usize> {
    let (holder, server) = behind_a_follower(stage)?;
    let server_name = stage.ensemble.server(server).name().to_owned();
    stage.announce(
        &format!(
            "5. {}'s server, {server_name}, is cut off from the other two.",
            holder.name
        ),
        "It is a follower, and goes on answering pings and reads for up to 10 s: a client that trusts its \
         connection notices nothing, while the leader gives its session up after 4 to 5 s. Lockkeeper \
         counts only writes that a quorum has accepted. It takes its session to another server, and the \
         application never notices; or, should that fail, it is stopped in time.",
    )?;
    let cut = isolate(stage, server)?;
    let label = format!("{server_name} is cut off");
    stage.fault(&label, cut);
    let moved = moves_away(stage, &holder, server)?;
    // A session that moves too late moves to release the lock: the outcome says enough then.
    if let Some((to, at)) = moved.filter(|&(_, at)| stage.runs[&holder.token].last + SILENCE > at) {
        let text = format!(
            "{}'s session is at {}, {} after the cut",
            holder.name,
            stage.ensemble.server(to).name(),
            seconds(at - cut)
        );
        stage.tell(at, &text)?;
    }
    outcome(stage, &holder, cut, Reason::CutOff)?;
    heal(stage, server, &label)?;
    Ok(server)
}

/// Sees to it that whoever runs is connected to a follower: cut off from the leader, its session moves.
fn behind_a_follower(stage: &mut Stage) -> anyhow::Result<(Run, usize)> {
    for _ in 0..ROUND {
        let holder = stage.holder()?;
        let server = server_of(stage, &holder)?;
        let leader = stage.wait("somebody leads", |stage| stage.ensemble.leader())?;
        if server != leader {
            return Ok((holder, server));
        }
        let host = stage.worker(&holder.name).options().host.clone();
        stage.ensemble.cut(&host, stage.ensemble.server(leader))?;
        let cut = BootInstant::now();
        let label = format!("{} is cut off from the leader", holder.name);
        stage.fault(&label, cut);
        stage.tell(
            cut,
            &format!("{label}, to which it is connected: the next act wants a follower"),
        )?;
        let moved = moves_away(stage, &holder, leader)?;
        stage.ensemble.heal(&host, stage.ensemble.server(leader))?;
        stage.timeline.unmark(&label, BootInstant::now());
        if let Some((to, at)) = moved {
            let text = format!(
                "{}'s session is at {}, {} later",
                holder.name,
                stage.ensemble.server(to).name(),
                seconds(at - cut)
            );
            stage.tell(at, &text)?;
        }
        outcome(stage, &holder, cut, Reason::CutOff)?;
    }
    anyhow::bail!("nobody who ran was connected to a follower, {ROUND} times in a row")
}

/// Waits until a holder's session is confirmed by another server, or another worker runs; says which
/// server, and when.
fn moves_away(stage: &mut Stage, holder: &Run, from: usize) -> anyhow::Result<Option<(usize, BootInstant)>> {
    stage.wait("the session moves, or another one runs", |stage| {
        let other = stage.runs.range(holder.token + 1..).next().is_some();
        match stage.server_of(&holder.name, Some(from)) {
            Some(to) => Some(Some((to, BootInstant::now()))),
            None => other.then_some(None),
        }
    })
}

fn cut_off_without(stage: &mut Stage, cut_before: usize) -> anyhow::Result<()> {
    let leader = stage.wait("somebody leads", |stage| stage.ensemble.leader())?;
    let follower = if cut_before == leader {
        (leader + 1) % stage.ensemble.len()
    } else {
        cut_before
    };
    let server = stage.ensemble.server(follower).name().to_owned();
    stage.announce(
        &format!("6. dave knows no other server than {server}, which is cut off again."),
        "dave comes to the end of the queue, and the others hand over until it is its turn. This time there \
         is no way out: its lease ends without a renewal, and its application has to be gone before the \
         leader deletes its place in the queue.",
    )?;
    let mut options = stage.worker_options("dave")?;
    options.connect = stage.ensemble.address(follower).to_string();
    stage.start_worker(options)?;
    stage.ask_keeper("dave", &["wait", "--for", "queued"])?;
    let mut holder = stage.holder()?;
    for _ in 0..ROUND {
        if holder.name == "dave" {
            break;
        }
        holder = hand_over(stage, &holder)?;
        stage.pause(LOOK)?;
    }
    anyhow::ensure!(holder.name == "dave", "dave's turn did not come");
    stage.watch_anew()?;
    let cut = isolate(stage, follower)?;
    let label = format!("{server} is cut off");
    stage.fault(&label, cut);
    let (next, _) = stage.next_after(holder.token, Reason::CutOff)?;
    let deleted = stage.deletion(holder.token)?;
    let last = stage.runs[&holder.token].last;
    let after = |at: BootInstant| seconds(at.saturating_since(cut));
    stage.tell(
        last,
        &format!("dave's application is gone, {} after the cut", after(last)),
    )?;
    let spare = deleted.saturating_since(last);
    let text = format!(
        "the leader deletes dave's place, {} after the cut: {} to spare",
        after(deleted),
        seconds(spare)
    );
    stage.tell(deleted, &text)?;
    stage.note("dave's place is deleted".to_owned(), deleted);
    stage.tell(next.begin, &format!("{} runs; token {}", next.name, next.token))?;
    stage.pause(LOOK)?;
    heal(stage, follower, &label)
}

fn server_of(stage: &mut Stage, run: &Run) -> anyhow::Result<usize> {
    stage.wait("the holder is connected", |stage| {
        stage.server_of(&run.name, None)
    })
}

/// Cuts a server off from the others, not from its clients.
fn isolate(stage: &mut Stage, server: usize) -> anyhow::Result<BootInstant> {
    let ensemble = &stage.ensemble;
    let at = BootInstant::now();
    for other in (0..ensemble.len()).filter(|&other| other != server) {
        ensemble.cut(ensemble.server(server), ensemble.server(other))?;
    }
    Ok(at)
}

fn heal(stage: &mut Stage, server: usize, label: &str) -> anyhow::Result<()> {
    let ensemble = &stage.ensemble;
    for other in (0..ensemble.len()).filter(|&other| other != server) {
        ensemble.heal(ensemble.server(server), ensemble.server(other))?;
    }
    let at = BootInstant::now();
    stage.timeline.unmark(label, at);
    stage.tell(
        at,
        &format!(
            "{} is back among the others",
            stage.ensemble.server(server).name()
        ),
    )?;
    stage.wait("all servers serve", |stage| {
        let leader = stage.ensemble.leader()?;
        (stage.ensemble.synced_followers(leader)? == stage.ensemble.len() - 1).then_some(())
    })
}

fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

fn seconds(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{:.2} s", duration.as_secs_f64())
    }
}
