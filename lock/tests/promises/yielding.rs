//! Yield requests in the control node.

use std::time::Duration;

use lockkeeper_lock::LockState;

use super::{
    CONTROL, FakeLock, ROOT, contender, eventually, is_still, lock, queued_at, state, status_where, world,
    world_of,
};

pub(super) fn request(locks: &[&FakeLock]) -> Vec<u8> {
    let names: Vec<String> = locks
        .iter()
        .map(|lock| lock.status().contender.unwrap())
        .collect();
    serde_json::to_vec(&serde_json::json!({"v": 1, "yield": {"id": "1", "contenders": names}})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_holder_is_told_that_it_is_asked_to_step_down_and_does_it_once() {
    let world = world();
    let [holder, waiter] = ["holder", "waiter"].map(|name| lock(&world, name));
    let first = holder.acquire().await.unwrap();
    queued_at(&waiter, 1).await;
    eventually("the control node is there", || world.node(CONTROL).is_some()).await;
    assert!(!holder.status().yield_requested);
    world.set_data(CONTROL, &request(&[&holder]));
    let asked = status_where(&holder, |status| status.yield_requested).await;
    assert_eq!((asked.state, asked.token), (LockState::Held, Some(first)));

    holder.step_down().await.unwrap();
    waiter.acquire().await.unwrap();
    waiter.release().await.unwrap();
    let again = status_where(&holder, |status| status.state == LockState::Held).await;
    assert!(again.token > Some(first));
    // The request is still in the control node, and names a contender that is gone.
    let mine = again.token;
    assert!(
        is_still(&holder, |status| !status.yield_requested && status.token == mine).await,
        "{:?}",
        holder.status()
    );
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_next_queues_again_at_the_end_by_itself_and_once() {
    let world = world();
    let [holder, heir, last] = ["holder", "heir", "last"].map(|name| lock(&world, name));
    holder.acquire().await.unwrap();
    let before = queued_at(&heir, 1).await;
    queued_at(&last, 2).await;
    eventually("the control node is there", || world.node(CONTROL).is_some()).await;
    world.set_data(CONTROL, &request(&[&heir]));
    let after = status_where(&heir, |status| status.position == Some(2)).await;
    assert!(after.token > before.token);
    status_where(&last, |status| status.position == Some(1)).await;

    holder.release().await.unwrap();
    last.acquire().await.unwrap();
    last.release().await.unwrap();
    let held = state(&heir, LockState::Held).await;
    assert_eq!(held.token, after.token, "the request was carried out once");
}

#[tokio::test(start_paused = true)]
async fn a_release_of_a_waiter_stays_a_release_when_a_yield_request_comes_at_the_same_time() {
    for seed in 0..40 {
        let world = world_of(seed);
        let [holder, heir] = ["holder", "heir"].map(|name| lock(&world, name));
        holder.acquire().await.unwrap();
        queued_at(&heir, 1).await;
        eventually("the control node is there", || world.node(CONTROL).is_some()).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let node = contender(&heir);
        world.set_data(CONTROL, &request(&[&heir]));
        tokio::time::sleep(Duration::from_millis(seed)).await;
        heir.release().await.unwrap();
        assert!(world.node(&node).is_none());
        assert!(
            is_still(&heir, |status| status.contender.is_none()).await,
            "seed {seed}: {:?}",
            heir.status()
        );
        assert_eq!(world.children(ROOT).len(), 1, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_data_in_the_control_node_ask_nobody_to_step_down() {
    let world = world();
    let lock = lock(&world, "a");
    let token = lock.acquire().await.unwrap();
    eventually("the control node is there", || world.node(CONTROL).is_some()).await;
    for foreign in [&b"10.0.0.7"[..], b"{\"yield\":7}", b"\xff", b""] {
        world.set_data(CONTROL, foreign);
        assert!(
            is_still(&lock, |status| !status.yield_requested
                && status.token == Some(token))
            .await
        );
    }
    world.delete(CONTROL);
    eventually("the control node comes back", || world.node(CONTROL).is_some()).await;
    world.set_data(CONTROL, &request(&[&lock]));
    status_where(&lock, |status| status.yield_requested).await;
}
