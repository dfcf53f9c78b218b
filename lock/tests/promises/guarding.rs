//! `guarded`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper_fake::{Client, World};
use lockkeeper_lock::{Lock, LockError, LockState, LossReason};
use tokio::sync::Notify;

use super::{BOUND, FakeLock, ROOT, T, clock, contender, eventually, lock, options, queued_at, state, world};

/// Work that shows whether it still exists.
#[derive(Clone, Default)]
struct Running(Arc<AtomicBool>);

struct Dropped(Running);

impl Running {
    fn begin(&self) -> Dropped {
        self.0.store(true, Ordering::SeqCst);
        Dropped(self.clone())
    }

    fn is_running(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::SeqCst);
    }
}

/// Runs endless work under the lock, in a task of its own.
fn guard(lock: &Arc<FakeLock>, running: &Running) -> tokio::task::JoinHandle<Result<(), LockError>> {
    let (lock, running) = (Arc::clone(lock), running.clone());
    tokio::spawn(async move {
        let work = |_, _| async move {
            let _here = running.begin();
            std::future::pending::<()>().await;
        };
        lock.guarded(work).await
    })
}

async fn begun(running: &Running) {
    eventually("the work begins", || running.is_running()).await;
}

#[tokio::test(start_paused = true)]
async fn work_runs_under_the_lock_with_its_token_and_the_lock_is_released_afterwards() {
    let world = world();
    let lock = lock(&world, "a");
    let answer = lock
        .guarded(|token, view| {
            let world = &world;
            async move {
                assert!(view.is_held());
                assert_eq!(view.status().token, Some(token));
                assert_eq!(world.children(ROOT).len(), 1);
                tokio::time::sleep(T * 10).await;
                assert!(view.is_held(), "it is renewed");
                token.0
            }
        })
        .await;
    assert!(answer.unwrap() > 0);
    assert!(world.children(ROOT).is_empty());
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_by_the_deadline_when_no_server_can_be_reached() {
    let world = world();
    let [holder, waiter] = ["holder", "waiter"].map(|name| lock(&world, name));
    let (holder, running) = (Arc::new(holder), Running::default());
    let guarded = guard(&holder, &running);
    begun(&running).await;
    queued_at(&waiter, 1).await;
    isolate(&world, "holder");
    eventually("the work is dropped", || !running.is_running()).await;
    assert_ne!(
        waiter.status().state,
        LockState::Held,
        "no other contender holds before"
    );
    state(&waiter, LockState::Held).await;
    world.heal();
    let outcome = tokio::time::timeout(BOUND, guarded)
        .await
        .expect("the servers are back");
    let Err(LockError::Lost(reason)) = outcome.unwrap() else {
        panic!("the work never ends by itself")
    };
    assert_eq!(reason, LossReason::DeadlineReached);
    assert_eq!(world.children(ROOT).len(), 1, "it left the queue");
}

fn isolate(world: &World, client: &str) {
    world.isolate(client, Duration::from_secs(3_600));
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_when_the_contender_is_deleted_by_hand_and_the_error_says_why() {
    let world = world();
    let lock = Arc::new(lock(&world, "a"));
    let running = Running::default();
    let guarded = guard(&lock, &running);
    begun(&running).await;
    let deleted = world.now();
    world.delete(&contender(&lock));
    eventually("the work is dropped", || !running.is_running()).await;
    assert!(
        world.now() - deleted < T / 8,
        "it heard of it, and did not wait for a renewal"
    );
    assert_eq!(
        guarded.await.unwrap(),
        Err(LockError::Lost(LossReason::ContenderDeleted))
    );
    // It was released: nothing runs under the lock.
    lock.acquire().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_when_its_session_is_ended_by_force() {
    let world = world();
    let lock = Arc::new(lock(&world, "a"));
    let running = Running::default();
    let guarded = guard(&lock, &running);
    begun(&running).await;
    world.expire(lock.status().session.unwrap());
    assert!(matches!(guarded.await.unwrap(), Err(LockError::Lost(_))));
    assert!(!running.is_running());
}

#[tokio::test(start_paused = true)]
async fn the_next_one_runs_only_when_the_work_before_it_is_gone() {
    let world = world();
    let running = Running::default();
    let one_after_another = ["a", "b", "c"].map(|name| {
        let (lock, running) = (lock(&world, name), running.clone());
        async move {
            let work = |_, _| async {
                assert!(!running.is_running(), "two at a time");
                let _here = running.begin();
                tokio::time::sleep(T).await;
            };
            lock.guarded(work).await.unwrap();
        }
    });
    let [a, b, c] = one_after_another;
    tokio::join!(a, b, c);
    assert!(world.children(ROOT).is_empty());
}

#[tokio::test(start_paused = true)]
async fn cancelling_guarded_drops_the_work_and_keeps_the_lock() {
    let world = world();
    let lock = Arc::new(lock(&world, "a"));
    let running = Running::default();
    let guarded = guard(&lock, &running);
    begun(&running).await;
    guarded.abort();
    assert!(guarded.await.unwrap_err().is_cancelled());
    assert!(!running.is_running());
    assert!(lock.view().is_held());
    assert!(world.node(&contender(&lock)).is_some());
}

#[tokio::test(start_paused = true)]
async fn work_is_not_polled_after_the_deadline_by_whatever_wakes_it_when_a_suspended_machine_goes_on() {
    let world = world();
    let clock = clock();
    let lock = Arc::new(Lock::new::<Client>(world.client("a"), clock.clone(), options()));
    let (polls, wake) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let guarded = tokio::spawn({
        let (lock, polls, wake) = (Arc::clone(&lock), Arc::clone(&polls), Arc::clone(&wake));
        async move {
            let work = |_, _| async move {
                loop {
                    polls.fetch_add(1, Ordering::SeqCst);
                    wake.notified().await;
                }
            };
            lock.guarded(work).await
        }
    });
    eventually("the work begins", || polls.load(Ordering::SeqCst) == 1).await;
    wake.notify_one();
    eventually("the work goes on", || polls.load(Ordering::SeqCst) == 2).await;
    // No timer has noticed it yet, and the work is ready to go on.
    clock.suspend(T);
    wake.notify_one();
    let outcome: Result<(), _> = guarded.await.unwrap();
    assert!(matches!(outcome, Err(LockError::Lost(_))), "{outcome:?}");
    assert_eq!(polls.load(Ordering::SeqCst), 2);
}
