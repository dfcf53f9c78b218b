//! `release`, `step_down`, `abandon`, `close`, and an end without them.

use lockkeeper_lock::{CleanRelease, Clock, Control, Lock, LockState};

use super::{
    BOUND, CONTROL, FakeLock, ROOT, clock, contender, eventually, lock, options, queued_at, state,
    status_where, world,
};

#[tokio::test(start_paused = true)]
async fn the_contender_is_gone_and_the_release_is_noted_when_release_returns() {
    let world = world();
    let lock = lock(&world, "a");
    let token = lock.acquire().await.unwrap();
    let name = lock.status().contender.unwrap();
    lock.release().await.unwrap();
    assert!(world.children(ROOT).is_empty());
    let control = Control::parse(&world.node(CONTROL).unwrap().data);
    let expected = CleanRelease {
        contender: name,
        token,
    };
    assert_eq!(control.last_release, [expected]);
    assert!(!lock.view().is_held());
    state(&lock, LockState::Released).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_is_gone_and_not_noted_as_a_release() {
    let world = world();
    let [holder, waiter] = ["holder", "waiter"].map(|name| lock(&world, name));
    holder.acquire().await.unwrap();
    queued_at(&waiter, 1).await;
    waiter.release().await.unwrap();
    assert_eq!(world.children(ROOT).len(), 1);
    eventually("the control node is there", || world.node(CONTROL).is_some()).await;
    let control = Control::parse(&world.node(CONTROL).unwrap().data);
    assert!(control.last_release.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_is_lost_returns_when_the_contender_is_gone() {
    let world = world();
    let lock = lock(&world, "a");
    lock.acquire().await.unwrap();
    status_where(&lock, |status| status.state == LockState::Held).await;
    world.lose_next_answer("a");
    tokio::time::timeout(BOUND, lock.release())
        .await
        .expect("in time")
        .unwrap();
    assert!(world.children(ROOT).is_empty());
}

#[tokio::test(start_paused = true)]
async fn releasing_what_was_never_acquired_is_fine() {
    let world = world();
    let lock = lock(&world, "a");
    lock.release().await.unwrap();
    lock.release().await.unwrap();
    assert_eq!(lock.status().state, LockState::Released);
    lock.acquire().await.unwrap();
    lock.release().await.unwrap();
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_release_leaves_what_others_wrote_into_the_control_node() {
    let world = world();
    let lock = lock(&world, "a");
    lock.acquire().await.unwrap();
    eventually("the control node is there", || world.node(CONTROL).is_some()).await;
    // The holder may or may not have received it when it releases.
    world.set_data(
        CONTROL,
        br#"{"v":1,"yield":{"id":"7","contenders":["x"]},"note":"mine"}"#,
    );
    lock.release().await.unwrap();
    let control = Control::parse(&world.node(CONTROL).unwrap().data);
    assert_eq!(control.last_release.len(), 1);
    assert!(control.asks("x"));
    assert_eq!(control.other["note"], "mine");
}

#[tokio::test(start_paused = true)]
async fn stepping_down_queues_again_at_the_end_under_a_greater_token() {
    let world = world();
    let [holder, waiter] = ["holder", "waiter"].map(|name| lock(&world, name));
    let first = holder.acquire().await.unwrap();
    queued_at(&waiter, 1).await;
    holder.step_down().await.unwrap();
    let second = waiter.acquire().await.unwrap();
    let again = status_where(&holder, |status| status.position == Some(1)).await;
    assert!(first < second && Some(second) < again.token);
    waiter.release().await.unwrap();
    let held = state(&holder, LockState::Held).await;
    assert_eq!(held.token, again.token);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_lock_releases_nothing_before_its_session_expires() {
    let world = world();
    let waiter = lock(&world, "waiter");
    let clock = clock();
    let holder: FakeLock = Lock::new(world.client("holder"), clock.clone(), options());
    holder.acquire().await.unwrap();
    queued_at(&waiter, 1).await;
    let (node, session) = (contender(&holder), holder.status().session.unwrap());
    let (view, lease_end) = (holder.view(), holder.status().lease_end.unwrap());
    let left = lease_end - clock.now();
    let dropped = world.now();
    drop(holder);
    eventually("renewals have stopped", || !view.is_held()).await;
    assert!(world.node(&node).is_some());
    waiter.acquire().await.unwrap();
    assert!(!world.is_alive(session), "only the end of the session gave it up");
    assert!(world.now() >= dropped + left, "the lease was over before");
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_its_owner_releases_nothing_before_the_session_expires() {
    let world = world();
    let [holder, waiter] = ["holder", "waiter"].map(|name| lock(&world, name));
    holder.acquire().await.unwrap();
    queued_at(&waiter, 1).await;
    let (node, session) = (contender(&holder), holder.status().session.unwrap());
    let view = holder.view();
    let owner = tokio::spawn(async move {
        let _mine = holder;
        panic!("a bug of the owner, on purpose");
    });
    assert!(owner.await.unwrap_err().is_panic());
    eventually("renewals have stopped", || !view.is_held()).await;
    assert!(world.node(&node).is_some());
    waiter.acquire().await.unwrap();
    assert!(!world.is_alive(session));
}

#[tokio::test(start_paused = true)]
async fn abandoning_keeps_the_contender_until_the_session_expires() {
    let world = world();
    let [holder, waiter] = ["holder", "waiter"].map(|name| lock(&world, name));
    holder.acquire().await.unwrap();
    queued_at(&waiter, 1).await;
    let session = holder.status().session.unwrap();
    holder.abandon();
    waiter.acquire().await.unwrap();
    assert!(!world.is_alive(session));
}

#[tokio::test(start_paused = true)]
async fn closing_releases_and_ends_the_session() {
    let world = world();
    let lock = lock(&world, "a");
    lock.acquire().await.unwrap();
    let session = lock.status().session.unwrap();
    lock.close().await.unwrap();
    assert!(world.children(ROOT).is_empty());
    eventually("the session is over", || !world.is_alive(session)).await;
    assert!(
        world
            .records()
            .iter()
            .any(|record| { record.happened == lockkeeper_fake::Happened::Closed { session } })
    );
}
