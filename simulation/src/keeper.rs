//! One keeper process: the real task of the lock and the real decider, in the loop of
//! `sidecar/src/keeper.rs`, on the simulated ensemble and socket.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use lockkeeper_lock::fake::{Client, Freezable, SkewedClock};
use lockkeeper_lock::{BootInstant, Clock, Lock, LockError, LockOptions, LockState, LockView};
use lockkeeper_sidecar::guard::protocol::ToGuard;
use lockkeeper_sidecar::simulation::{Act, Ask, Decider, Ending, Kind, Policy};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::guard::maybe;
use crate::guards::{Guards, Heard};
use crate::pod::Pod;
use crate::stage::Stage;

/// As in `sidecar/src/keeper.rs`.
const PATIENCE_FOR_CLOSE: Duration = Duration::from_secs(1);

/// As in `sidecar/src/keeper/leftovers.rs`.
const PAUSE_BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// What others ask of a keeper.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    StepDown,
    /// SIGTERM.
    End,
}

/// Wishes that wait.
#[derive(Default)]
pub(crate) struct Wishes {
    queue: RefCell<VecDeque<Wish>>,
    news: Notify,
}

impl Wishes {
    pub(crate) fn push(&self, wish: Wish) {
        self.queue.borrow_mut().push_back(wish);
        self.news.notify_one();
    }

    async fn next(&self) -> Wish {
        loop {
            let wish = self.queue.borrow_mut().pop_front();
            match wish {
                Some(wish) => return wish,
                None => self.news.notified().await,
            }
        }
    }
}

/// A task of a process, which goes with it.
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
    pod: Rc<Pod>,
    policy: Policy,
    decider: Decider,
    held: Option<Held>,
    view: LockView<SkewedClock>,
    asking: Option<Asking>,
    guards: Guards,
}

fn new_lock(pod: &Pod) -> Held {
    let options: LockOptions = pod.options.clone();
    let client = pod.stage.world.client(pod.name.clone());
    let freezable = Freezable::new(client.clone());
    let (lock, task) = Lock::with_task::<Client>(client, pod.clock.clone(), options);
    Held {
        lock: Rc::new(lock),
        task: Task(tokio::task::spawn_local(freezable.run(task))),
    }
}

impl Keeper {
    pub(crate) fn new(pod: &Rc<Pod>, guards: Guards) -> Self {
        let held = new_lock(pod);
        Self {
            pod: Rc::clone(pod),
            policy: pod.policy,
            decider: Decider::new(pod.policy, pod.clock.now()),
            view: held.lock.view(),
            held: Some(held),
            asking: None,
            guards,
        }
    }

    fn now(&self) -> BootInstant {
        self.pod.clock.now()
    }

    fn stage(&self) -> &Stage {
        &self.pod.stage
    }

    /// Runs to the keeper's end.
    pub(crate) async fn run(mut self) {
        loop {
            let now = self.now();
            if let (Some(held), Some(token)) = (&self.held, self.decider.waited_under(now)) {
                held.lock.settle(token);
            }
            for act in self.decider.decide(now) {
                if !matches!(act, Act::Tell(ToGuard::Grant(grant)) if !grant.start) {
                    self.stage()
                        .say(|| format!("pod {}: keeper: {act:?}", self.pod.number));
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
                .map(|moment| self.pod.clock.sleep(moment - now));
            tokio::select! {
                biased;
                status = self.view.changed() => {
                    let Ok(status) = status else { return };
                    self.stage().say(|| format!(
                        "pod {}: lock is {}, lease {:?}", self.pod.number, status.state.name(), status.lease_end
                    ));
                    self.decider.lock_changed(status, self.pod.clock.now());
                }
                heard = self.guards.hear() => match heard {
                    Heard::Frame(frame) => self.decider.guard_said(frame, self.pod.clock.now()),
                    Heard::Lost { .. } if self.policy.kind != Kind::Wrap => return self.orphaned().await,
                    Heard::Lost { is_watched } => self.decider.guard_lost(is_watched),
                    Heard::Ended { is_proof } => self.decider.guard_ended(is_proof),
                    Heard::Succeeded => self.decider.guard_succeeded(),
                },
                answer = maybe(self.asking.as_mut()) => self.answered(answer),
                wish = self.pod.wishes.next() => match wish {
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
            Act::Abandon => {
                self.asking = None;
                let held = new_lock(&self.pod);
                self.view = held.lock.view();
                self.held = Some(held);
            }
            Act::KillGuard => self.pod.kill_guards(),
            Act::WriteLease(token) => self.pod.lease.set(Some(token)),
            Act::RemoveLease => self.pod.lease.set(None),
            Act::AnswerStepDown | Act::End(_) => {}
        }
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

    /// The guard was killed: what it left is stopped, and the lock is kept until that has ended. Of what was below an
    /// anchor the end is proven, and the lock is released.
    async fn orphaned(mut self) {
        self.pod.lease.set(None);
        self.asking = None;
        if self.policy.kind == Kind::Signal {
            self.held = None;
        }
        if let Some(held) = &self.held {
            held.lock.retain(true);
        }
        while !self.pod.kill_leftovers() {
            self.pod.clock.sleep(PAUSE_BETWEEN_LOOKS).await;
        }
        self.close().await;
    }

    /// Releases the lock, if it is not yet, and ends the session.
    async fn close(&mut self) {
        if let Some(Held { lock, task: _task }) = self.held.take() {
            // The task goes when its lock is closed, or at the end of our patience.
            if let Some(lock) = Rc::into_inner(lock) {
                let _ = tokio::time::timeout(PATIENCE_FOR_CLOSE, lock.close()).await;
            }
        }
    }

    /// Ends: with the session, if that can be ended at once.
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
