//! What the keeper does and when: a pure state machine, without sockets, tasks or clocks.
//!
//! It is level-triggered: events change what is known ([`hear`]), [`Decider::decide`] looks at all of
//! it and says what to do now, with the application ([`application`]) and with the place in the
//! queue ([`queue`]). The rules, in the order of their weight:
//! * the lock is given up only when the guard has said that nothing of the application is left (or
//!   that all of it is stopped, with `onLoss: Pause`), or its end has proven it;
//! * the application gets a grant only for a lock that is held now, and never a longer one than the
//!   lease less the margin;
//! * each grant starts the application at most once, and a token under which it was told to stop is
//!   never granted again: so no frame of the guard can be taken for the answer to another.

mod application;
mod hear;
mod queue;
#[cfg(test)]
mod tests;

use std::time::Duration;

use lockkeeper_lock::{BootInstant, FencingToken, LockStatus};

use super::policy::{Kind, Policy};
use crate::guard::protocol::{Grant, ToGuard};
use crate::probes::health::Running;
use crate::view::Survivors;

/// The shortest pause before an application that exits is started again, doubled at each exit...
const SHORTEST_BACK_OFF: Duration = Duration::from_millis(100);
/// ...up to this, and forgotten when it ran for as long.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(10);

/// How long a release on the way out may take before the contender is left to expire, but no longer
/// than a third of the session timeout: the ensemble does it then anyway.
const PATIENCE_FOR_RELEASE: Duration = Duration::from_secs(5);

/// How long the guard may take to say that it has stopped everything, after its deadline: half of
/// the fixed part of the margin ([`lockkeeper_lock::KILL_ALLOWANCE`]), so that the other half is left
/// for what comes then.
const PATIENCE_FOR_GUARD: Duration = Duration::from_millis(100);

/// What is left of a pod's grace period when the application has to be gone: for the guard's word, and for
/// the release, which is one write of the ensemble. A kubelet kills the guard and asks us to end at the
/// same moment, the last one of that period, and then nobody can say that nothing is left.
const RESERVE_OF_GRACE: Duration = Duration::from_secs(2);

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Tell the guard.
    Tell(ToGuard),
    /// Write the file with the token.
    WriteLease(FencingToken),
    /// Remove it, before anything is stopped.
    RemoveLease,
    /// Ask the lock for something; [`Decider::lock_answered`] wants to hear of the end. What was
    /// asked before, and is not answered yet, is of no interest any more.
    Ask(Ask),
    /// Leave the contender to expire, and make a new lock. Those who asked for a step down did not
    /// get it.
    Abandon,
    /// Kill the guard, which has not answered: everything that it started dies with it. A container that it did not
    /// start is killed before.
    KillGuard,
    /// Answer those who asked for a step down: the lock is released.
    AnswerStepDown,
    /// End the keeper, and the guard with the same code.
    End(Ending),
}

/// A request to the lock. One at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A place in the queue.
    Contend,
    /// To leave it.
    Release,
}

/// How the keeper ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the application's exit code, or what stands for it.
    Code(u8),
    /// The lock was not acquired within `--wait-timeout`.
    NotAcquired,
    /// The ensemble refuses the lock, and would refuse again.
    Refused,
}

/// The application, as the guard tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum App {
    /// No guard, and nothing runs.
    Absent,
    /// Nothing runs.
    Idle,
    /// It was granted a token, and may run.
    Granted { token: FencingToken },
    /// All of it was stopped by SIGSTOP at its deadline.
    Paused { token: FencingToken },
    /// It is being ended: waiting for the guard's word.
    Stopping { token: FencingToken, cause: Cause },
    /// The guard's connection is lost, and something ran. The guard ends it at its deadline, which
    /// is unknown if another keeper gave it. The end of its process will be told if that `is_watched`.
    OutOfSight {
        deadline: Option<BootInstant>,
        is_watched: bool,
    },
}

/// Why the application is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The guard does it by itself.
    Deadline,
    /// The lock was lost in a way that the guard cannot know.
    Loss,
    /// Somebody wants it; what comes then is settled.
    Wish,
}

/// What comes after the lock is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Queue again as soon as `Decider::contend_at`.
    QueueAgain,
    End(Ending),
}

/// What the keeper knows, and what it makes of it.
pub struct Decider {
    policy: Policy,
    app: App,
    /// The application of the present grant was reported to run.
    is_started: bool,
    status: LockStatus,
    /// The request under way.
    asked: Option<Ask>,
    /// We asked for a place in the queue and got it, and did not give it up.
    is_in_queue: bool,
    next: Option<Next>,
    /// Somebody wants the lock handed over, and waits for the answer.
    wants_step_down: bool,
    answer_is_due: bool,
    /// Somebody wants us to end; the code if the application has none of its own.
    ending: Option<u8>,
    give_up_at: Option<BootInstant>,
    /// When the release on the way out has taken too long.
    release_by: Option<BootInstant>,
    was_held: bool,
    contend_at: Option<BootInstant>,
    start_at: Option<BootInstant>,
    back_off: Duration,
    started_at: Option<BootInstant>,
    held_since: Option<(FencingToken, BootInstant)>,
    /// The token that others may have taken over already, whatever the lease says.
    revoked: Option<FencingToken>,
    /// The newest grant that was told on this connection, without its `start` and its generation, and
    /// with the end that a stop has set.
    last_grant: Option<Grant>,
    /// How many grants were told.
    generation: u32,
    /// When the guard will have ended what runs, if it hears nothing more.
    guard_deadline: Option<BootInstant>,
    /// When a guard that says nothing after its deadline is killed.
    kill_guard_at: Option<BootInstant>,
    /// Whether the guard was told to suspect; unknown after it came back.
    told_suspect: Option<bool>,
    lease_file: Option<FencingToken>,
    /// What the guard has seen to outlive SIGKILL: how many processes, and the number of one. Zeros for what it could
    /// not see.
    survivors: Option<(u32, u32)>,
    /// It has counted some, or has said so again: a guard on a starved machine does not see all of `/proc` in time, and
    /// a moment later that nothing is left.
    is_sure_of_survivors: bool,
    /// The lock is to be left to expire: another guard took the place of one that may have left something behind,
    /// or somebody gives up what has outlived its deadline.
    is_in_doubt: bool,
    is_given_up: bool,
    /// When everything has to be stopped, since the pod is ending.
    gone_by: Option<BootInstant>,
    /// Starts of the application, and the process of the last one.
    starts: u64,
    process: Option<u32>,
    has_ended: bool,
    /// The deadline of a grant under which the guard started nothing.
    too_late: Option<BootInstant>,
}

impl Decider {
    /// A keeper that began at `now`: `--wait-timeout` counts from then.
    pub fn new(policy: Policy, now: BootInstant) -> Self {
        let give_up_at = policy.wait_timeout.map(|limit| {
            // Zero is for an ensemble that answers. One that does not gets its session timeout.
            let unreachable = policy.session_timeout - patience_for_release(&policy);
            now + if limit.is_zero() { unreachable } else { limit }
        });
        Self {
            policy,
            app: App::Absent,
            is_started: false,
            status: LockStatus::new(),
            asked: None,
            is_in_queue: false,
            next: None,
            wants_step_down: false,
            answer_is_due: false,
            ending: None,
            give_up_at,
            release_by: None,
            was_held: false,
            contend_at: None,
            start_at: None,
            back_off: SHORTEST_BACK_OFF,
            started_at: None,
            held_since: None,
            revoked: None,
            last_grant: None,
            generation: 0,
            guard_deadline: None,
            kill_guard_at: None,
            told_suspect: Some(false),
            lease_file: None,
            survivors: None,
            is_sure_of_survivors: false,
            is_in_doubt: false,
            is_given_up: false,
            gone_by: None,
            starts: 0,
            process: None,
            has_ended: false,
            too_late: None,
        }
    }

    /// What to do now. To be called after every event, and at [`Decider::wake_at`].
    pub fn decide(&mut self, now: BootInstant) -> Vec<Act> {
        let mut acts = Vec::new();
        if self.has_ended {
            return acts;
        }
        if std::mem::take(&mut self.answer_is_due) {
            acts.push(Act::AnswerStepDown);
        }
        self.look_at_the_clock(now);
        if std::mem::take(&mut self.is_in_doubt) && self.status.state != lockkeeper_lock::LockState::Released
        {
            self.remove_lease(&mut acts);
            self.abandon(&mut acts);
        }
        match self.app {
            App::Granted { token } => self.decide_running(token, now, &mut acts),
            App::Idle | App::Paused { .. } => self.decide_starting(now, &mut acts),
            App::Stopping { token, cause } => {
                self.remove_lease(&mut acts);
                if cause != Cause::Loss {
                    self.tell_an_earlier_deadline(token, now, &mut acts);
                }
            }
            App::Absent | App::OutOfSight { .. } => self.remove_lease(&mut acts),
        }
        match self.app {
            App::Granted { .. } | App::Stopping { .. } => self.watch_the_guard(now, &mut acts),
            App::OutOfSight { deadline, is_watched } => {
                self.decide_out_of_sight(deadline, is_watched, now, &mut acts)
            }
            App::Absent | App::Idle | App::Paused { .. } => self.decide_queue(now, &mut acts),
        }
        acts
    }

    /// When to look again though nothing has happened.
    pub fn wake_at(&self, now: BootInstant) -> Option<BootInstant> {
        let of_the_application = match self.app {
            App::Granted { .. } => [
                self.status.deadline(),
                self.last_grant.map(lease_file_until),
                self.stop_at(),
            ],
            App::OutOfSight { deadline, .. } => [deadline, None, None],
            _ => [None; 3],
        };
        let of_the_guard = match self.app {
            App::Granted { .. } | App::Stopping { .. } if self.policy.kind != Kind::Wrap => {
                self.kill_guard_at.or(self.guard_deadline)
            }
            _ => None,
        };
        let moments = [
            of_the_guard,
            self.give_up_at,
            self.release_by,
            self.contend_at,
            self.start_at,
            self.delayed_until(),
        ];
        moments
            .into_iter()
            .chain(of_the_application)
            .flatten()
            .filter(|moment| *moment > now)
            .min()
    }

    /// The application, if it runs and is left to.
    pub(super) fn running(&self) -> Option<Running> {
        let is_left = matches!(self.app, App::Granted { .. }) && self.told_suspect != Some(true);
        let since = self.started_at.filter(|_| is_left && self.is_started)?;
        Some(Running {
            start: self.starts,
            since,
        })
    }

    /// Whether the contender is to be kept also when the lock is lost: something of the application may be left, and
    /// its end will be told.
    pub fn keeps_the_contender(&self) -> bool {
        let is_told = matches!(
            self.app,
            App::Granted { .. } | App::Stopping { .. } | App::OutOfSight { is_watched: true, .. }
        );
        is_told && !self.is_given_up
    }

    /// What has outlived its deadline.
    pub(super) fn survivors(&self, now: BootInstant) -> Option<Survivors> {
        let (count, pid) = match self.app {
            App::Stopping { .. } => self.survivors?,
            App::OutOfSight {
                deadline: Some(deadline),
                is_watched: true,
            } if deadline <= now => (0, 0),
            _ => return None,
        };
        Some(Survivors {
            processes: (count > 0).then_some(count),
            pid: (pid > 0).then_some(pid),
            given_up: self.is_given_up,
        })
    }

    /// Whether something is known to have outlived its deadline. The lock is kept while that is not known, too.
    pub(super) fn has_survivors(&self, now: BootInstant) -> bool {
        let is_unseen = matches!(self.app, App::Stopping { .. }) && !self.is_sure_of_survivors;
        self.survivors(now).is_some() && !is_unseen
    }

    /// When to stop an application that does not end with its pod by itself.
    fn stop_at(&self) -> Option<BootInstant> {
        Some(self.gone_by?.saturating_sub(self.policy.stop_grace))
    }

    /// A guard that is stopped, or starved, stops nobody. In `run` it is a process like any other,
    /// and the one before which the application dies; beside a container it is one of a pod that shares its
    /// processes. As the first process of a container it can be neither stopped nor killed from the inside.
    ///
    /// Counted from when we look, not from the deadline: if it was us who were stopped, its word is
    /// in the socket already.
    fn watch_the_guard(&mut self, now: BootInstant, acts: &mut Vec<Act>) {
        let is_due = self.guard_deadline.is_some_and(|deadline| deadline <= now);
        if self.policy.kind == Kind::Wrap || !is_due {
            self.kill_guard_at = None;
            return;
        }
        let kill_at = *self.kill_guard_at.get_or_insert(now + PATIENCE_FOR_GUARD);
        if kill_at <= now {
            self.guard_deadline = None;
            self.kill_guard_at = None;
            acts.push(Act::KillGuard);
        }
    }

    fn look_at_the_clock(&mut self, now: BootInstant) {
        for moment in [&mut self.contend_at, &mut self.start_at] {
            moment.take_if(|moment| *moment <= now);
        }
        let is_over = self.give_up_at.is_some_and(|moment| moment <= now);
        let is_hopeless = self.policy.wait_timeout == Some(Duration::ZERO)
            && !self.was_held
            && self.status.state == lockkeeper_lock::LockState::Waiting
            && self.status.position.is_some_and(|position| position > 0);
        if is_over || is_hopeless {
            self.give_up_at = None;
            self.end_unless_ending(Ending::NotAcquired);
        }
    }

    /// What the application has said of its own end stands, whatever the lock says later.
    fn end_unless_ending(&mut self, ending: Ending) {
        if !matches!(self.next, Some(Next::End(_))) {
            self.next = Some(Next::End(ending));
        }
    }

    /// The token under which the application may run now, and until when.
    fn held(&self, now: BootInstant) -> Option<(FencingToken, BootInstant)> {
        let deadline = self.status.deadline().filter(|deadline| now < *deadline)?;
        let token = self.status.token.filter(|_| self.status.is_held(now))?;
        Some((token, deadline))
    }

    /// The token under which `lockDelay` is over: whoever held before it has been waited for.
    pub fn waited_under(&self, now: BootInstant) -> Option<FencingToken> {
        let (token, since) = self.held_since?;
        let delay = self.policy.lock_delay;
        let is_over = !delay.is_zero() && since + delay <= now;
        // Of a lock that was lost before that, nobody knows since when the next one holds.
        (is_over && self.status.token == Some(token) && self.status.is_held(now)).then_some(token)
    }

    /// With `lockDelay`, and a predecessor that did not say that it was gone.
    fn delayed_until(&self) -> Option<BootInstant> {
        let (_, since) = self.held_since?;
        let is_waiting =
            self.status.predecessor_unclean && matches!(self.app, App::Idle | App::Paused { .. });
        is_waiting.then(|| since + self.policy.lock_delay)
    }
}

/// For a release on the way out.
pub(super) fn patience_for_release(policy: &Policy) -> Duration {
    PATIENCE_FOR_RELEASE.min(policy.session_timeout / 3)
}

/// When the guard begins to stop what runs under `grant`: the file has to be gone by then.
fn lease_file_until(grant: Grant) -> BootInstant {
    if grant.pause { grant.kill_at } else { grant.term_at }
}
