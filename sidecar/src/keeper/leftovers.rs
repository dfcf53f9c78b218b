//! What a killed guard may have left behind, and the end of a keeper without it.
//!
//! The anchor, if it was not killed as well, ends all its descendants and reports that. The keeper waits for this
//! report. It also kills the application's control group, if there is one, until the group is empty; and processes
//! with the run's mark in their environment, until none is found. If the anchor was killed too and there is no
//! control group, this mark is all that is left to find processes. A process may have cleared its environment, so
//! finding none proves nothing. A proof is the anchor's report, or the end of the [first] process of the application's
//! PID namespace. Without a proof the lock is abandoned. While something is known to be left, the lock is kept.

mod first;
mod look;

use std::time::Duration;

use lockkeeper_lock::{BootClock, BootInstant, Clock, LockStatus};
use rustix::process::Pid;
use tokio::sync::mpsc;

use self::first::{First, Known};
use self::look::{Look, hunt, kill_marked};
use super::contender::Contender;
use super::decider::patience_for_release;
use super::observer::Observer;
use super::policy::Policy;
use super::shown::Shown;
use crate::guard::ContainerKiller;
use crate::guard::handed_to_keeper::{Below, Will};
use crate::link::protocol::{FromGuard, ToGuard};
use crate::socket::Command;
use crate::view::Survivors;

/// How long the container beside us may take to end before its guard is killed, and we with it: half of what is left then
/// of the fixed part of the margin.
const PATIENCE_FOR_KILL: Duration = Duration::from_millis(50);

/// Pause between two rounds of that.
const PAUSE_BETWEEN_KILLS: Duration = Duration::from_millis(1);

/// A tree that forks while it is killed takes some rounds. Processes that are found after this many outlive SIGKILL.
const ROUNDS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);
/// How many looks in a row have to find nothing if there is no proof: a process has no environment for a moment while
/// it executes another program (`execve(2)`), and a look in that moment misses it.
const QUIET_ROUNDS: u32 = 20;
/// Between two looks at what outlives SIGKILL.
const LONG_PAUSE: Duration = Duration::from_millis(500);

/// How the wait for what a guard has left ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It is proven that nothing is left.
    Proven,
    /// Nothing is known to be left.
    Unknown,
    /// A user gave it up.
    GivenUp,
}

/// The means to stop the application if the guard is killed.
pub(super) struct Leftovers {
    /// For the container beside us.
    killer: Option<ContainerKiller>,
    /// What a guard of `run` has passed to us.
    will: Option<Will>,
    /// The first process of the application's PID namespace.
    known: Known,
}

impl Leftovers {
    /// With what kills the container beside us, or with the will of a guard that is our parent.
    pub(super) fn new(killer: Option<ContainerKiller>, will: Option<Will>) -> Self {
        Self {
            killer,
            will,
            known: Known::default(),
        }
    }

    /// A guard that is our parent has sent a frame. `lives` says whether it still is.
    pub(super) fn heard(&mut self, frame: &FromGuard, guard: Pid, lives: impl Fn() -> bool) {
        self.known.heard(frame, guard, lives);
    }

    pub(super) fn told(&mut self, frame: &ToGuard) {
        self.known.told(frame);
    }

    /// Kills the container beside us, in place of a guard that does not, until nothing is seen in it. Our own
    /// container ends with that guard, and we with it.
    pub(super) async fn kill_container(&mut self) {
        let Some(killer) = &mut self.killer else { return };
        let end = BootInstant::now() + PATIENCE_FOR_KILL;
        while !killer.kill() && BootInstant::now() < end {
            BootClock.sleep(PAUSE_BETWEEN_KILLS).await;
        }
    }

    /// Kills the application of a run in place of its guard, which is being killed. The kernel ends a guard in
    /// uninterruptible sleep much later, and nothing else ends the application before.
    pub(super) fn kill_run(&self) {
        let Some(will) = &self.will else { return };
        will.kill_group();
        match self.known.first() {
            Some(first) => first.kill(),
            // Until we end: with that guard, or with a signal.
            None => hunt(
                will.run(),
                |round| if round < ROUNDS { PAUSE } else { LONG_PAUSE },
            ),
        }
    }

    /// The guard was killed and cannot stop anything any more. Its anchor kills the processes that it finds, and so
    /// do we. The lock is kept while anything is known to be left. It is released if it is proven that nothing is
    /// left; otherwise it expires.
    pub(super) async fn stop(
        mut self,
        mut contender: Contender,
        shown: &Shown,
        metrics: &Observer,
        policy: &Policy,
        commands: &mut mpsc::Receiver<Command>,
    ) {
        let is_clear = self.killer.as_mut().is_none_or(ContainerKiller::kill);
        tracing::error!(
            is_clear,
            "The guard is gone; stopping what it left before another contender gets the lock"
        );
        contender.stop_asking();
        let published = contender.published();
        let is_released = match self.will.take() {
            None => {
                drop(contender);
                false
            }
            Some(mut will) => {
                contender.retain(true);
                let tell = contender.survivors_teller();
                let outlived = move |left| {
                    shown.outlived(left);
                    tell(left);
                };
                let end = tokio::select! {
                    end = kill(&mut will, self.known.first(), &BootClock, outlived) => end,
                    end = given_up(commands) => end,
                    never = contender.follow() => match never {},
                };
                if end == End::Proven {
                    release(contender, policy).await
                } else {
                    drop(contender);
                    false
                }
            }
        };
        if !is_released {
            metrics.abandoned();
        }
        published.send_replace(LockStatus::new());
        if let Some(killer) = &mut self.killer {
            kill_container(killer, policy.session_timeout, &BootClock).await;
        }
    }
}

/// Releases the lock and ends the session, if that can be done in time.
async fn release(contender: Contender, policy: &Policy) -> bool {
    tracing::info!("Nothing is left of what the guard had started; releasing the lock");
    let is_released = contender.close(patience_for_release(policy)).await;
    if !is_released {
        tracing::debug!("Lock not released; it will expire");
    }
    is_released
}

/// Kills what is left of the run until nothing is known to be. What outlives that is told to `outlived`.
async fn kill(
    will: &mut Will,
    first: Option<&First>,
    clock: &impl Clock,
    outlived: impl Fn(Survivors),
) -> End {
    let run = will.run();
    let mut look = Look::new(move || kill_marked(run));
    let (mut round, mut quiet) = (0, 0);
    loop {
        will.kill_group();
        let below = below(will, first);
        // All of the run is in the namespace of a first process that is known.
        let found = if first.is_some() {
            Some(Vec::new())
        } else {
            look.result().await
        };
        let is_clear = found.as_ref().is_some_and(Vec::is_empty);
        let found = found.unwrap_or_default();
        match (below, is_clear && will.group_is_empty()) {
            (Below::Ended { is_proof: true }, true) => return End::Proven,
            (Below::Ended { is_proof: false }, true) if quiet == QUIET_ROUNDS => return End::Unknown,
            (Below::Ended { is_proof: false }, true) => {
                quiet += 1;
                clock.sleep(PAUSE).await;
                continue;
            }
            _ => quiet = 0,
        }
        round = ROUNDS.min(round + 1);
        if round == ROUNDS {
            outlived(survivors(below, &found));
            clock.sleep(LONG_PAUSE).await;
        } else {
            clock.sleep(PAUSE).await;
        }
    }
}

/// What is left below the anchor. Files are closed before a process has ended, so the end of its pipe says nothing of
/// the namespace of which the anchor was the first process.
fn below(will: &mut Will, first: Option<&First>) -> Below {
    match (will.below(), first) {
        (Below::Ended { .. }, Some(first)) if first.has_ended() => Below::Ended { is_proof: true },
        (Below::Ended { .. }, Some(first)) => {
            first.kill();
            Below::Left { count: 0, pid: 0 }
        }
        (below, _) => below,
    }
}

/// The survivors, as known from the anchor, which sees all its descendants, or from our own look.
fn survivors(below: Below, found: &[Pid]) -> Survivors {
    let ours = u32::try_from(found.len()).unwrap_or(u32::MAX);
    let one = found.first().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    let (processes, pid) = match below {
        Below::Left { count, pid } if count >= ours => (count, Some(pid)),
        _ => (ours, one),
    };
    Survivors {
        processes: (processes > 0).then_some(processes),
        pid: pid.filter(|pid| *pid > 0),
        given_up: false,
    }
}

/// Waits until a user gives up what the guard has left.
async fn given_up(commands: &mut mpsc::Receiver<Command>) -> End {
    while let Some(command) = commands.recv().await {
        let (reply, answer) = match command {
            Command::AbandonSurvivors(reply) => {
                tracing::warn!("A user gives up what the guard has left; the lock is left to expire");
                let _ = reply.send(Ok(()));
                return End::GivenUp;
            }
            Command::StepDown(reply) => (reply, "the guard is gone, and the lock waits for what it left"),
            Command::Terminating(reply) => (reply, "this keeper is not in a pod: end it by a signal"),
        };
        let _ = reply.send(Err(answer.to_owned()));
    }
    std::future::pending().await
}

/// Kills what appears in a container that has lost its guard, for `time`: a kubelet that found the lease file
/// a moment ago may be about to start it. In a pod our own container ends long before, with the guard that was
/// its first process.
async fn kill_container(killer: &mut ContainerKiller, time: Duration, clock: &impl Clock) {
    let end = clock.now() + time;
    while clock.now() < end {
        killer.kill();
        clock.sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests;
