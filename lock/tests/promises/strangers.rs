//! Other clients in the queue: the lock waits for them if their names show when they came, and never ignores them.

use std::time::Duration;

use lockkeeper_lock::{LockError, LockState};

use super::{ROOT, T, is_still, lock, queued_at, state, status_where, world};

/// A session of another client.
const THEIRS: i64 = 0x77;

fn unreadable(path: &str) -> LockError {
    LockError::Unreadable {
        path: path.to_owned(),
    }
}

fn stranger(name: &str) -> LockError {
    LockError::Stranger {
        path: format!("{ROOT}/{name}"),
    }
}

#[tokio::test(start_paused = true)]
async fn contenders_of_kazoo_and_of_zookeepers_recipe_are_waited_for_in_the_order_of_their_numbers() {
    for name in [
        "0f3c1f4f8c1b4a3f9d5f0d6ad7a5c111__lock__0000000000",
        "0f3c1f4f8c1b4a3f9d5f0d6ad7a5c111__rlock__0000000000",
        "_c_6c24a9dd0d4d8d3f0e0c9a2d2a0a7b11-lock-0000000000",
        "x-72057837408354305-0000000000",
    ] {
        let world = world();
        world.create("/locks", b"");
        world.create(ROOT, b"");
        world.create_owned(&format!("{ROOT}/{name}"), b"", THEIRS);
        let lock = lock(&world, "a");
        let waiting = queued_at(&lock, 1).await;
        assert_eq!(
            (waiting.state, waiting.refusal),
            (LockState::Waiting, None),
            "{name}"
        );
        assert!(is_still(&lock, |status| status.state == LockState::Waiting).await);
        world.delete(&format!("{ROOT}/{name}"));
        state(&lock, LockState::Held).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_not_held_beside_a_client_of_an_unknown_kind_and_the_status_names_it() {
    // Leader election, and a lease of kazoo's Semaphore: every node that ends with a session.
    for name in [
        "n_0000000000",
        "0f3c1f4f8c1b4a3f9d5f0d6ad7a5c111",
        "_c_x-latch-0000000009",
    ] {
        let world = world();
        world.create("/locks", b"");
        world.create(ROOT, b"");
        world.create_owned(&format!("{ROOT}/{name}"), b"", THEIRS);
        let lock = lock(&world, "a");
        lock.contend().await.unwrap();
        let waiting = status_where(&lock, |status| status.refusal.is_some()).await;
        assert_eq!(waiting.refusal, Some(stranger(name)));
        assert_eq!((waiting.state, waiting.position), (LockState::Waiting, Some(1)));
        let said = waiting.refusal.unwrap().to_string();
        assert!(
            said.contains(&format!("{ROOT}/{name}")) && said.contains("a lock root of its own"),
            "{said}"
        );
        assert!(is_still(&lock, |status| status.state == LockState::Waiting).await);
        assert_eq!(lock.try_acquire().await, Ok(None), "it is not free");
        lock.contend().await.unwrap();
        world.delete(&format!("{ROOT}/{name}"));
        let held = state(&lock, LockState::Held).await;
        assert_eq!(held.refusal, None);
    }
}

#[tokio::test(start_paused = true)]
async fn the_heir_of_a_holder_does_not_take_over_beside_a_client_of_an_unknown_kind() {
    let world = world();
    let (holder, heir) = (lock(&world, "holder"), lock(&world, "heir"));
    holder.acquire().await.unwrap();
    world.create_owned(&format!("{ROOT}/n_0000000001"), b"", THEIRS);
    queued_at(&heir, 1).await;
    // Until it is marked as held, which proves to the heir that no contender is before it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    holder.release().await.unwrap();
    assert!(is_still(&heir, |status| status.state == LockState::Waiting).await);
    // Another one comes when the first one leaves.
    world.create_owned(&format!("{ROOT}/n_0000000007"), b"", THEIRS);
    world.delete(&format!("{ROOT}/n_0000000001"));
    let waiting = status_where(&heir, |status| status.refusal == Some(stranger("n_0000000007"))).await;
    assert_eq!(waiting.state, LockState::Waiting);
    world.delete(&format!("{ROOT}/n_0000000007"));
    state(&heir, LockState::Held).await;
}

#[tokio::test(start_paused = true)]
async fn children_that_belong_to_no_session_are_nobodys_place_in_the_queue() {
    let world = world();
    world.create("/locks", b"");
    world.create(ROOT, b"");
    world.create(&format!("{ROOT}/readme"), b"hands off");
    world.create(&format!("{ROOT}/entry-0000000000"), b"");
    // A container: its owner is marked, and no session owns it.
    world.create_owned(&format!("{ROOT}/leases"), b"", i64::MIN);
    let lock = lock(&world, "a");
    tokio::time::timeout(T, lock.acquire())
        .await
        .expect("no contender is before it")
        .unwrap();
    assert_eq!(lock.status().refusal, None);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_may_not_be_read_and_more_children_than_are_looked_at_count_as_unknown_clients() {
    let world = world();
    world.create("/locks", b"");
    world.create(ROOT, b"");
    for number in 0..33 {
        world.create(&format!("{ROOT}/note-{number:02}"), b"");
    }
    let lock = lock(&world, "a");
    lock.contend().await.unwrap();
    let waiting = status_where(&lock, |status| status.refusal.is_some()).await;
    assert_eq!(waiting.refusal, Some(stranger("note-32")));
    world.delete(&format!("{ROOT}/note-32"));
    state(&lock, LockState::Held).await;
    lock.release().await.unwrap();

    let secret = format!("{ROOT}/note-00");
    world.forbid(&secret);
    lock.contend().await.unwrap();
    let waiting = status_where(&lock, |status| status.refusal == Some(unreadable(&secret))).await;
    assert_eq!(waiting.state, LockState::Waiting);
    // Others come and go, and wake nobody who waits for this one.
    for _ in 0..3 {
        world.create_owned(&format!("{ROOT}/note-77"), b"", 0);
        world.delete(&format!("{ROOT}/note-77"));
    }
    assert!(is_still(&lock, |status| status.refusal == Some(unreadable(&secret))).await);
    world.delete(&secret);
    state(&lock, LockState::Held).await;
    assert_eq!(lock.status().refusal, None);
}

#[tokio::test(start_paused = true)]
async fn a_contender_before_us_that_may_not_be_read_is_waited_for_and_named() {
    let world = world();
    world.create("/locks", b"");
    world.create(ROOT, b"");
    let path = format!("{ROOT}/_c_6c24a9dd0d4d8d3f0e0c9a2d2a0a7b11-lock-0000000000");
    world.create_owned(&path, b"", THEIRS);
    world.forbid(&path);
    let waiter = lock(&world, "waiter");
    waiter.contend().await.unwrap();
    let waiting = status_where(&waiter, |status| status.refusal == Some(unreadable(&path))).await;
    assert_eq!(waiting.state, LockState::Waiting);
    assert!(is_still(&waiter, |status| status.refusal == Some(unreadable(&path))).await);
    // Nobody announces a right.
    world.allow(&path);
    let waiting = status_where(&waiter, |status| status.refusal.is_none()).await;
    assert_eq!(waiting.state, LockState::Waiting);
    world.delete(&path);
    state(&waiter, LockState::Held).await;
    assert_eq!(waiter.status().refusal, None);
}
