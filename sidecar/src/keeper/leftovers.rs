//! What a killed guard may have left behind, and the end of a keeper without it.
//!
//! The anchor, if it was not killed as well, ends all that descends from it, and says so. The keeper waits for that. It
//! also kills the application's control group, where there is one, until nothing is in it; and what has the run's name in
//! its environment, until nothing is found: that is all there is where the anchor was killed too and nothing else holds
//! the application together. A process may have cleared its environment, so finding none proves nothing. Only the
//! anchor's word is a proof; without it the lock is abandoned. While something is known to be left the lock is kept.

use std::io;
use std::time::Duration;

use lockkeeper_lock::{BootClock, Clock, Lock, LockStatus, LockView};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tokio::sync::{mpsc, watch};

use super::Keeper;
use super::decider::patience_for_release;
use super::policy::Kind;
use crate::exit::{Exit, Failure};
use crate::guard::ContainerKiller;
use crate::guard::will::{Below, RunId, Will};
use crate::lease_env::LeaseEnv;
use crate::socket::Command;
use crate::sys;
use crate::view::Survivors;

/// A tree that forks while it is killed takes some rounds. What is found after so many outlives SIGKILL.
const ROUNDS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);
/// Between two looks at what outlives SIGKILL.
const LONG_PAUSE: Duration = Duration::from_millis(500);

/// How the wait for what a guard has left ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It is proven that nothing is left.
    Proven,
    /// Nothing is known to be left.
    Unknown,
    /// Somebody gave it up.
    GivenUp,
}

impl Keeper<'_> {
    /// The guard was killed: it cannot stop anything any more. Its anchor ends what it finds; so do we. The lock is kept
    /// until nothing is known to be left. It is released if that is proven, and else left to expire.
    pub(super) async fn orphaned(mut self, commands: &mut mpsc::Receiver<Command>) -> Result<u8, Failure> {
        // First of all, and whatever else fails: our own end may be near, too.
        let removed = self.lease.as_ref().map_or(Ok(()), LeaseEnv::remove);
        let is_clear = self.killer.as_mut().is_none_or(ContainerKiller::kill);
        tracing::error!(
            is_clear,
            "The guard is gone; stopping what it left before the lock goes to anybody else"
        );
        self.asking = None;
        if let (Some(lock), Some(mut will)) = (self.lock.take(), self.will.take()) {
            lock.retain(true);
            let mut view = lock.view();
            let end = tokio::select! {
                end = kill(&mut will, &BootClock, |left| self.outlived(left)) => end,
                end = given_up(commands) => end,
                never = publish(&mut view, &self.published) => match never {},
            };
            if end == End::Proven {
                self.release(lock).await;
            } else {
                self.metrics.abandoned();
            }
        } else {
            self.metrics.abandoned();
        }
        self.lock = None;
        self.published.send_replace(LockStatus::new());
        if let Some(killer) = &mut self.killer {
            kill_container(killer, self.policy.session_timeout, &BootClock).await;
        }
        removed?;
        Ok(match self.policy.kind {
            Kind::Signal => Exit::GateAnew.code(),
            _ => Exit::LockLost.code(),
        })
    }

    /// Releases the lock and ends the session, if that can be done in time.
    async fn release(&self, lock: std::rc::Rc<Lock<BootClock>>) {
        tracing::info!("Nothing is left of what the guard had started; releasing the lock");
        let Ok(lock) = std::rc::Rc::try_unwrap(lock) else {
            return;
        };
        let released = tokio::time::timeout(patience_for_release(&self.policy), lock.close()).await;
        if !matches!(released, Ok(Ok(()))) {
            tracing::debug!("Lock not released; it will expire");
            self.metrics.abandoned();
        }
    }

    /// Says what outlives SIGKILL.
    fn outlived(&self, survivors: Survivors) {
        self.guarded.send_if_modified(|guarded| {
            let before = guarded.survivors.replace(survivors);
            if before.is_none() {
                self.metrics.survived();
                tracing::error!(
                    processes = survivors.processes,
                    pid = survivors.pid,
                    "Something has outlived its guard; the lock is kept until it has gone"
                );
            }
            before != Some(survivors)
        });
    }
}

/// Shows the state of the lock while we wait.
async fn publish(
    view: &mut LockView<BootClock>,
    published: &watch::Sender<LockStatus>,
) -> std::convert::Infallible {
    while let Ok(status) = view.changed().await {
        published.send_replace(status);
    }
    std::future::pending().await
}

/// Kills what is left of the run until nothing is known to be. What outlives that is told to `outlived`.
async fn kill(will: &mut Will, clock: &impl Clock, outlived: impl Fn(Survivors)) -> End {
    let run = will.run();
    let mut round = 0;
    loop {
        will.kill_group();
        let below = will.below();
        let found = marked(run);
        for pid in &found {
            // It may be gone, or another user's: then the anchor has more rights than we.
            let _ = kill_marked(*pid, run);
        }
        if let (Below::Ended { is_proof }, true, true) = (below, found.is_empty(), will.group_is_empty()) {
            return if is_proof { End::Proven } else { End::Unknown };
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

/// What is known of what is left: by the anchor, which sees all that descends from it, or by ourselves.
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

/// Waits until somebody gives up what the guard has left.
async fn given_up(commands: &mut mpsc::Receiver<Command>) -> End {
    while let Some(command) = commands.recv().await {
        let (reply, answer) = match command {
            Command::AbandonSurvivors(reply) => {
                tracing::warn!("A user gives up what the guard has left; the lock is left to expire");
                let _ = reply.send(Ok(()));
                return End::GivenUp;
            }
            Command::StepDown(reply) => (reply, "the guard is gone, and the lock waits for what it left"),
            Command::Terminating(reply) => (reply, "this keeper is none of a pod: end it by a signal"),
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

/// Kills exactly the process of this number that is a part of the run, and no later one.
fn kill_marked(pid: Pid, run: RunId) -> io::Result<()> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty());
    // From here on the descriptor cannot come to mean another process; the number can.
    if !is_marked(pid, run) {
        return Ok(());
    }
    match pidfd {
        Ok(pidfd) => Ok(sys::signal_through(&pidfd, libc::SIGKILL)?),
        // A sandbox that forbids it, a kernel before 5.3.
        Err(_) => Ok(kill_process(pid, Signal::KILL)?),
    }
}

fn is_marked(pid: Pid, run: RunId) -> bool {
    std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()))
        .is_ok_and(|environment| run.is_in(&environment))
}

fn marked(run: RunId) -> Vec<Pid> {
    let own = rustix::process::getpid();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            entry
                .ok()?
                .file_name()
                .to_str()?
                .parse()
                .ok()
                .and_then(Pid::from_raw)
        })
        .filter(|pid| *pid != own)
        .filter(|pid| is_marked(*pid, run))
        .collect()
}

#[cfg(test)]
mod tests;
