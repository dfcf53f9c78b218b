//! `contend`, `acquire`, `acquire_within`, `try_acquire`.

use std::time::Duration;

use lockkeeper_lock::{LeaseDuration, LockError, LockOptions, LockState, LossReason, Timing};

use super::takeover::with_lease;
use super::{ROOT, T, contender, is_still, lock, lock_with, options, queued_at, state, status_where, world};

#[tokio::test(start_paused = true)]
async fn try_acquire_takes_a_free_lock() {
    let world = world();
    let lock = lock(&world, "a");
    let token = lock.try_acquire().await.unwrap().expect("it is free");
    assert!(lock.view().is_held());
    assert_eq!(world.node(&contender(&lock)).unwrap().czxid, token);
}

#[tokio::test(start_paused = true)]
async fn try_acquire_answers_none_and_leaves_nothing_in_the_queue_when_somebody_has_the_lock() {
    let world = world();
    let [holder, other] = ["holder", "other"].map(|name| lock(&world, name));
    holder.acquire().await.unwrap();
    assert_eq!(other.try_acquire().await, Ok(None));
    assert_eq!(world.children(ROOT).len(), 1, "the holder is there alone");
    assert!(holder.view().is_held());
    state(&other, LockState::Released).await;
    holder.release().await.unwrap();
    assert!(other.try_acquire().await.unwrap().is_some(), "and again");
}

#[tokio::test(start_paused = true)]
async fn acquire_within_answers_none_after_the_limit_and_leaves_nothing_in_the_queue() {
    let world = world();
    let [holder, other] = ["holder", "other"].map(|name| lock(&world, name));
    holder.acquire().await.unwrap();
    let began = world.now();
    assert_eq!(other.acquire_within(T * 2).await, Ok(None));
    assert!(world.now() - began >= T * 2);
    assert_eq!(world.children(ROOT).len(), 1);
    state(&other, LockState::Released).await;
}

#[tokio::test(start_paused = true)]
async fn acquire_within_answers_none_after_the_limit_also_when_no_server_can_be_reached() {
    let world = world();
    let lock = lock(&world, "a");
    (0..3).for_each(|server| world.stop(server));
    let answer = tokio::time::timeout(T * 2, lock.acquire_within(T)).await;
    assert_eq!(answer.expect("in time"), Ok(None));
    (0..3).for_each(|server| world.start(server));
    tokio::time::sleep(T).await;
    assert!(world.children(ROOT).is_empty(), "nothing enters the queue later");
}

#[tokio::test(start_paused = true)]
async fn acquire_within_answers_a_token_when_the_lock_is_released_before_the_limit() {
    let world = world();
    let [holder, other] = ["holder", "other"].map(|name| lock(&world, name));
    let first = holder.acquire().await.unwrap();
    let (released, second) = tokio::join!(
        async {
            tokio::time::sleep(T).await;
            holder.release().await
        },
        other.acquire_within(T * 2)
    );
    released.unwrap();
    assert!(second.unwrap().expect("it was released") > first);
}

#[tokio::test(start_paused = true)]
async fn acquire_waits_until_the_lock_is_released() {
    let world = world();
    let [holder, other] = ["holder", "other"].map(|name| lock(&world, name));
    let first = holder.acquire().await.unwrap();
    let waiting = tokio::time::timeout(T * 20, other.acquire()).await;
    assert!(waiting.is_err(), "the holder is alive");
    holder.release().await.unwrap();
    assert!(other.acquire().await.unwrap() > first);
}

#[tokio::test(start_paused = true)]
async fn cancelling_acquire_leaves_the_contender_in_the_queue() {
    let world = world();
    let [holder, other] = ["holder", "other"].map(|name| lock(&world, name));
    holder.acquire().await.unwrap();
    assert!(tokio::time::timeout(T, other.acquire()).await.is_err());
    let waiting = other.status();
    assert_eq!(waiting.state, LockState::Waiting);
    assert!(world.node(&contender(&other)).is_some());
    holder.release().await.unwrap();
    let held = state(&other, LockState::Held).await;
    assert_eq!(held.token, waiting.token, "it kept its place");
}

#[tokio::test(start_paused = true)]
async fn contending_twice_makes_one_contender() {
    let world = world();
    let lock = lock(&world, "a");
    let (first, second) = tokio::join!(lock.contend(), lock.contend());
    first.and(second).unwrap();
    lock.contend().await.unwrap();
    assert_eq!(world.children(ROOT).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_cannot_be_contended_for_until_it_is_released_and_then_has_a_greater_token() {
    let world = world();
    let lock = lock(&world, "a");
    let lost = lock.acquire().await.unwrap();
    world.delete(&contender(&lock));
    let status = state(&lock, LockState::Lost).await;
    assert_eq!(status.loss, Some(LossReason::ContenderDeleted));
    let refused = LockError::Lost(LossReason::ContenderDeleted);
    assert_eq!(lock.contend().await, Err(refused.clone()));
    assert_eq!(lock.acquire().await, Err(refused.clone()));
    assert_eq!(lock.try_acquire().await, Err(refused.clone()));
    assert_eq!(lock.acquire_within(T).await, Err(refused));
    assert!(world.children(ROOT).is_empty());
    lock.release().await.unwrap();
    let token = lock.acquire().await.unwrap();
    assert!(token > lost);
    assert_eq!(lock.status().loss, None);
}

#[tokio::test(start_paused = true)]
async fn who_contends_while_it_is_being_released_is_in_the_queue_again_afterwards() {
    let world = world();
    let lock = lock(&world, "a");
    let first = lock.acquire().await.unwrap();
    let (released, contended) = tokio::join!(lock.release(), lock.contend());
    released.and(contended).unwrap();
    let held = status_where(&lock, |status| {
        status.state == LockState::Held && status.token > Some(first)
    });
    held.await;
}

#[tokio::test(start_paused = true)]
async fn a_release_takes_back_a_contend_that_has_not_come_so_far() {
    let world = world();
    let lock = lock(&world, "a");
    lock.acquire().await.unwrap();
    let (first, contended, second) = tokio::join!(lock.release(), lock.contend(), lock.release());
    first.and(second).unwrap();
    assert_eq!(contended, Err(LockError::NotQueued));
    state(&lock, LockState::Released).await;
    assert!(world.children(ROOT).is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_first_come_first_served() {
    let world = world();
    let locks = ["a", "b", "c", "d"].map(|name| lock(&world, name));
    for (position, lock) in locks.iter().enumerate() {
        queued_at(lock, position).await;
    }
    let mut last = None;
    for lock in &locks {
        let token = tokio::time::timeout(Duration::from_secs(1), lock.acquire()).await;
        let token = token.expect("it is next").unwrap();
        assert!(Some(token) > last);
        last = Some(token);
        lock.release().await.unwrap();
    }
}

/// With the lease duration that most users have.
fn with_auto() -> LockOptions {
    let options = options();
    LockOptions {
        timing: Timing {
            lease_duration: LeaseDuration::Auto,
            ..options.timing
        },
        ..options
    }
}

#[tokio::test(start_paused = true)]
async fn on_slow_disks_a_lock_is_acquired_and_kept_though_each_write_takes_longer_than_usual() {
    for (options, takes) in [
        (options(), 600),
        (with_lease(), 600),
        (with_auto(), 600),
        (with_auto(), 650),
    ] {
        let world = world();
        world.slow_disks(Duration::from_millis(takes));
        let lock = lock_with(&world, "a", options);
        let token = tokio::time::timeout(T * 10, lock.acquire()).await;
        let token = token.expect("in time");
        assert!(token.is_ok(), "{takes} ms: {token:?}");
        let is_kept = is_still(&lock, |status| {
            matches!(status.state, LockState::Held | LockState::Suspended)
        });
        assert!(is_kept.await, "{takes} ms");
        tokio::time::timeout(T * 2, lock.release())
            .await
            .expect("in time")
            .expect("released");
        let nodes = world.children(ROOT);
        assert!(nodes.is_empty(), "{takes} ms: {nodes:?}");
    }
}
