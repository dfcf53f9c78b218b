//! Changes to the nodes by other clients, and the reactions of the lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper_fake::{Client, Freezable, Options, Traffic, World};
use lockkeeper_lock::ensemble::Closed;
use lockkeeper_lock::{Lock, LockOptions, LockState, LossReason, Observer};

use super::{
    ROOT, T, clock, contender, eventually, is_still, lock, lock_with, options, queued_at, state,
    status_where, world, world_of,
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
struct Moves {
    moved: AtomicU64,
    connected: AtomicU64,
}

impl Observer for Moves {
    fn renewed(&self, _: Duration) {}
    fn session_moved(&self) {
        self.moved.fetch_add(1, Ordering::Relaxed);
    }
    fn took_over(&self) {}
    fn connected(&self) {
        self.connected.fetch_add(1, Ordering::Relaxed);
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
        assert_eq!(moves.moved.load(Ordering::Relaxed), expected, "{servers} servers");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_counts_is_told_each_new_connection_also_one_to_the_same_server() {
    let world = Arc::new(World::new(Options {
        servers: 1,
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
    let before = moves.connected.load(Ordering::Relaxed);
    assert!(before > 0, "the first one");
    world.hang_up("a", Closed::Disconnected);
    state(&lock, LockState::Suspended).await;
    state(&lock, LockState::Held).await;
    assert!(moves.connected.load(Ordering::Relaxed) > before, "the next one");
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
    world.create(ROOT, b"");
    for name in ["leases", "x-latch-0000000000", "-lock-", "lock-1"] {
        world.create(&format!("{ROOT}/{name}"), b"{\"state\":\"held\"}");
    }
    holder.acquire().await.unwrap();
    assert_eq!(queued_at(&waiter, 1).await.state, LockState::Waiting);
    eventually("the holder reports that it holds", || {
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
    // The event of its watch and the end of its session come one after the other.
    let lost = state(&holder, LockState::Lost).await.loss;
    assert!(matches!(
        lost,
        Some(LossReason::SessionExpired | LossReason::ContenderDeleted)
    ));
    state(&waiter, LockState::Held).await;
}

/// The process of `waiter` is frozen until the leader has begun to end its session, and the holder releases meanwhile.
/// Returns every state that the waiter had after that, with its session.
async fn wakes_while_its_session_is_being_ended(seed: u64) -> Vec<(Option<i64>, LockState)> {
    let world = world_of(seed);
    let holder = lock(&world, "holder");
    holder.acquire().await.unwrap();
    let client = world.client("waiter");
    let freezable = Freezable::new(client.clone());
    let (waiter, task) = Lock::with_task::<Client>(client, clock(), options());
    tokio::spawn(freezable.run(task));
    let session = queued_at(&waiter, 1).await.session.unwrap();
    let mut view = waiter.view();
    loop {
        let (counted, ends) = world.counted(session).unwrap();
        let left = ends.saturating_sub(world.now());
        // No request of the waiter is under way any more, so this moment stays as it is.
        if world.now() > counted + T / 2 {
            world.freeze("waiter", left + Duration::from_millis(10));
            holder.release().await.unwrap();
            tokio::time::sleep(left).await;
            break;
        }
        world.freeze("waiter", T);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut states = Vec::new();
    while let Ok(Ok(status)) = tokio::time::timeout(T / 2, view.changed()).await {
        states.push((status.session, status.state));
        if status.session.is_some_and(|now| now != session) {
            return states;
        }
    }
    panic!("no new session: {states:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_wakes_while_the_ensemble_is_ending_its_session_does_not_hold_under_it() {
    for seed in 0..40 {
        let states = wakes_while_its_session_is_being_ended(seed).await;
        let old = states[..states.len() - 1].iter().map(|(_, state)| state);
        assert!(
            !old.clone().any(|state| *state == LockState::Held),
            "{seed}: {states:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn when_all_connections_break_the_holder_and_the_next_one_come_back_at_once_and_waiters_spread() {
    fastrand::seed(7);
    let world = world();
    let names: Vec<_> = (0..12).map(|number| number.to_string()).collect();
    let locks: Vec<_> = names.iter().map(|name| lock(&world, name)).collect();
    for (place, lock) in locks.iter().enumerate() {
        queued_at(lock, place).await;
    }
    let tokens: Vec<_> = locks.iter().map(|lock| lock.status().token).collect();
    // Long enough for the others to see that the holder holds.
    tokio::time::sleep(T).await;
    let cut = world.now();
    names.iter().for_each(|name| world.disconnect(name));
    let is_back = |state| matches!(state, LockState::Held | LockState::Waiting);
    let back = futures_util::future::join_all(locks.iter().map(async |lock| {
        status_where(lock, |status| !is_back(status.state)).await;
        status_where(lock, |status| is_back(status.state)).await;
        world.now() - cut
    }));
    let back = back.await;
    assert!(back[..2].iter().all(|took| *took < T / 20), "{back:?}");
    let waiters = &back[2..];
    assert!(waiters.iter().any(|took| *took > T / 4), "{back:?}");
    assert!(waiters.iter().any(|took| *took < T / 4), "{back:?}");
    assert!(waiters.iter().all(|took| *took < T / 2), "{back:?}");
    let now: Vec<_> = locks.iter().map(|lock| lock.status().token).collect();
    assert_eq!(now, tokens, "no contender has lost its place");
}

/// The log of this thread.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<String>>);

impl tracing::Subscriber for Logged {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = self.0.lock().unwrap();
        event.record(&mut |_: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            text.push_str(&format!("{value:?}\n"));
        });
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn nobody_is_accused_when_a_creation_that_never_arrived_is_asked_for_again_in_another_session() {
    let logged = Logged::default();
    let _here = tracing::subscriber::set_default(logged.clone());
    let world = world();
    let lock = lock(&world, "a");
    lock.acquire().await.unwrap();
    let before = lock.view().status().session;
    lock.release().await.unwrap();
    let server = world.server_of("a").expect("the session stays");
    world.cut_client("a", server, Traffic::Requests, T);
    lock.acquire().await.unwrap();
    assert_ne!(lock.view().status().session, before);
    assert_eq!(world.children(ROOT).len(), 1);
    let text = logged.0.lock().unwrap();
    assert!(text.contains("queueing in another session"), "{text}");
    assert!(!text.contains("has ended it"), "{text}");
}
