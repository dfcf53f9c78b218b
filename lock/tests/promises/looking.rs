//! `LockView`.

use std::time::Duration;

use lockkeeper_lock::fake::{Client, Freezable};
use lockkeeper_lock::{Clock, Lock, LockError, LockState, LockStatus, LossReason};

use super::{BOUND, T, clock, eventually, lock, options, status_where, world};

#[tokio::test(start_paused = true)]
async fn nothing_is_held_once_the_task_of_the_lock_is_gone() {
    let world = world();
    let (lock, task) = Lock::with_task::<Client>(world.client("a"), clock(), options());
    let task = tokio::spawn(task);
    lock.acquire().await.unwrap();
    let mut view = lock.view();
    assert!(view.is_held());
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(!view.is_held(), "nobody would say so if it were lost");
    let ended = async {
        loop {
            if let Err(error) = view.changed().await {
                return error;
            }
        }
    };
    assert_eq!(
        tokio::time::timeout(BOUND, ended).await.unwrap(),
        LockError::Abandoned
    );
    assert_eq!(lock.release().await, Err(LockError::Abandoned));
    assert_eq!(lock.contend().await, Err(LockError::Abandoned));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_held_after_the_end_of_the_lease_although_the_task_stands_still() {
    let world = world();
    let client = world.client("a");
    let clock = clock();
    let (lock, task) = Lock::with_task::<Client>(client.clone(), clock.clone(), options());
    tokio::spawn(Freezable::new(client).run(task));
    lock.acquire().await.unwrap();
    world.freeze("a", T * 4);
    let frozen = lock.status();
    let (deadline, end) = (frozen.deadline().unwrap(), frozen.lease_end.unwrap());
    assert!(deadline < end);
    let view = lock.view();
    eventually("the lease ends", || {
        assert_eq!(view.is_held(), clock.now() < end);
        !view.is_held()
    })
    .await;
    assert_eq!(lock.status().state, LockState::Held, "what it said last");
}

#[tokio::test(start_paused = true)]
async fn a_lock_in_doubt_is_suspended_until_its_lease_ends_and_then_lost() {
    let world = world();
    let lock = lock(&world, "a");
    lock.acquire().await.unwrap();
    world.isolate("a", T * 4);
    let suspended = status_where(&lock, |status| status.state == LockState::Suspended).await;
    assert!(lock.view().is_held());
    assert!(suspended.lease_end.is_some());
    // Without anybody's word: no server can be reached to say that the session is over.
    let lost = status_where(&lock, |status| status.state == LockState::Lost).await;
    assert_eq!(lost.loss, Some(LossReason::DeadlineReached));
    assert!(!lock.view().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_short_disconnection_is_survived_under_the_same_token() {
    let world = world();
    let lock = lock(&world, "a");
    let token = lock.acquire().await.unwrap();
    world.disconnect("a");
    status_where(&lock, |status| status.state == LockState::Suspended).await;
    let again = status_where(&lock, |status| status.state == LockState::Held).await;
    assert_eq!(again.token, Some(token));
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_never_contended_for_asks_nothing_of_the_ensemble() {
    let world = world();
    let lock = lock(&world, "a");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(lock.status(), LockStatus::new());
    assert!(!lock.view().is_held());
    assert!(world.records().is_empty());
}
