//! What the keeper does and when: a pure state machine, without sockets, tasks or clocks.
//!
//! It is level-triggered: events change what is known, [`Decider::decide`] looks at all of it and
//! says what to do now. The rules, in the order of their weight:
//! * the lock is given up only when the guard has said that nothing of the application is left (or
//!   that all of it is stopped, with `onLoss: Pause`);
//! * the application gets a grant only for a lock that is held now, and never a longer one than the
//!   lease less the margin.

use std::time::Duration;

use lockkeeper_lock::{BootInstant, FencingToken, LockState, LockStatus, LossReason};

use super::policy::{Kind, Policy};
use crate::args::{OnExit, OnLoss, OnSuspect, Restart};
use crate::exit::Exit;
use crate::guard::protocol::{FromGuard, Grant, ToGuard};

/// The shortest pause before an application that exits is started again, doubled at each exit...
const SHORTEST_BACK_OFF: Duration = Duration::from_millis(100);
/// ...up to this, and forgotten when it ran for as long.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(10);

/// Number of SIGHUP, on all Linux.
const SIGHUP: u8 = 1;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Tell the guard.
    Tell(ToGuard),
    /// Write the file with the token.
    WriteLease(FencingToken),
    /// Remove it, before anything is stopped.
    RemoveLease,
    /// Ask the lock for something; [`Decider::lock_answered`] wants to hear of the end.
    Ask(Ask),
    /// Leave the contender to expire, and make a new lock.
    Abandon,
    /// Answer those who asked for a step down.
    AnswerStepDown,
    /// End the keeper, and the guard with the same code.
    End(u8),
}

/// A request to the lock. One at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Contend,
    Release,
    StepDown,
}

/// The application, as the guard tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum App {
    /// No guard, and nothing runs.
    Absent,
    /// Nothing runs.
    Idle,
    /// It was granted a token, and may run.
    Granted { token: FencingToken, is_started: bool },
    /// All of it is stopped by SIGSTOP.
    Paused,
    /// It is being ended: waiting for the guard's word.
    Stopping { token: FencingToken },
    /// The guard's connection is lost, and something ran.
    OutOfSight,
}

/// Why the lock is given up, and what comes then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Queue again as soon as `Decider::contend_at`.
    QueueAgain,
    /// End with this code.
    End(u8),
}

pub(super) struct Decider {
    policy: Policy,
    app: App,
    status: LockStatus,
    /// The request under way.
    asked: Option<Ask>,
    next: Option<Next>,
    /// Somebody wants the lock handed over, and waits for the answer.
    wants_step_down: bool,
    answer_is_due: bool,
    /// Somebody wants us to end; the code if the application has none of its own.
    ending: Option<u8>,
    give_up_at: Option<BootInstant>,
    was_held: bool,
    contend_at: Option<BootInstant>,
    start_at: Option<BootInstant>,
    back_off: Duration,
    started_at: Option<BootInstant>,
    held_since: Option<(FencingToken, BootInstant)>,
    last_grant: Option<Grant>,
    is_suspect: bool,
    has_lease_file: bool,
    ended: bool,
}

impl Decider {
    pub(super) fn new(policy: Policy, now: BootInstant) -> Self {
        Self {
            give_up_at: policy
                .wait_timeout
                .filter(|limit| !limit.is_zero())
                .map(|limit| now + limit),
            policy,
            app: App::Absent,
            status: LockStatus::new(),
            asked: None,
            next: None,
            wants_step_down: false,
            answer_is_due: false,
            ending: None,
            was_held: false,
            contend_at: None,
            start_at: None,
            back_off: SHORTEST_BACK_OFF,
            started_at: None,
            held_since: None,
            last_grant: None,
            is_suspect: false,
            has_lease_file: false,
            ended: false,
        }
    }

    // === what happened ===

    pub(super) fn lock_changed(&mut self, status: LockStatus, now: BootInstant) {
        if let (true, Some(token)) = (status.is_held(now), status.token)
            && self.held_since.is_none_or(|(old, _)| old != token)
        {
            self.held_since = Some((token, now));
            self.was_held = true;
            self.give_up_at = None;
        }
        self.status = status;
    }

    /// A request to the lock has ended; `is_ok` is false when the ensemble refuses for good.
    pub(super) fn lock_answered(&mut self, status: LockStatus, is_ok: bool, now: BootInstant) {
        let asked = self.asked.take();
        self.lock_changed(status, now);
        if !is_ok {
            self.next = Some(Next::End(Exit::Unavailable.code()));
        } else if matches!(asked, Some(Ask::StepDown | Ask::Release)) {
            self.answer_is_due |= std::mem::take(&mut self.wants_step_down);
        }
    }

    pub(super) fn guard_said(&mut self, frame: FromGuard, now: BootInstant) {
        match frame {
            FromGuard::Hello { token: None, .. } => self.app = App::Idle,
            FromGuard::Hello { paused: true, .. } => self.app = App::Paused,
            // Before the deadline it is what `onSuspect` asked for, and the grant goes on.
            FromGuard::Paused { .. } if self.last_grant.is_some_and(|grant| now < grant.kill_at) => {}
            FromGuard::Paused { .. } => self.stopped(App::Paused),
            FromGuard::Hello {
                token: Some(token), ..
            } => {
                self.app = App::Granted {
                    token,
                    is_started: true,
                };
                self.last_grant = None;
            }
            FromGuard::Started { token, .. } => {
                self.started_at = Some(now);
                if let App::Granted {
                    token: granted,
                    is_started,
                } = &mut self.app
                    && *granted == token
                {
                    *is_started = true;
                }
            }
            FromGuard::Exited { code, .. } => self.exited(code, now),
            FromGuard::Gone { .. } => self.stopped(App::Idle),
            FromGuard::StartFailed { errno, .. } => {
                self.app = App::Idle;
                self.next = Some(Next::End(crate::guard::exit_code_of_errno(errno)));
            }
            // It goes on trying, and the lock stays ours until it succeeds.
            FromGuard::Survivors { token } => self.app = App::Stopping { token },
            // SIGHUP means many things to an application that runs.
            FromGuard::Signal { signo: SIGHUP } if matches!(self.app, App::Granted { .. }) => {}
            FromGuard::Signal { signo } => self.ending = Some(128 + signo),
        }
    }

    pub(super) fn guard_lost(&mut self) {
        self.last_grant = None;
        self.is_suspect = false;
        self.app = match self.app {
            App::Absent | App::Idle => App::Absent,
            _ => App::OutOfSight,
        };
    }

    pub(super) fn step_down_wanted(&mut self) -> bool {
        if self.status.state == LockState::Released || self.ending.is_some() {
            return false;
        }
        self.wants_step_down = true;
        true
    }

    /// The process is asked to end.
    pub(super) fn end_wanted(&mut self, code: u8) {
        self.ending = Some(code);
    }

    /// The guard stopped it: as we asked, or at the deadline of the last grant that reached it.
    fn stopped(&mut self, app: App) {
        if matches!(self.app, App::Granted { is_started: true, .. }) && self.next.is_none() {
            self.next = Some(
                self.policy
                    .code_after_a_loss()
                    .map_or(Next::QueueAgain, Next::End),
            );
        }
        self.app = app;
    }

    fn exited(&mut self, code: u8, now: BootInstant) {
        self.app = App::Idle;
        let ran_long = self
            .started_at
            .is_some_and(|started| now.saturating_since(started) >= LONGEST_BACK_OFF);
        if ran_long {
            self.back_off = SHORTEST_BACK_OFF;
        }
        let again_at = now + self.back_off;
        self.back_off = (self.back_off * 2).min(LONGEST_BACK_OFF);
        // A container ends with its application; the kubelet starts it again.
        let ends =
            self.ending.is_some() || self.policy.kind == Kind::Wrap || self.policy.restart == Restart::Never;
        if ends {
            self.next = Some(Next::End(code));
        } else if self.policy.on_exit == OnExit::Hold {
            self.start_at = Some(again_at);
        } else {
            self.contend_at = Some(again_at);
            self.next = Some(Next::QueueAgain);
        }
    }

    // === what to do ===

    /// What to do now. To be called after every event, and at [`Decider::wake_at`].
    pub(super) fn decide(&mut self, now: BootInstant) -> Vec<Act> {
        let mut acts = Vec::new();
        if self.ended {
            return acts;
        }
        if std::mem::take(&mut self.answer_is_due) {
            acts.push(Act::AnswerStepDown);
        }
        self.look_at_the_clock(now);
        match self.app {
            App::Granted { token, is_started } => self.decide_running(token, is_started, now, &mut acts),
            App::Idle | App::Paused => self.decide_starting(now, &mut acts),
            App::Absent | App::Stopping { .. } | App::OutOfSight => {}
        }
        self.decide_lock(now, &mut acts);
        acts
    }

    /// When to look again though nothing has happened.
    pub(super) fn wake_at(&self, now: BootInstant) -> Option<BootInstant> {
        let moments = [
            self.give_up_at,
            self.contend_at,
            self.start_at,
            self.delayed_until(),
        ];
        moments.into_iter().flatten().filter(|moment| *moment > now).min()
    }

    fn look_at_the_clock(&mut self, now: BootInstant) {
        for moment in [&mut self.contend_at, &mut self.start_at] {
            moment.take_if(|moment| *moment <= now);
        }
        let is_over = self.give_up_at.is_some_and(|moment| moment <= now);
        let is_hopeless = self.policy.wait_timeout == Some(Duration::ZERO)
            && !self.was_held
            && self.status.state == LockState::Waiting
            && self.status.position.is_some_and(|position| position > 0);
        if (is_over || is_hopeless) && self.next.is_none() {
            self.give_up_at = None;
            self.next = Some(Next::End(Exit::Unavailable.code()));
        }
    }

    /// The token under which the application may run now, and until when.
    fn held(&self, now: BootInstant) -> Option<(FencingToken, BootInstant)> {
        let deadline = self.status.deadline().filter(|deadline| now < *deadline)?;
        let token = self.status.token.filter(|_| self.status.is_held(now))?;
        Some((token, deadline))
    }

    /// With `lockDelay`, and a predecessor that did not say that it was gone.
    fn delayed_until(&self) -> Option<BootInstant> {
        let (_, since) = self.held_since?;
        let is_waiting = self.status.predecessor_unclean && matches!(self.app, App::Idle | App::Paused);
        is_waiting.then(|| since + self.policy.lock_delay)
    }

    fn wants_to_run(&self) -> bool {
        !self.wants_step_down && !self.status.yield_requested && self.next.is_none()
    }

    fn decide_running(
        &mut self,
        token: FencingToken,
        is_started: bool,
        now: BootInstant,
        acts: &mut Vec<Act>,
    ) {
        let Some((held, deadline)) = self.held(now).filter(|(held, _)| *held == token) else {
            self.remove_lease(acts);
            // At the deadline the guard acts by itself. Everything else it cannot know.
            let is_known_to_the_guard = self
                .status
                .loss
                .is_none_or(|loss| loss == LossReason::DeadlineReached);
            if !is_known_to_the_guard {
                acts.push(Act::Tell(ToGuard::Revoke { token }));
            }
            self.app = App::Stopping { token };
            return;
        };
        let must_stop = !self.wants_to_run() || (self.ending.is_some() && self.policy.kind != Kind::Run);
        if must_stop {
            self.remove_lease(acts);
            let kill_at = deadline.min(now + self.policy.stop_grace);
            acts.push(Act::Tell(ToGuard::Stop { token, kill_at }));
            self.app = App::Stopping { token };
            return;
        }
        self.grant(held, deadline, !is_started, acts);
        let is_suspect =
            self.policy.on_suspect == OnSuspect::Pause && self.status.state == LockState::Suspended;
        if is_suspect != self.is_suspect {
            self.is_suspect = is_suspect;
            acts.push(Act::Tell(if is_suspect {
                ToGuard::Suspect { token }
            } else {
                ToGuard::Confirm { token }
            }));
        }
    }

    fn decide_starting(&mut self, now: BootInstant, acts: &mut Vec<Act>) {
        self.is_suspect = false;
        let may_start = self.wants_to_run()
            && self.ending.is_none()
            && self.start_at.is_none()
            && self.delayed_until().is_none_or(|moment| moment <= now);
        let Some((token, deadline)) = self.held(now).filter(|_| may_start) else {
            self.remove_lease(acts);
            return;
        };
        // Nothing is started that would be stopped at once.
        if deadline.saturating_sub(self.policy.stop_grace) <= now {
            return;
        }
        self.has_lease_file = true;
        acts.push(Act::WriteLease(token));
        self.app = App::Granted {
            token,
            is_started: false,
        };
        self.grant(token, deadline, true, acts);
    }

    fn grant(&mut self, token: FencingToken, kill_at: BootInstant, start: bool, acts: &mut Vec<Act>) {
        let pause = self.policy.on_loss == OnLoss::Pause;
        let term_at = kill_at.saturating_sub(self.policy.stop_grace);
        let grant = Grant {
            token,
            start,
            pause,
            term_at,
            kill_at,
        };
        if self.last_grant.replace(grant) != Some(grant) {
            acts.push(Act::Tell(ToGuard::Grant(grant)));
        }
    }

    fn remove_lease(&mut self, acts: &mut Vec<Act>) {
        if std::mem::take(&mut self.has_lease_file) {
            acts.push(Act::RemoveLease);
        }
        self.last_grant = None;
    }

    fn decide_lock(&mut self, now: BootInstant, acts: &mut Vec<Act>) {
        if self.asked.is_some() {
            return;
        }
        if self.app == App::OutOfSight {
            // The guard's deadline ends with the lease. What it did by then nobody has confirmed.
            if let Some(code) = self.ending {
                self.ended = true;
                acts.push(Act::End(code));
            } else if self.status.state == LockState::Lost {
                acts.push(Act::Abandon);
                self.status = LockStatus::new();
            }
            return;
        }
        if matches!(self.app, App::Granted { .. } | App::Stopping { .. }) {
            return;
        }
        if self.next.is_none()
            && let Some(code) = self.ending
        {
            self.next = Some(Next::End(code));
        }
        if self.next.is_some() && self.holds_over_the_end() && self.status.is_held(now) {
            return self.end_the_container(acts);
        }
        match self.status.state {
            LockState::Released => self.decide_out(acts),
            LockState::Lost => {
                if self.next.is_none() {
                    self.next = self.policy.code_after_a_loss().map(Next::End);
                }
                self.ask(Ask::Release, acts);
            }
            _ if self.next.is_some() => self.ask(Ask::Release, acts),
            _ if self.wants_step_down || self.status.yield_requested => {
                if self.policy.kind == Kind::Signal {
                    self.next = Some(Next::End(Exit::GateAnew.code()));
                    self.ask(Ask::Release, acts);
                } else {
                    self.ask(Ask::StepDown, acts);
                }
            }
            _ => {}
        }
    }

    /// Whether the keeper and its lock outlive the end of the application's container.
    fn holds_over_the_end(&self) -> bool {
        self.policy.kind == Kind::Wrap && self.policy.on_exit == OnExit::Hold && self.ending.is_none()
    }

    /// Only the container ends. Its successor says hello.
    fn end_the_container(&mut self, acts: &mut Vec<Act>) {
        if let Some(Next::End(code)) = self.next.take()
            && self.app != App::Absent
        {
            acts.push(Act::Tell(ToGuard::Finish { code }));
            self.app = App::Absent;
        }
    }

    /// Not in the queue: go into it, or end.
    fn decide_out(&mut self, acts: &mut Vec<Act>) {
        match self.next {
            Some(Next::End(_)) if self.policy.kind == Kind::Wrap && self.ending.is_none() => {
                self.end_the_container(acts);
            }
            Some(Next::End(code)) => {
                self.ended = true;
                acts.push(Act::End(code));
            }
            Some(Next::QueueAgain) | None => {
                self.next = None;
                let has_somebody_to_run = self.app != App::Absent || self.policy.kind == Kind::Signal;
                if has_somebody_to_run && self.contend_at.is_none() {
                    self.ask(Ask::Contend, acts);
                }
            }
        }
    }

    fn ask(&mut self, ask: Ask, acts: &mut Vec<Act>) {
        self.asked = Some(ask);
        acts.push(Act::Ask(ask));
    }
}
