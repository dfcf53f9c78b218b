//! One process that wants the lock. It has a keeper, which can be frozen and killed, and a guard, which cannot. The guard
//! stops the application at the last deadline that it received, and keeps the ticket for the next keeper.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper_fake::{Client, Freezable, SkewedClock, World};
use lockkeeper_lock::{BootInstant, Clock, FencingToken, Lock, LockError, LockOptions, Ticket};
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
    /// How often a keeper went on with what the one before it had left.
    pub resumed: usize,
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

pub struct Process {
    pub name: String,
    number: usize,
    diary: Arc<Mutex<Diary>>,
    client: Client,
    clock: SkewedClock,
    options: LockOptions,
    longest_work: Duration,
    link: Link,
    keeper: Vec<JoinHandle<()>>,
    guard: JoinHandle<()>,
}

/// The keeper's end of the link to the guard.
#[derive(Clone)]
struct Link {
    grants: watch::Sender<Option<Grant>>,
    is_running: watch::Receiver<bool>,
    /// What the guard keeps for the next keeper.
    ticket: Arc<Mutex<Option<Ticket>>>,
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
        let (grants, granted) = watch::channel(None);
        let (running, is_running) = watch::channel(false);
        let link = Link {
            grants,
            is_running,
            ticket: Arc::default(),
        };
        let guard = Guard {
            world: Arc::clone(world),
            process: number,
            is_reader: options.mode == lockkeeper_lock::Mode::Read,
            clock: clock.clone(),
            granted,
            running,
            diary: Arc::clone(diary),
        };
        let mut process = Self {
            name,
            number,
            diary: Arc::clone(diary),
            client,
            clock,
            options,
            longest_work,
            link,
            keeper: Vec::new(),
            guard: tokio::spawn(guard.run()),
        };
        process.start_keeper();
        process
    }

    /// Starts a keeper, which goes on with what the one before it has left, if it has left anything.
    fn start_keeper(&mut self) {
        let ticket = self.link.ticket.lock().unwrap().take();
        let options = LockOptions {
            gives_ticket: true,
            ticket,
            ..self.options.clone()
        };
        let freezable = Freezable::new(self.client.clone());
        let (lock, task) = Lock::with_task::<Client>(self.client.clone(), self.clock.clone(), options);
        let keeper = keep(
            lock,
            self.clock.clone(),
            self.link.clone(),
            ticket.map(|ticket| ticket.token),
            self.longest_work,
            Arc::clone(&self.diary),
        );
        self.keeper = vec![
            tokio::spawn(freezable.run(task)),
            tokio::spawn(freezable.run(keeper)),
        ];
    }

    /// Kills the keeper at once, and starts another one. The guard and the application live.
    pub fn restart_keeper(&mut self) {
        for task in &self.keeper {
            task.abort();
        }
        self.start_keeper();
    }

    /// Kills the process at once, with its application; its session stays.
    pub fn kill(self, now: Duration) {
        for task in self.keeper.iter().chain([&self.guard]) {
            task.abort();
        }
        self.diary.lock().unwrap().end(self.number, now);
    }
}

fn within(longest: Duration) -> Duration {
    longest.mul_f64(fastrand::f64())
}

/// Acquires, lets the guard run the application, releases, and repeats. Begins with the lock of this token, if the keeper
/// before it has left that.
async fn keep(
    lock: Lock<SkewedClock>,
    clock: SkewedClock,
    link: Link,
    mut left: Option<FencingToken>,
    longest_work: Duration,
    diary: Arc<Mutex<Diary>>,
) {
    let Link {
        grants,
        mut is_running,
        ticket,
    } = link;
    if left.is_none() {
        // What a keeper without a ticket has left ends by itself.
        if is_running.wait_for(|is_running| !is_running).await.is_err() {
            return;
        }
    }
    loop {
        match lock.acquire().await {
            Ok(token) => {
                let is_left = left.take();
                // The application that runs was not granted this lock; or it has ended, and is not started again under it.
                let is_usable = is_left.is_none_or(|left| left == token && *is_running.borrow());
                let mut ready = is_usable;
                if is_usable && is_left.is_none() {
                    ready = is_after_the_delay(&lock, &clock, token).await;
                }
                if is_left.is_some() && ready {
                    diary.lock().unwrap().resumed += 1;
                }
                if ready {
                    hold(&lock, &clock, token, &grants, &ticket, within(longest_work)).await;
                }
            }
            Err(LockError::Lost(_)) => left = None,
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
    ticket: &Mutex<Option<Ticket>>,
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
        if status.ticket.is_some() {
            *ticket.lock().unwrap() = status.ticket;
        }
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
