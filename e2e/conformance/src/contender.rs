//! One process that contends for a lock: the real task, an application that runs while it may, and what happens to it.

use std::time::Duration;

use fastrand::Rng;
use lockkeeper_lock::zookeeper::ZooKeeper;
use lockkeeper_lock::{BootClock, BootInstant, Clock, Lock, LockOptions, LockState, LockStatus, LockView};
use tokio::task::AbortHandle;

use crate::freeze::Freezer;
use crate::record::{Pen, What, micros};
use crate::recording::{AnswerLoser, Recording};
use crate::times;

/// What happens to a process, and its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Frozen(Duration),
    /// The answer to a write gets lost, and its connection.
    AnswerLost,
    /// The application stops, and the lock is released; after this time the process queues again.
    Releases(Duration),
    /// The task ends without a release; after this time the process starts anew.
    Crashes(Duration),
}

impl Fate {
    /// One of them. Most are about a silence of about L.
    pub(crate) fn any(random: &mut Rng) -> Self {
        let mut within = |least: f64, most: f64| times::LEASE.mul_f64(least + (most - least) * random.f64());
        let (short, long, back) = (within(0.02, 0.7), within(0.9, 3.0), within(0.0, 1.5));
        match random.u8(..10) {
            0..=1 => Self::Frozen(short),
            2..=4 => Self::Frozen(long),
            5 => Self::AnswerLost,
            6..=7 => Self::Releases(back),
            _ => Self::Crashes(back),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub connect: String,
    pub root: String,
    /// Writes its part of the record.
    pub pen: Pen,
    pub end: BootInstant,
    /// When it begins to contend, and what happens to it when.
    pub begin: BootInstant,
    /// In the order of time.
    pub fates: Vec<(BootInstant, Fate)>,
}

/// A running task, and the handle to it.
struct Process {
    lock: Lock<BootClock>,
    view: LockView<BootClock>,
    task: AbortHandle,
    freezer: Freezer,
    loser: AnswerLoser,
}

impl Process {
    fn start(options: &Options) -> anyhow::Result<Self> {
        let servers = ZooKeeper::new(options.connect.parse()?, times::SESSION_TIMEOUT);
        let (ensemble, loser) = Recording::new(servers, &options.root, options.pen.clone());
        let (lock, task) = Lock::with_task(
            ensemble,
            BootClock,
            LockOptions::new(&options.root, times::timing()),
        );
        let freezer = Freezer::default();
        let task = tokio::spawn({
            let freezer = freezer.clone();
            async move { freezer.run(task).await }
        });
        let task = task.abort_handle();
        let view = lock.view();
        Ok(Self {
            lock,
            view,
            task,
            freezer,
            loser,
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An application under the lock. As a guard does, it takes each grant of the task, and runs on until the last one is
/// over, whatever becomes of the task.
struct Application<'a> {
    pen: &'a Pen,
    running: Option<String>,
}

impl Application<'_> {
    /// The task has published a status.
    fn follow(&mut self, status: &LockStatus) {
        let is_held = status.is_held(BootInstant::now());
        match (&status.contender, status.deadline()) {
            (Some(name), Some(deadline)) if is_held => {
                self.pen.write(What::Granted(name.clone(), micros(deadline)));
                self.running = Some(name.clone());
            }
            _ => self.stop(),
        }
    }

    fn stop(&mut self) {
        if let Some(name) = self.running.take() {
            self.pen.write(What::Stopped(name));
        }
    }
}

async fn sleep_until(moment: BootInstant) {
    BootClock.sleep(moment - BootInstant::now()).await;
}

/// Lives until the end. Its task is left as it is then, without a release.
///
/// # Errors
/// When the lock refuses its times or its nodes.
pub(crate) async fn live(mut options: Options) -> anyhow::Result<()> {
    sleep_until(options.begin).await;
    let pen = options.pen.clone();
    let mut fates = std::mem::take(&mut options.fates).into_iter().peekable();
    'lives: loop {
        let mut process = Process::start(&options)?;
        let mut application = Application {
            pen: &pen,
            running: None,
        };
        loop {
            let state = process.lock.status().state;
            if matches!(state, LockState::Released | LockState::Lost) {
                // What was lost is released first, since the application has ended; both wait while the task is frozen.
                application.stop();
                if state == LockState::Lost {
                    pen.write(What::Lost);
                }
                tokio::select! {
                    released = process.lock.release() => released?,
                    () = sleep_until(options.end) => return Ok(()),
                }
                tokio::select! {
                    queued = process.lock.contend() => queued?,
                    () = sleep_until(options.end) => return Ok(()),
                }
            }
            let next = fates.peek().map_or(options.end, |(at, _)| *at).min(options.end);
            tokio::select! {
                biased;
                status = process.view.changed() => application.follow(&status?),
                () = sleep_until(next) => match fates.next() {
                    None => return Ok(()),
                    Some((_, Fate::Frozen(time))) => process.freezer.freeze(BootInstant::now() + time),
                    Some((_, Fate::AnswerLost)) => process.loser.lose_one(),
                    Some((_, Fate::Releases(pause))) => {
                        application.stop();
                        tokio::select! {
                            released = process.lock.release() => released?,
                            () = sleep_until(options.end) => return Ok(()),
                        }
                        BootClock.sleep(pause).await;
                    }
                    Some((_, Fate::Crashes(pause))) => {
                        // Whatever still runs under the lock has until the end of its last grant.
                        drop(process);
                        BootClock.sleep(pause).await;
                        continue 'lives;
                    }
                },
            }
        }
    }
}
