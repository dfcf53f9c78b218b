//! The holds that the control node remembers: who held, when, and how each hold ended.

use std::num::NonZeroU32;
use std::sync::Arc;

use lockkeeper_fake::World;
use lockkeeper_lock::{Control, FencingToken, Hold, HoldEnd, Identity, LockOptions, LockState, Mode};

use super::takeover::{sharing, states_its_lease, with_lease};
use super::yielding::request;
use super::{
    CONTROL, FakeLock, contender, eventually, is_still, lock_with, options, queued_at, state, status_where,
    world_of,
};

fn holds(world: &World) -> Vec<Hold> {
    let control = world.node(CONTROL).map(|node| Control::parse(&node.data));
    control.unwrap_or_default().holds
}

/// Newest first.
fn ends(world: &World) -> Vec<(FencingToken, Option<HoldEnd>)> {
    let holds = holds(world);
    holds.iter().map(|hold| (hold.token, hold.ended)).collect()
}

fn on_host(host: &str, options: LockOptions) -> LockOptions {
    LockOptions {
        identity: Identity {
            host: Some(host.to_owned()),
            ..Identity::default()
        },
        ..options
    }
}

/// A contender on the machine with its name.
fn named(world: &Arc<World>, name: &str, options: LockOptions) -> FakeLock {
    lock_with(world, name, on_host(name, options))
}

async fn is_written_down(world: &World, token: FencingToken) {
    eventually("the holder is written down", || {
        holds(world).first().is_some_and(|hold| hold.token == token)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn each_release_tells_who_held_from_when_until_when_and_whether_it_was_asked_to() {
    for seed in 0..20 {
        let world = world_of(seed);
        let [first, second] = ["db-1", "db-2"].map(|name| named(&world, name, options()));
        let one = first.acquire().await.unwrap();
        is_written_down(&world, one).await;
        assert_eq!(ends(&world), [(one, None)], "seed {seed}");
        first.release().await.unwrap();
        assert_eq!(ends(&world), [(one, Some(HoldEnd::Released))], "seed {seed}");
        let two = second.acquire().await.unwrap();
        is_written_down(&world, two).await;
        let third = named(&world, "db-3", options());
        queued_at(&third, 1).await;
        let mut control: serde_json::Value =
            serde_json::from_slice(&world.node(CONTROL).unwrap().data).unwrap();
        let asked: serde_json::Value = serde_json::from_slice(&request(&[&second])).unwrap();
        control["yield"] = asked["yield"].clone();
        world.set_data(CONTROL, control.to_string().as_bytes());
        status_where(&second, |status| status.yield_requested).await;
        second.release().await.unwrap();
        let three = state(&third, LockState::Held).await.token.unwrap();
        is_written_down(&world, three).await;
        assert_eq!(
            ends(&world),
            [
                (three, None),
                (two, Some(HoldEnd::HandedOver)),
                (one, Some(HoldEnd::Released))
            ],
            "seed {seed}"
        );
        let past = &holds(&world)[2];
        assert_eq!(past.who(), "db-1");
        assert!(past.since.is_some() && past.until >= past.since, "{past:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_died_is_told_by_the_next_one_with_how_long_it_was_silent() {
    for seed in 0..20 {
        let world = world_of(seed);
        let [holder, heir] = ["db-1", "db-2"].map(|name| named(&world, name, with_lease()));
        let one = holder.acquire().await.unwrap();
        queued_at(&heir, 1).await;
        states_its_lease(&world, &contender(&holder)).await;
        drop(holder);
        let two = state(&heir, LockState::Held).await.token.unwrap();
        is_written_down(&world, two).await;
        assert_eq!(
            ends(&world),
            [(two, None), (one, Some(HoldEnd::TakenOver))],
            "seed {seed}"
        );
        let past = &holds(&world)[1];
        assert_eq!(
            (past.who(), past.taken_by.as_deref()),
            ("db-1".into(), Some("db-2"))
        );
        assert!(
            past.silent_millis.is_some_and(|millis| millis >= 2_000),
            "{past:?}"
        );
        assert!(past.since.is_some() && past.until.is_some(), "{past:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_session_expired_is_lost_and_the_time_is_told_only_by_one_that_saw_it_go() {
    for does_wait in [true, false] {
        let world = world_of(0);
        let holder = named(&world, "db-1", options());
        let one = holder.acquire().await.unwrap();
        is_written_down(&world, one).await;
        let next = named(&world, "db-2", options());
        if does_wait {
            queued_at(&next, 1).await;
            // It has read the holder meanwhile.
            assert!(is_still(&next, |status| status.position == Some(1)).await);
        }
        world.expire(holder.status().session.unwrap());
        drop(holder);
        let two = next.acquire().await.unwrap();
        is_written_down(&world, two).await;
        assert_eq!(ends(&world), [(two, None), (one, Some(HoldEnd::Lost))]);
        let past = &holds(&world)[1];
        assert_eq!(
            (past.until.is_some(), past.taken_by.as_deref()),
            (does_wait, None)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_history_costs_no_write_of_its_own() {
    let world = world_of(0);
    let locks = ["db-1", "db-2"].map(|name| named(&world, name, options()));
    const HOLDS: i32 = 30;
    for (number, lock) in (1..=HOLDS).zip(locks.iter().cycle()) {
        let token = lock.acquire().await.unwrap();
        is_written_down(&world, token).await;
        lock.release().await.unwrap();
        // The holder's record, and its release.
        assert_eq!(world.node(CONTROL).unwrap().version, 2 * number);
    }
    assert_eq!(holds(&world).len(), lockkeeper_lock::HOLDS_KEPT);
}

#[tokio::test(start_paused = true)]
async fn a_holder_of_a_semaphore_is_told_at_its_release_and_one_that_died_at_the_next_release() {
    for seed in 0..20 {
        let world = world_of(seed);
        let [first, dead, heir] = ["db-1", "db-2", "db-3"].map(|name| sharing(&world, name));
        let one = first.acquire().await.unwrap();
        let two = dead.acquire().await.unwrap();
        queued_at(&heir, 1).await;
        for lock in [&first, &dead] {
            states_its_lease(&world, &contender(lock)).await;
        }
        drop(dead);
        let three = state(&heir, LockState::Held).await.token.unwrap();
        assert_eq!(
            ends(&world),
            [],
            "seed {seed}: no holder of a semaphore records itself"
        );
        heir.release().await.unwrap();
        let expected = [(three, Some(HoldEnd::Released)), (two, Some(HoldEnd::TakenOver))];
        assert_eq!(ends(&world), expected, "seed {seed}");
        first.release().await.unwrap();
        assert_eq!(ends(&world)[0], (one, Some(HoldEnd::Released)), "seed {seed}");
        assert_eq!(ends(&world)[1..], expected, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn holders_that_record_themselves_beside_others_are_not_told_as_gone() {
    let world = world_of(0);
    let shared = || LockOptions {
        mode: Mode::Semaphore(NonZeroU32::new(2).unwrap()),
        ask_for_predecessor: true,
        ..options()
    };
    let [first, second, third] = ["db-1", "db-2", "db-3"].map(|name| named(&world, name, shared()));
    let one = first.acquire().await.unwrap();
    let two = second.acquire().await.unwrap();
    queued_at(&third, 1).await;
    world.expire(second.status().session.unwrap());
    drop(second);
    let three = state(&third, LockState::Held).await.token.unwrap();
    is_written_down(&world, three).await;
    assert_eq!(
        ends(&world),
        [(three, None), (two, Some(HoldEnd::Lost)), (one, None)]
    );
}
