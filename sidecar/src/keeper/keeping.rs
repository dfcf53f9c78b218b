//! The main loop of the keeper: it passes events to the decider, and carries out its actions.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use lockkeeper_daemon::exit::{self, Exit, Failure};
use lockkeeper_lock::{BootClock, BootInstant, Clock, LockError, LockState, LockStatus};
use tokio::sync::{mpsc, oneshot};

use super::contender::Contender;
use super::decider::{Act, Decider, Ending};
use super::leftovers::Leftovers;
use super::observer::Observer;
use super::policy::{Kind, Policy};
use super::shown::{Probed, Shown};
use super::signals::Terminations;
use crate::lease_env::LeaseEnv;
use crate::link::keeper_end::{Heard, KeeperEnd};
use crate::link::protocol::FromGuard;
use crate::socket::Command;

/// How long the session may take to end at the end of the keeper, when the contender is gone already.
const PATIENCE_FOR_CLOSE: Duration = Duration::from_secs(1);

/// By what a keeper starts and stops the application.
pub(super) struct Reins<'a> {
    pub(super) guards: &'a mut KeeperEnd,
    pub(super) lease: Option<LeaseEnv>,
    pub(super) leftovers: Leftovers,
}

/// Where a keeper says how things are.
pub(super) struct Outlets {
    pub(super) shown: Shown,
    pub(super) probed: Probed,
    pub(super) metrics: Observer,
}

/// Ends when a server has a longer tick than stated, with the sentence about it.
type LookingAtTicks = Pin<Box<dyn Future<Output = Failure>>>;

pub(super) struct Keeper<'a> {
    decider: Decider,
    policy: Policy,
    contender: Contender,
    reins: Reins<'a>,
    outlets: Outlets,
    /// Whether another contender was seen before ours in the queue.
    has_seen_others: bool,
    /// Where the answers to requests to step down go.
    step_downs: Vec<oneshot::Sender<Result<(), String>>>,
    looking_at_ticks: Option<LookingAtTicks>,
    refusal: Option<Failure>,
}

impl<'a> Keeper<'a> {
    /// A keeper that has begun at this moment.
    pub(super) fn new(
        policy: Policy,
        began: BootInstant,
        contender: Contender,
        reins: Reins<'a>,
        outlets: Outlets,
        looking_at_ticks: impl Future<Output = Failure> + 'static,
    ) -> Self {
        Self {
            decider: Decider::new(policy, began),
            policy,
            contender,
            reins,
            outlets,
            has_seen_others: false,
            step_downs: Vec::new(),
            looking_at_ticks: Some(Box::pin(looking_at_ticks)),
            refusal: None,
        }
    }

    /// Keeps the lock until the decider wants to end, and gives the exit code.
    pub(super) async fn keep(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut terminations: Terminations,
    ) -> Result<u8, Failure> {
        loop {
            let now = BootInstant::now();
            // Before a release, after which the wait does not matter any more.
            if let Some(token) = self.decider.waited_under(now) {
                self.contender.settle(token);
            }
            for act in self.decider.decide(now) {
                if let Act::End(ending) = act {
                    return self.end(ending).await;
                }
                self.act(act).await?;
            }
            self.outlets.probed.publish(self.decider.running());
            self.show();
            // The place in the queue is kept while something may be left of the application.
            self.contender.retain(self.decider.keeps_the_contender());
            let (survivors, is_seen) = (self.decider.survivors(now), self.decider.has_survivors(now));
            self.outlets.shown.survivors(survivors, is_seen);
            // Others hear of what was seen. A guard that has only not looked yet is nobody's alarm.
            self.contender.survived(survivors.filter(|_| is_seen));
            let wake = self
                .decider
                .wake_at(now)
                .map(|moment| BootClock.sleep(moment - now));
            let (view, asking) = self.contender.news();
            tokio::select! {
                biased;
                status = view.changed() => match status {
                    Ok(status) => self.lock_changed(status),
                    Err(_) => return Err(Failure::software("the task that keeps the lock has ended")),
                },
                heard = self.reins.guards.hear() => match heard {
                    Heard::Frame(frame) => self.guard_said(frame),
                    Heard::Lost { is_watched } => {
                        if self.policy.kind != Kind::Wrap {
                            return self.orphaned(&mut commands).await;
                        }
                        self.decider.guard_lost(is_watched);
                    }
                    Heard::Ended { is_proof } => self.decider.guard_ended(is_proof),
                    Heard::Succeeded => self.decider.guard_succeeded(),
                },
                answer = ask(asking) => self.answered(answer),
                sent = ask(self.outlets.probed.hook()) => {
                    if self.outlets.probed.hook_sent(sent) {
                        self.decider.post_start_failed();
                    }
                }
                failure = ask(&mut self.looking_at_ticks) => {
                    self.looking_at_ticks = None;
                    self.decider.refused();
                    self.refusal = Some(failure);
                }
                () = terminations.next() => self.decider.end_wanted(0),
                Some(command) = commands.recv() => self.obey(command),
                () = async { match wake { Some(wake) => wake.await, None => std::future::pending().await } } => {}
            }
        }
    }

    /// Clients of the socket see a lock that was left to us as one that is in doubt.
    fn show(&self) {
        if let Some(left) = self.decider.left() {
            self.contender.publish_left(left);
        }
    }

    fn guard_said(&mut self, frame: FromGuard) {
        tracing::debug!(?frame, "Guard said");
        self.outlets.metrics.guard_said(&frame);
        if let FromGuard::Hello(hello) = frame {
            self.outlets.shown.contained(hello.containment);
        }
        if let Some(guard) = self.reins.guards.parent_pid() {
            self.reins
                .leftovers
                .heard(&frame, guard, || self.reins.guards.has_parent());
        }
        self.decider.guard_said(frame, BootInstant::now());
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::StepDown(reply) => {
                if self.decider.step_down_wanted() {
                    self.step_downs.push(reply);
                } else {
                    let _ = reply.send(Err("the lock is not in the queue".to_owned()));
                }
            }
            Command::AbandonSurvivors(reply) => {
                let noted = self.decider.give_up_survivors(BootInstant::now());
                if noted.is_ok() {
                    tracing::warn!(
                        "A user gives up what has outlived its deadline; the lock is left to expire"
                    );
                }
                let _ = reply.send(noted);
            }
            Command::Terminating(reply) => {
                let noted = self.decider.pod_ends(BootInstant::now());
                if noted.is_ok() {
                    tracing::info!("The pod is ending; nothing is started any more");
                }
                let _ = reply.send(noted);
            }
        }
    }

    fn lock_changed(&mut self, status: LockStatus) {
        self.outlets.metrics.lock_changed(&status);
        if self.decider.left().is_none() {
            self.contender.publish(&status);
        }
        self.has_seen_others |= status.position.is_some_and(|position| position > 0);
        // While we are connecting or waiting, the problem may pass.
        let may_pass = matches!(status.state, LockState::Connecting | LockState::Waiting);
        if !may_pass && let Some(refusal) = &status.refusal {
            self.ensemble_refuses(refusal.to_string());
        }
        self.decider.lock_changed(status, BootInstant::now());
    }

    fn answered(&mut self, answer: Result<(), LockError>) {
        let status = self.contender.answered();
        // If the lock was lost or left meanwhile, this is no refusal: the state determines what to do.
        let is_refused = matches!(
            answer,
            Err(LockError::Refused { .. }
                | LockError::Timing { .. }
                | LockError::OutOfNumbers { .. }
                | LockError::NotAgreed { .. })
        );
        if let (true, Err(error)) = (is_refused, answer) {
            self.ensemble_refuses(error.to_string());
        }
        self.decider
            .lock_answered(status, !is_refused, BootInstant::now());
    }

    /// A refusal because of the ticks stands: the ensemble does not know of it.
    fn ensemble_refuses(&mut self, sentence: String) {
        if self.looking_at_ticks.is_some() {
            self.refusal = Some(Failure::new(Exit::Refused, sentence));
        }
    }

    async fn act(&mut self, act: Act) -> Result<(), Failure> {
        match act {
            Act::Tell(frame) => {
                tracing::debug!(?frame, "Guard told");
                self.outlets.metrics.guard_told(&frame);
                self.reins.leftovers.told(&frame);
                self.reins.guards.tell(frame);
            }
            Act::WriteLease(token) => {
                if let Some(lease) = &self.reins.lease {
                    lease.write(token)?;
                }
            }
            Act::RemoveLease => {
                if let Some(lease) = &self.reins.lease {
                    lease.remove()?;
                }
            }
            Act::Ask(ask) => self.contender.ask(ask),
            Act::Resume(ticket) => self.contender.resume(ticket)?,
            Act::Abandon => {
                self.outlets.metrics.abandoned();
                self.contender.abandon()?;
                for reply in self.step_downs.drain(..) {
                    let unsure = "there is no proof that the application is gone; the lock is left to expire";
                    let _ = reply.send(Err(unsure.to_owned()));
                }
            }
            Act::KillGuard => {
                self.reins.leftovers.kill_container().await;
                self.reins.guards.kill();
                self.reins.leftovers.kill_run();
                tracing::error!("The guard has not stopped the application by its deadline; it was killed");
            }
            Act::AnswerStepDown => {
                for reply in self.step_downs.drain(..) {
                    let _ = reply.send(Ok(()));
                }
            }
            Act::End(_) => unreachable!("taken by the loop"),
        }
        Ok(())
    }

    /// The guard was killed. Its leftovers are stopped before another contender gets the lock.
    async fn orphaned(self, commands: &mut mpsc::Receiver<Command>) -> Result<u8, Failure> {
        // First, even if anything else fails: our own end may be near, too.
        let removed = self.reins.lease.as_ref().map_or(Ok(()), LeaseEnv::remove);
        self.reins
            .leftovers
            .stop(
                self.contender,
                &self.outlets.shown,
                &self.outlets.metrics,
                &self.policy,
                commands,
            )
            .await;
        removed?;
        Ok(match self.policy.kind {
            Kind::Signal => Exit::GateAnew.code(),
            _ => self.policy.loss_code,
        })
    }

    /// Ends the keeper, and the session if that is possible at once.
    async fn end(self, ending: Ending) -> Result<u8, Failure> {
        let lock = self.contender.path().to_owned();
        if self.contender.is_out() && !self.contender.close(PATIENCE_FOR_CLOSE).await {
            tracing::debug!("Session not ended; it will expire");
        }
        match ending {
            Ending::Code(code) => Ok(code),
            Ending::NotAcquired if !self.has_seen_others => Err(Failure::unavailable(format!(
                "the lock {lock} was not acquired: the ensemble did not answer in time, so it is not known whether \
                 it is held"
            ))),
            Ending::NotAcquired => {
                let (exit, sentence) = match self.policy.wait_timeout {
                    Some(limit) if !limit.is_zero() => (
                        Exit::TimedOut,
                        format!("the lock {lock} was not acquired within {limit:?}"),
                    ),
                    _ => (
                        Exit::Busy,
                        format!("the lock {lock} is not free, and --wait-timeout says not to wait"),
                    ),
                };
                exit::tell(&sentence);
                Ok(self.policy.conflict_code.unwrap_or(exit.code()))
            }
            Ending::Refused => Err(self.refusal.unwrap_or_else(|| {
                Failure::new(
                    Exit::Refused,
                    format!("the ensemble refuses the lock {lock} permanently; the log says why"),
                )
            })),
        }
    }
}

/// The result of a future, if there is one.
async fn ask<T>(asking: &mut Option<Pin<Box<dyn Future<Output = T>>>>) -> T {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}
