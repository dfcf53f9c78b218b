//! One keeper process: the real task of the lock and the real decider, in the loop of
//! `sidecar/src/keeper/keeping.rs`, on the simulated ensemble and socket.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use lockkeeper_fake::{Client, Freezable, SkewedClock};
use lockkeeper_lock::{BootInstant, Clock, Lock, LockError, LockOptions, LockState, LockView, Ticket};
use lockkeeper_sidecar::link::protocol::ToGuard;
use lockkeeper_sidecar::simulation::{Act, Ask, Decider, Ending, Kind, Policy};
use tokio::task::JoinHandle;

use crate::guards::{Guards, Heard};
use crate::machine::{Machine, Wish};
use crate::maybe::maybe;
use crate::simulation::Simulation;

/// As in `sidecar/src/keeper/keeping.rs`.
const PATIENCE_FOR_CLOSE: Duration = Duration::from_secs(1);

/// As in `sidecar/src/keeper/leftovers.rs`.
const PAUSE_BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// A task of a process: it ends with the process.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The lock of a keeper, and its task.
struct Held {
    lock: Rc<Lock<SkewedClock>>,
    task: Task,
}

type Asking = Pin<Box<dyn Future<Output = Result<(), LockError>>>>;

pub(crate) struct Keeper {
    machine: Rc<Machine>,
    policy: Policy,
    decider: Decider,
    held: Option<Held>,
    view: LockView<SkewedClock>,
    asking: Option<Asking>,
    guards: Guards,
}

fn new_lock(machine: &Machine, ticket: Option<Ticket>) -> Held {
    let options = LockOptions {
        gives_ticket: true,
        ticket,
        ..machine.options.clone()
    };
    let client = machine.simulation.world.client(machine.name.clone());
    let freezable = Freezable::new(client.clone());
    let (lock, task) = Lock::with_task::<Client>(client, machine.clock.clone(), options);
    Held {
        lock: Rc::new(lock),
        task: Task(tokio::task::spawn_local(freezable.run(task))),
    }
}

/// Renewed grants are too many, and the names in tickets differ each time.
fn is_worth_a_line(act: &Act) -> bool {
    match act {
        Act::Tell(ToGuard::Grant(grant)) => grant.start,
        Act::Tell(ToGuard::Keep(_)) | Act::Resume(_) => false,
        _ => true,
    }
}

impl Keeper {
    pub(crate) fn new(machine: &Rc<Machine>, guards: Guards) -> Self {
        let held = new_lock(machine, None);
        Self {
            machine: Rc::clone(machine),
            policy: machine.policy,
            decider: Decider::new(machine.policy, machine.clock.now()),
            view: held.lock.view(),
            held: Some(held),
            asking: None,
            guards,
        }
    }

    fn now(&self) -> BootInstant {
        self.machine.clock.now()
    }

    fn simulation(&self) -> &Simulation {
        &self.machine.simulation
    }

    /// Runs to the keeper's end.
    pub(crate) async fn run(mut self) {
        loop {
            let now = self.now();
            if let (Some(held), Some(token)) = (&self.held, self.decider.waited_under(now)) {
                held.lock.settle(token);
            }
            for act in self.decider.decide(now) {
                if is_worth_a_line(&act) {
                    self.simulation()
                        .say(|| format!("pod {}: keeper: {act:?}", self.machine.number));
                }
                if let Act::End(ending) = act {
                    return self.end(ending).await;
                }
                self.act(act);
            }
            if let Some(held) = &self.held {
                held.lock.retain(self.decider.keeps_the_contender());
            }
            let wake = self
                .decider
                .wake_at(now)
                .map(|moment| self.machine.clock.sleep(moment - now));
            tokio::select! {
                biased;
                status = self.view.changed() => {
                    let Ok(status) = status else { return };
                    self.simulation().say(|| format!(
                        "pod {}: lock is {}, lease {:?}", self.machine.number, status.state.name(), status.lease_end
                    ));
                    self.decider.lock_changed(status, self.machine.clock.now());
                }
                heard = self.guards.hear() => match heard {
                    Heard::Frame(frame) => self.decider.guard_said(frame, self.machine.clock.now()),
                    Heard::Lost { .. } if self.policy.kind != Kind::Wrap => return self.orphaned().await,
                    Heard::Lost { is_watched } => self.decider.guard_lost(is_watched),
                    Heard::Ended { is_proof } => self.decider.guard_ended(is_proof),
                    Heard::Succeeded => self.decider.guard_succeeded(),
                },
                answer = maybe(self.asking.as_mut()) => self.answered(answer),
                wish = self.machine.wishes.next() => match wish {
                    Wish::StepDown => drop(self.decider.step_down_wanted()),
                    Wish::End => self.decider.end_wanted(0),
                },
                () = maybe(wake) => {}
            }
        }
    }

    fn answered(&mut self, answer: Result<(), LockError>) {
        self.asking = None;
        let is_refused = matches!(answer, Err(LockError::Refused { .. } | LockError::Timing { .. }));
        let (status, now) = (self.view.status(), self.now());
        self.decider.lock_answered(status, !is_refused, now);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Tell(frame) => self.guards.tell(frame),
            Act::Ask(ask) => self.ask(ask),
            Act::Abandon => self.replace(None),
            Act::Resume(ticket) => {
                let (number, token) = (self.machine.number, ticket.token);
                self.simulation()
                    .say(|| format!("pod {number}: keeper goes on with {token}"));
                self.replace(Some(ticket));
                self.ask(Ask::Contend);
                self.simulation().resumed();
            }
            Act::KillGuard => self.machine.kill_guards(),
            Act::WriteLease(token) => self.machine.lease.set(Some(token)),
            Act::RemoveLease => self.machine.lease.set(None),
            Act::AnswerStepDown | Act::End(_) => {}
        }
    }

    fn replace(&mut self, ticket: Option<Ticket>) {
        self.asking = None;
        let held = new_lock(&self.machine, ticket);
        self.view = held.lock.view();
        self.held = Some(held);
    }

    fn ask(&mut self, ask: Ask) {
        let Some(lock) = self.held.as_ref().map(|held| Rc::clone(&held.lock)) else {
            return;
        };
        self.asking = Some(match ask {
            Ask::Contend => Box::pin(async move { lock.contend().await }),
            Ask::Release => Box::pin(async move { lock.release().await }),
        });
    }

    /// The guard was killed. The keeper stops its remaining processes, and keeps the lock until they have
    /// ended. With an anchor their end is proven, so the keeper releases the lock.
    async fn orphaned(mut self) {
        self.machine.lease.set(None);
        self.asking = None;
        if self.policy.kind == Kind::Signal {
            self.held = None;
        }
        if let Some(held) = &self.held {
            held.lock.retain(true);
        }
        while !self.machine.kill_leftovers() {
            self.machine.clock.sleep(PAUSE_BETWEEN_LOOKS).await;
        }
        self.close().await;
    }

    /// Releases the lock, if it is not released yet, and ends the session.
    async fn close(&mut self) {
        if let Some(Held { lock, task: _task }) = self.held.take() {
            // The task ends when its lock is closed, or at the end of our patience.
            if let Some(lock) = Rc::into_inner(lock) {
                let _ = tokio::time::timeout(PATIENCE_FOR_CLOSE, lock.close()).await;
            }
        }
    }

    /// Ends, and ends the session too if that is possible at once.
    async fn end(mut self, ending: Ending) {
        self.asking = None;
        let is_out = self.view.status().state == LockState::Released;
        if is_out {
            self.close().await;
        }
        if let Guards::Parent(Some(_)) = &self.guards {
            let code = match ending {
                Ending::Code(code) => code,
                Ending::NotAcquired | Ending::Refused => UNAVAILABLE,
            };
            self.guards.tell(ToGuard::Finish { code });
        }
    }
}

/// `EX_UNAVAILABLE`.
const UNAVAILABLE: u8 = 69;
