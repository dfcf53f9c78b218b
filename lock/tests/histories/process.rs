//! One process that wants the lock. It has a keeper, which can be frozen, and a guard, which cannot. The guard stops
//! the application at the last deadline that it received.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper_fake::{Client, Freezable, SkewedClock, World};
use lockkeeper_lock::{BootInstant, Clock, FencingToken, Lock, LockError, LockOptions};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::DELAY;
use super::check::Work;

/// The message of a keeper to its guard.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Grant {
    token: FencingToken,
    deadline: BootInstant,
}

/// The runs of all applications, past and present.
#[derive(Default)]
pub struct Diary {
    pub done: Vec<Work>,
    pub running: Vec<Work>,
    /// Permanent refusals by the ensemble.
    pub refused: Vec<LockError>,
}

impl Diary {
    fn begin(&mut self, work: Work) {
        self.running.push(work);
    }

    /// Records that the application of `process` has ended, if it ran.
    pub fn end(&mut self, process: usize, now: Duration) {
        while let Some(at) = self.running.iter().position(|work| work.process == process) {
            let mut work = self.running.remove(at);
            work.end = now;
            self.done.push(work);
        }
    }
}

/// A running process.
pub struct Process {
    pub name: String,
    number: usize,
    diary: Arc<Mutex<Diary>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts a keeper and a guard. `clock` is the clock of the machine.
    pub fn start(
        world: &Arc<World>,
        number: usize,
        name: String,
        clock: SkewedClock,
        options: LockOptions,
        longest_work: Duration,
        diary: &Arc<Mutex<Diary>>,
    ) -> Self {
        let client = world.client(name.clone());
        let freezable = Freezable::new(client.clone());
        let (lock, task) = Lock::with_task::<Client>(client, clock.clone(), options.clone());
        let (grants, granted) = watch::channel(None);
        let (running, is_running) = watch::channel(false);
        let keeper = keep(
            lock,
            clock.clone(),
            grants,
            is_running,
            longest_work,
            Arc::clone(diary),
        );
        let guard = Guard {
            world: Arc::clone(world),
            process: number,
            is_reader: options.mode == lockkeeper_lock::Mode::Read,
            clock,
            granted,
            running,
            diary: Arc::clone(diary),
        };
        Self {
            name,
            number,
            diary: Arc::clone(diary),
            tasks: vec![
                tokio::spawn(freezable.run(task)),
                tokio::spawn(freezable.run(keeper)),
                tokio::spawn(guard.run()),
            ],
        }
    }

    /// Kills the process at once, with its application; its session stays.
    pub fn kill(self, now: Duration) {
        for task in &self.tasks {
            task.abort();
        }
        self.diary.lock().unwrap().end(self.number, now);
    }
}

fn within(longest: Duration) -> Duration {
    longest.mul_f64(fastrand::f64())
}

/// Acquires, lets the guard run the application, releases, and repeats.
async fn keep(
    lock: Lock<SkewedClock>,
    clock: SkewedClock,
    grants: watch::Sender<Option<Grant>>,
    mut is_running: watch::Receiver<bool>,
    longest_work: Duration,
    diary: Arc<Mutex<Diary>>,
) {
    loop {
        match lock.acquire().await {
            Ok(token) => {
                if is_after_the_delay(&lock, &clock, token).await {
                    hold(&lock, &clock, token, &grants, within(longest_work)).await;
                }
            }
            Err(LockError::Lost(_)) => {}
            Err(error) => return diary.lock().unwrap().refused.push(error),
        }
        grants.send_replace(None);
        // Release only after the guard has reported that nothing runs.
        if is_running.wait_for(|is_running| !is_running).await.is_err() {
            return;
        }
        let left = match fastrand::bool() {
            true => lock.release().await,
            false => lock.step_down().await,
        };
        if let Err(error) = left {
            return diary.lock().unwrap().refused.push(error);
        }
        clock.sleep(within(longest_work / 10)).await;
    }
}

/// Waits if a former holder may still be writing, unless another client wants the lock meanwhile.
async fn is_after_the_delay(lock: &Lock<SkewedClock>, clock: &SkewedClock, token: FencingToken) -> bool {
    let mut view = lock.view();
    if !view.status().predecessor_unclean {
        return true;
    }
    let wait = if fastrand::bool() { DELAY } else { within(DELAY) };
    let over = clock.sleep(wait);
    tokio::pin!(over);
    loop {
        tokio::select! {
            biased;
            () = &mut over => break,
            changed = view.changed() => {
                let is_gone = !changed.is_ok_and(|status| status.token == Some(token) && view.is_held());
                if is_gone {
                    return false;
                }
            }
        }
    }
    if wait == DELAY {
        lock.settle(token);
    }
    wait == DELAY
}

async fn hold(
    lock: &Lock<SkewedClock>,
    clock: &SkewedClock,
    token: FencingToken,
    grants: &watch::Sender<Option<Grant>>,
    work: Duration,
) {
    let mut view = lock.view();
    let done = clock.sleep(work);
    tokio::pin!(done);
    loop {
        let status = view.status();
        let Some(deadline) = status
            .deadline()
            .filter(|_| status.is_held(clock.now()) && status.token == Some(token))
        else {
            return;
        };
        grants.send_replace(Some(Grant { token, deadline }));
        tokio::select! {
            biased;
            () = &mut done => return,
            changed = view.changed() => if changed.is_err() { return },
        }
    }
}

struct Guard {
    world: Arc<World>,
    process: usize,
    is_reader: bool,
    clock: SkewedClock,
    granted: watch::Receiver<Option<Grant>>,
    running: watch::Sender<bool>,
    diary: Arc<Mutex<Diary>>,
}

impl Guard {
    async fn run(mut self) {
        let mut last = None;
        while self.granted.changed().await.is_ok() {
            let Some(grant) = *self.granted.borrow_and_update() else {
                continue;
            };
            // Once stopped, it does not start again under the same token.
            if last == Some(grant.token) || self.clock.now() >= grant.deadline {
                continue;
            }
            last = Some(grant.token);
            self.running.send_replace(true);
            self.diary.lock().unwrap().begin(Work {
                process: self.process,
                is_reader: self.is_reader,
                token: grant.token,
                start: self.world.now(),
                end: Duration::MAX,
            });
            self.watch(grant).await;
            self.diary.lock().unwrap().end(self.process, self.world.now());
            self.running.send_replace(false);
        }
    }

    /// Returns when the application has to have ended.
    async fn watch(&mut self, grant: Grant) {
        let mut deadline = grant.deadline;
        loop {
            let remaining = deadline - self.clock.now();
            if remaining.is_zero() {
                return;
            }
            tokio::select! {
                biased;
                () = self.clock.sleep(remaining) => return,
                changed = self.granted.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    match *self.granted.borrow_and_update() {
                        Some(new) if new.token == grant.token => deadline = new.deadline,
                        _ => return,
                    }
                }
            }
        }
    }
}
