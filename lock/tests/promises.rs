//! The promises in the documentation of the public calls, one test each, on the fake ensemble.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_fake::{Client, Options, SkewedClock, World, eventually};
use lockkeeper_lock::{LeaseDuration, Lock, LockOptions, LockState, LockStatus, LockView, Mode, Timing};

#[path = "promises/acquiring.rs"]
mod acquiring;
#[path = "promises/agreeing.rs"]
mod agreeing;
#[path = "promises/counting.rs"]
mod counting;
#[path = "promises/deleted.rs"]
mod deleted;
#[path = "promises/ensembles.rs"]
mod ensembles;
#[path = "promises/guarding.rs"]
mod guarding;
#[path = "promises/holding.rs"]
mod holding;
#[path = "promises/looking.rs"]
mod looking;
#[path = "promises/participants.rs"]
mod participants;
#[path = "promises/predecessor.rs"]
mod predecessor;
#[path = "promises/provisioned.rs"]
mod provisioned;
#[path = "promises/recovering.rs"]
mod recovering;
#[path = "promises/refusing.rs"]
mod refusing;
#[path = "promises/releasing.rs"]
mod releasing;
#[path = "promises/renewing.rs"]
mod renewing;
#[path = "promises/resuming.rs"]
mod resuming;
#[path = "promises/retaining.rs"]
mod retaining;
#[path = "promises/sharing.rs"]
mod sharing;
#[path = "promises/strangers.rs"]
mod strangers;
#[path = "promises/takeover.rs"]
mod takeover;
#[path = "promises/written.rs"]
mod written;
#[path = "promises/yielding.rs"]
mod yielding;

type FakeLock = Lock<SkewedClock>;

const ROOT: &str = "/locks/report";
const CONTROL: &str = "/locks/report-control";
const T: Duration = Duration::from_secs(6);

/// Longer than every promise takes; on the simulated clock it costs no time.
const BOUND: Duration = Duration::from_secs(60);

/// Aborts a test that waits without end, which would keep all others waiting: the simulated clock never stops.
async fn end_whoever_waits_for_ever() {
    tokio::time::sleep(60 * BOUND).await;
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    // Not `eprintln!`: the harness collects that text for the end, and it would be lost.
    let _ = writeln!(std::io::stderr(), "{test} has not ended after a simulated hour");
    std::process::abort();
}

fn world_of(seed: u64) -> Arc<World> {
    tokio::spawn(end_whoever_waits_for_ever());
    Arc::new(World::new(Options {
        seed,
        tick: Duration::from_secs(1),
        session_timeout: T,
        ..Options::default()
    }))
}

fn world() -> Arc<World> {
    world_of(0)
}

fn clock() -> SkewedClock {
    SkewedClock::new(1.0, Duration::from_secs(1_000))
}

fn options() -> LockOptions {
    let timing = Timing {
        tick_time: Duration::from_secs(1),
        stop_grace: Duration::from_millis(500),
        // What the session's lease promises by itself; `takeover` is about the other lease.
        lease_duration: LeaseDuration::Off,
        ..Timing::new(T)
    };
    LockOptions::new(ROOT, timing)
}

fn lock_with(world: &Arc<World>, name: &str, options: LockOptions) -> FakeLock {
    Lock::new::<Client>(world.client(name), clock(), options)
}

fn lock(world: &Arc<World>, name: &str) -> FakeLock {
    lock_with(world, name, options())
}

fn lock_in(world: &Arc<World>, name: &str, mode: Mode) -> FakeLock {
    lock_with(world, name, LockOptions { mode, ..options() })
}

async fn status_where(lock: &FakeLock, is_it: impl Fn(&LockStatus) -> bool) -> LockStatus {
    let mut view: LockView<SkewedClock> = lock.view();
    let found = async {
        loop {
            let status = view.status();
            if is_it(&status) {
                return status;
            }
            view.changed().await.expect("the task of the lock lives");
        }
    };
    match tokio::time::timeout(BOUND, found).await {
        Ok(status) => status,
        Err(_) => panic!("it stays {:?}", lock.status()),
    }
}

async fn state(lock: &FakeLock, state: LockState) -> LockStatus {
    status_where(lock, |status| status.state == state).await
}

/// Waits until the lock is in the queue at this position.
async fn queued_at(lock: &FakeLock, position: usize) -> LockStatus {
    lock.contend().await.unwrap();
    status_where(lock, |status| status.position == Some(position)).await
}

/// Path of a lock's contender.
fn contender(lock: &FakeLock) -> String {
    let name = lock.status().contender.expect("it is in the queue");
    format!("{ROOT}/{name}")
}

/// Whether the status stays so. If nothing happens for this long, the lock is at rest.
async fn is_still(lock: &FakeLock, is_it: impl Fn(&LockStatus) -> bool) -> bool {
    let mut view = lock.view();
    let changes = async {
        loop {
            if !is_it(&view.status()) || view.changed().await.is_err() {
                return;
            }
        }
    };
    tokio::time::timeout(T * 3, changes).await.is_err()
}
