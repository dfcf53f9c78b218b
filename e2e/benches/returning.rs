//! `cargo bench -p lockkeeper-e2e --bench returning`: a server with 5,000 waiters and 50 holders is killed
//! and started again. It measures how soon each holder is served, while all the waiters come back.
//!
//! Fails when a holder is served later than promised, when one loses its lock, or when a session ends.

#[path = "returning/open_files.rs"]
mod open_files;

use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures_util::future::join_all;
use lockkeeper_lock::zookeeper::ZooKeeper;
use lockkeeper_lock::{BootClock, BootInstant, Clock, Lock, LockOptions, LockState, Timing};
use lockkeeper_testbed::ensemble::block_on;
use lockkeeper_testbed::{Config, Ensemble};

/// Queues, each with one holder.
const QUEUES: usize = 50;
/// Number of waiters, unless `--waiters=N` says otherwise. The first of each queue comes back as soon as its
/// holder.
const WAITERS: usize = 5_000;
/// Outages.
const ROUNDS: usize = 3;
/// The default.
const SESSION_TIMEOUT: Duration = Duration::from_secs(15);
/// The promise to a holder, from the moment at which the server serves.
const PROMISE: Duration = Duration::from_secs(1);
/// Contenders that queue at once when the benchmark makes the queues.
const AT_ONCE: usize = 50;
/// Sockets of the clients and of the server, and some more.
const OPEN_FILES: u64 = 16_384;

/// When the server served again, and when this contender was served.
struct Return {
    is_holder: bool,
    took: Duration,
}

fn main() -> anyhow::Result<()> {
    let given = std::env::args().find_map(|argument| argument.strip_prefix("--waiters=")?.parse().ok());
    let waiters: usize = given.unwrap_or(WAITERS);
    open_files::allow(OPEN_FILES)?;
    let ensemble = Ensemble::start(Config {
        servers: 1,
        tick: Duration::from_secs(2),
        ..Config::default()
    })?;
    println!(
        "{QUEUES} holders and {} waiters of one server, T = {SESSION_TIMEOUT:?}. It is killed and started {ROUNDS} times.\n\
         Times from the moment at which it serves.\n",
        waiters
    );
    println!("| | served | p50 | p90 | p99 | most |");
    println!("|---|---|---|---|---|---|");
    let (ask, asked) = mpsc::channel::<()>();
    let (answer, served) = mpsc::channel::<BootInstant>();
    let returns = std::thread::scope(|scope| {
        let clients = scope.spawn(|| {
            block_on(ensemble.observer(), || {
                crowd(ensemble.connect_string(), waiters / QUEUES, ask, served)
            })
        });
        for () in asked {
            ensemble.kill(0);
            ensemble.restart(0)?;
            let _ = answer.send(BootInstant::now());
        }
        clients.join().expect("no panic")?
    })?;
    let mut worst = Duration::ZERO;
    for (name, is_holder) in [("holders", true), ("waiters", false)] {
        let mut times: Vec<_> = returns
            .iter()
            .filter(|one| one.is_holder == is_holder)
            .map(|one| one.took)
            .collect();
        times.sort();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        println!(
            "| {name} | {} | {:.2?} | {:.2?} | {:.2?} | {:.2?} |",
            times.len(),
            at(0.5),
            at(0.9),
            at(0.99),
            at(1.0)
        );
        if is_holder {
            worst = at(1.0);
        }
    }
    ensure!(worst <= PROMISE, "a holder was served only after {worst:?}");
    Ok(())
}

/// All contenders, through all outages.
async fn crowd(
    connect: String,
    waiters: usize,
    ask: mpsc::Sender<()>,
    served: mpsc::Receiver<BootInstant>,
) -> anyhow::Result<Vec<Return>> {
    let locks: Vec<Vec<_>> = (0..QUEUES)
        .map(|queue| (0..=waiters).map(|_| lock(&connect, queue)).collect())
        .collect();
    let in_turn: Vec<_> = (0..=waiters)
        .flat_map(|place| locks.iter().map(move |queue| &queue[place]))
        .collect();
    for some in in_turn.chunks(AT_ONCE) {
        for done in join_all(some.iter().map(|lock| lock.contend())).await {
            done?;
        }
    }
    for queue in &locks {
        queue[0].acquire().await?;
    }
    let tokens: Vec<_> = in_turn.iter().map(|lock| lock.status().token).collect();
    let mut returns = Vec::new();
    for _ in 0..ROUNDS {
        // Waits until all know their place, so that the next one renews.
        join_all(in_turn.iter().map(|lock| placed(lock))).await;
        ask.send(()).context("the servers are gone")?;
        let waiting = join_all(in_turn.iter().map(|lock| back(lock)));
        let moments = waiting.await;
        let since = served.recv().context("the servers are gone")?;
        for (index, moment) in moments.into_iter().enumerate() {
            let lock = in_turn[index];
            ensure!(
                lock.status().token == tokens[index],
                "a session ended: {:?}",
                lock.status()
            );
            returns.push(Return {
                is_holder: index < QUEUES,
                took: moment.saturating_since(since),
            });
        }
    }
    Ok(returns)
}

fn lock(connect: &str, queue: usize) -> Lock<BootClock> {
    let ensemble = ZooKeeper::new(connect.parse().expect("a list of servers"), SESSION_TIMEOUT);
    let root = format!("/bench/returning-{queue}");
    Lock::new(
        ensemble,
        BootClock,
        LockOptions::new(root, Timing::new(SESSION_TIMEOUT)),
    )
}

async fn placed(lock: &Lock<BootClock>) {
    let mut view = lock.view();
    while view.status().position.is_none() {
        view.changed().await.expect("the task of the lock lives");
    }
}

/// Waits until the connection is lost, and then until the contender holds or waits again. Returns the moment.
async fn back(lock: &Lock<BootClock>) -> BootInstant {
    let is_served = |state| matches!(state, LockState::Held | LockState::Waiting);
    let mut view = lock.view();
    for served in [false, true] {
        while is_served(view.status().state) != served {
            view.changed().await.expect("the task of the lock lives");
        }
    }
    BootClock.now()
}
