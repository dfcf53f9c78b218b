//! What other people do to the nodes, and what the lock makes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper_lock::ensemble::Closed;
use lockkeeper_lock::fake::{Options, World};
use lockkeeper_lock::{LockOptions, LockState, LossReason, Observer};

use super::{
    ROOT, T, contender, eventually, is_still, lock, lock_with, options, queued_at, state, status_where, world,
};

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_contender_is_deleted_by_hand_queues_again() {
    let world = world();
    let [holder, waiter] = ["holder", "waiter"].map(|name| lock(&world, name));
    holder.acquire().await.unwrap();
    let before = queued_at(&waiter, 1).await;
    world.delete(&contender(&waiter));
    let after = status_where(&waiter, |status| {
        status.token > before.token && status.position == Some(1)
    });
    let after = after.await;
    assert_eq!(after.loss, None, "nothing was held");
    holder.release().await.unwrap();
    assert_eq!(state(&waiter, LockState::Held).await.token, after.token);
}

#[derive(Debug, Default)]
struct Moves(AtomicU64);

impl Observer for Moves {
    fn renewed(&self, _: Duration) {}
    fn session_moved(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_has_moved_when_another_server_serves_it_and_not_when_the_same_one_does_again() {
    for (servers, expected) in [(1, 0), (3, 1)] {
        let world = Arc::new(World::new(Options {
            servers,
            tick: Duration::from_secs(1),
            session_timeout: T,
            ..Options::default()
        }));
        let moves = Arc::new(Moves::default());
        let options = LockOptions {
            observer: Some(moves.clone()),
            ..options()
        };
        let lock = lock_with(&world, "a", options);
        lock.acquire().await.unwrap();
        world.hang_up("a", Closed::Disconnected);
        state(&lock, LockState::Suspended).await;
        state(&lock, LockState::Held).await;
        assert_eq!(moves.0.load(Ordering::Relaxed), expected, "{servers} servers");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_further_back_whose_contender_is_deleted_by_hand_queues_again_when_its_turn_comes() {
    let world = world();
    let [first, second, third] = ["first", "second", "third"].map(|name| lock(&world, name));
    first.acquire().await.unwrap();
    queued_at(&second, 1).await;
    let before = queued_at(&third, 2).await;
    world.delete(&contender(&third));
    first.release().await.unwrap();
    second.acquire().await.unwrap();
    status_where(&third, |status| status.token > before.token).await;
    second.release().await.unwrap();
    third.acquire().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn children_that_are_no_contenders_and_foreign_data_change_nothing() {
    let world = world();
    let [holder, waiter] = ["holder", "waiter"].map(|name| lock(&world, name));
    world.create("/locks", b"");
    world.create(ROOT, b"somebody's notes");
    for name in ["leases", "x-latch-0000000000", "-lock-", "lock-1"] {
        world.create(&format!("{ROOT}/{name}"), b"{\"state\":\"held\"}");
    }
    holder.acquire().await.unwrap();
    assert_eq!(queued_at(&waiter, 1).await.state, LockState::Waiting);
    eventually("the holder says that it holds", || {
        world
            .node(&contender(&holder))
            .is_some_and(|node| node.version > 0)
    })
    .await;
    for foreign in [&b"10.0.0.7"[..], b"", b"\xff\xfe"] {
        world.set_data(&contender(&holder), foreign);
        assert!(is_still(&holder, |status| status.state == LockState::Held).await);
        assert!(is_still(&waiter, |status| status.position == Some(1)).await);
    }
    holder.release().await.unwrap();
    state(&waiter, LockState::Held).await;
    assert_eq!(world.children(ROOT).len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_session_is_over_has_lost_the_lock_and_a_waiter_queues_again() {
    let world = world();
    let [holder, waiter] = ["holder", "waiter"].map(|name| lock(&world, name));
    holder.acquire().await.unwrap();
    let before = queued_at(&waiter, 1).await;
    world.expire(before.session.unwrap());
    let after = status_where(&waiter, |status| {
        status.session.is_some() && status.session != before.session && status.position == Some(1)
    });
    assert!(after.await.token > before.token);
    world.expire(holder.status().session.unwrap());
    // Its watch and the end of its session come one after the other.
    let lost = state(&holder, LockState::Lost).await.loss;
    assert!(matches!(
        lost,
        Some(LossReason::SessionExpired | LossReason::ContenderDeleted)
    ));
    state(&waiter, LockState::Held).await;
}
