//! `cargo bench -p lockkeeper-e2e --bench returning`: a server with 5,000 waiters and 50 holders is killed
//! and started again. It measures how soon each holder is served, while all the waiters come back.
//!
//! Fails when a holder is served later than promised, when one loses its lock, or when a session ends.

#[path = "returning/open_files.rs"]
mod open_files;
#[path = "returning/stand_in.rs"]
mod stand_in;

use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures_util::future::{join_all, try_join_all};
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

/// Connections that the kernel keeps for the server until it accepts them, as docs/production.md advises. With its
/// default of 50 some holders wait a second: the kernel drops their first packet (ZOOKEEPER-974).
const BACKLOG: &str = "1024";

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
        extra: vec![("clientPortListenBacklog".to_owned(), BACKLOG.to_owned())],
        ..Config::default()
    })?;
    stand_in::allow_ports(ensemble.observer())?;
    println!(
        "{QUEUES} holders and {} waiters of one server, T = {SESSION_TIMEOUT:?}. It is killed and started {ROUNDS} times.\n\
         Times from the moment at which it serves.\n",
        waiters
    );
    println!("| | served | p50 | p90 | p99 | most |");
    println!("|---|---|---|---|---|---|");
    let connect = ensemble.connect_string();
    let returns = std::thread::scope(|scope| {
        let mut crowds = Vec::new();
        for (is_holder, contenders) in [(true, 1), (false, waiters / QUEUES)] {
            let (ask, asked) = mpsc::channel::<()>();
            let (answer, served) = mpsc::channel::<BootInstant>();
            let (ensemble, connect) = (&ensemble, &connect);
            let all = scope.spawn(move || {
                if !is_holder {
                    stand_in::step_back()?;
                }
                block_on(ensemble.observer(), || {
                    crowd(connect, contenders, is_holder, ask, served)
                })?
            });
            asked.recv().context("a crowd has ended")?;
            crowds.push((asked, answer, all));
        }
        for _ in 0..ROUNDS {
            let killed = BootInstant::now();
            ensemble.kill(0);
            ensemble.restart(0)?;
            let serves = BootInstant::now();
            eprintln!(
                "The server serves again after {:.2?}.",
                serves.saturating_since(killed)
            );
            for (_, answer, _) in &crowds {
                let _ = answer.send(serves);
            }
            for (asked, _, _) in &crowds {
                asked.recv().context("a crowd has ended")?;
            }
        }
        let mut returns = Vec::new();
        for (_, _, all) in crowds {
            returns.extend(all.join().expect("no panic")?);
        }
        anyhow::Ok(returns)
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

/// All holders, or all waiters, through all outages. They have a thread each: a holder shares its processor with its
/// application, and not with the waiters of other pods.
async fn crowd(
    connect: &str,
    contenders: usize,
    is_holder: bool,
    ask: mpsc::Sender<()>,
    served: mpsc::Receiver<BootInstant>,
) -> anyhow::Result<Vec<Return>> {
    let in_turn: Vec<_> = (0..contenders)
        .flat_map(|_| (0..QUEUES).map(|queue| lock(connect, queue)))
        .collect();
    for some in in_turn.chunks(AT_ONCE) {
        for done in join_all(some.iter().map(|lock| lock.contend())).await {
            done?;
        }
    }
    if is_holder {
        for lock in &in_turn {
            lock.acquire().await?;
        }
    }
    let tokens: Vec<_> = in_turn.iter().map(|lock| lock.status().token).collect();
    let mut returns = Vec::new();
    for _ in 0..ROUNDS {
        // Waits until all know their place, so that the next one renews.
        join_all(in_turn.iter().map(placed)).await;
        ask.send(()).context("the servers are gone")?;
        let moments = try_join_all(in_turn.iter().map(back)).await?;
        let since = served.recv().context("the servers are gone")?;
        for ((lock, token), moment) in in_turn.iter().zip(&tokens).zip(moments) {
            ensure!(
                lock.status().token == *token,
                "a session ended: {:?}",
                lock.status()
            );
            returns.push(Return {
                is_holder,
                took: moment.saturating_since(since),
            });
        }
    }
    ask.send(()).context("the servers are gone")?;
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
///
/// # Errors
/// When it has lost the lock, or its place.
async fn back(lock: &Lock<BootClock>) -> anyhow::Result<BootInstant> {
    let is_served = |state| matches!(state, LockState::Held | LockState::Waiting);
    let mut view = lock.view();
    for served in [false, true] {
        loop {
            let status = view.status();
            ensure!(status.loss.is_none(), "a contender is lost: {status:?}");
            if is_served(status.state) == served {
                break;
            }
            view.changed().await.expect("the task of the lock lives");
        }
    }
    Ok(BootClock.now())
}
