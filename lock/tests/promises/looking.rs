//! `LockView`.

use std::time::Duration;

use lockkeeper_fake::{Client, Freezable};
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
    assert!(!view.is_held(), "no task would report a loss");
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
async fn nothing_is_held_from_the_deadline_on_although_the_task_stands_still() {
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
    eventually("the deadline comes", || {
        assert_eq!(view.is_held(), clock.now() < deadline);
        assert_eq!(frozen.is_held(clock.now()), view.is_held());
        !view.is_held()
    })
    .await;
    assert!(clock.now() < end, "the lease itself is not over");
    assert_eq!(lock.status().state, LockState::Held, "its last report");
}

#[tokio::test(start_paused = true)]
async fn a_lock_in_doubt_is_suspended_until_its_deadline_and_then_lost() {
    let world = world();
    let clock = clock();
    let lock = Lock::new::<Client>(world.client("a"), clock.clone(), options());
    lock.acquire().await.unwrap();
    world.isolate("a", T * 4);
    let suspended = status_where(&lock, |status| status.state == LockState::Suspended).await;
    assert!(lock.view().is_held());
    let (deadline, end) = (suspended.deadline().unwrap(), suspended.lease_end.unwrap());
    // On its own: no server can be reached to report that the session is over.
    let lost = status_where(&lock, |status| status.state == LockState::Lost).await;
    let now = clock.now();
    assert!(deadline <= now && now < end, "{now:?}: {deadline:?} to {end:?}");
    assert_eq!(lost.loss, Some(LossReason::DeadlineReached));
    assert!(!lock.view().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_not_acquired_by_what_its_task_said_before_the_machine_was_suspended_past_the_deadline() {
    for tries in [false, true] {
        let world = world();
        let clock = clock();
        let (lock, task) = Lock::with_task::<Client>(world.client("a"), clock.clone(), options());
        let acquiring = async {
            match tries {
                true => lock.try_acquire().await,
                false => lock.acquire().await.map(Some),
            }
        };
        let (mut acquired, mut task) = (Box::pin(acquiring), Box::pin(task));
        let view = lock.view();
        while !view.is_held() {
            assert!(futures_util::poll!(&mut acquired).is_pending());
            let _ = tokio::time::timeout(Duration::from_millis(1), &mut task).await;
        }
        clock.suspend(view.status().deadline().unwrap() - clock.now());
        assert!(futures_util::poll!(&mut acquired).is_pending());
        let outcome = tokio::select! {
            outcome = acquired => outcome,
            () = task => panic!("the lock is not closed"),
        };
        assert_eq!(outcome, Err(LockError::Lost(LossReason::DeadlineReached)));
    }
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
