//! The scenes of the first act in which a server is cut off from the others.

use lockkeeper_lock::BootInstant;

use crate::outcome::{LOOK, hand_over, outcome};
use crate::run::{Reason, Run};
use crate::stage::{SILENCE, Stage};
use crate::waiting::Watched;
use crate::words::seconds;

/// There are four workers, so more tries would find the same ones.
const ROUND: usize = 4;

/// Returns the server that was cut off and is back.
pub(crate) fn cut_off_with_a_way_out(stage: &mut Stage) -> anyhow::Result<usize> {
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
    // If a session moves too late, it moves only to release the lock, and the outcome already shows that.
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

/// Makes sure that the running worker is connected to a follower: if that server is cut off from the leader,
/// the session moves.
fn behind_a_follower(stage: &mut Stage) -> anyhow::Result<(Run, usize)> {
    for _ in 0..ROUND {
        let holder = stage.holder()?;
        let server = server_of(stage, &holder)?;
        let leader = stage.wait("a server leads", |stage| stage.ensemble.leader())?;
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
    anyhow::bail!("no worker that ran was connected to a follower, {ROUND} times in a row")
}

/// Waits until another server confirms a holder's session, or another worker runs. Returns the server and the
/// moment.
fn moves_away(stage: &mut Stage, holder: &Run, from: usize) -> anyhow::Result<Option<(usize, BootInstant)>> {
    stage.wait("the session moves, or another one runs", |stage| {
        let other = stage.runs.range(holder.token + 1..).next().is_some();
        match stage.server_of(&holder.name, Some(from)) {
            Some(to) => Some(Some((to, BootInstant::now()))),
            None => other.then_some(None),
        }
    })
}

pub(crate) fn cut_off_without(stage: &mut Stage, cut_before: usize) -> anyhow::Result<()> {
    let leader = stage.wait("a server leads", |stage| stage.ensemble.leader())?;
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
         next one takes its place in the queue.",
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
        "dave's place is taken, {} after the cut: {} to spare",
        after(deleted),
        seconds(spare)
    );
    stage.tell(deleted, &text)?;
    stage.note("dave's place is taken".to_owned(), deleted);
    stage.tell(next.begin, &format!("{} runs; token {}", next.name, next.token))?;
    stage.pause(LOOK)?;
    heal(stage, follower, &label)
}

fn server_of(stage: &mut Stage, run: &Run) -> anyhow::Result<usize> {
    stage.wait("the holder is connected", |stage| {
        stage.server_of(&run.name, None)
    })
}

/// Cuts a server off from the others, but not from its clients.
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
