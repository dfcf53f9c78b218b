//! `ask_for_predecessor`.

use std::num::NonZeroU32;

use lockkeeper_fake::World;
use lockkeeper_lock::{Control, FencingToken, LockOptions, LockState, Mode};
use std::sync::Arc;

use super::{
    CONTROL, FakeLock, ROOT, eventually, lock, lock_with, options, queued_at, state, status_where, world_of,
};

fn asking(world: &Arc<World>, name: &str, mode: Mode) -> FakeLock {
    let options = LockOptions {
        mode,
        ask_for_predecessor: true,
        ..options()
    };
    lock_with(world, name, options)
}

/// The last contender waits while all before it hold. The first one ends, cleanly or not.
async fn is_unclean(seed: u64, mode: Mode, holders: usize, is_crash: bool) -> bool {
    let world = world_of(seed);
    let mut held = Vec::new();
    for number in 0..holders {
        let lock = asking(&world, &number.to_string(), mode);
        lock.acquire().await.unwrap();
        assert!(!lock.status().predecessor_unclean, "no contender was before it");
        held.push(lock);
    }
    let heir = asking(&world, "heir", mode);
    queued_at(&heir, 1).await;
    let first = held.remove(0);
    if is_crash {
        world.expire(first.status().session.unwrap());
    } else {
        first.release().await.unwrap();
    }
    state(&heir, LockState::Held).await.predecessor_unclean
}

fn semaphore() -> Mode {
    Mode::Semaphore(NonZeroU32::new(2).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_predecessor_that_released_is_clean() {
    for seed in 0..20 {
        assert!(!is_unclean(seed, Mode::Exclusive, 1, false).await, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_predecessor_that_crashed_is_not_clean() {
    for seed in 0..20 {
        assert!(is_unclean(seed, Mode::Exclusive, 1, true).await, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_of_a_semaphore_that_released_is_clean_while_the_other_one_still_holds() {
    for seed in 0..20 {
        assert!(!is_unclean(seed, semaphore(), 2, false).await, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_of_a_semaphore_that_crashed_is_not_clean() {
    for seed in 0..20 {
        assert!(is_unclean(seed, semaphore(), 2, true).await, "seed {seed}");
    }
}

/// The holder has crashed, and two waiters are left.
async fn two_behind_a_crash() -> (Arc<World>, FakeLock, FakeLock) {
    let world = world_of(0);
    let [first, second, third] =
        ["first", "second", "third"].map(|name| asking(&world, name, Mode::Exclusive));
    first.acquire().await.unwrap();
    queued_at(&second, 1).await;
    queued_at(&third, 2).await;
    world.expire(first.status().session.unwrap());
    (world, second, third)
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_the_business_of_the_next_one_and_not_of_the_one_after_it() {
    let (_world, second, third) = two_behind_a_crash().await;
    let held = state(&second, LockState::Held).await;
    assert!(held.predecessor_unclean);
    second.settle(held.token.unwrap());
    status_where(&second, |status| !status.predecessor_unclean).await;
    second.release().await.unwrap();
    assert!(!state(&third, LockState::Held).await.predecessor_unclean);
}

#[tokio::test(start_paused = true)]
async fn who_has_not_waited_after_a_crash_leaves_the_wait_to_the_next_one() {
    let (_world, second, third) = two_behind_a_crash().await;
    assert!(state(&second, LockState::Held).await.predecessor_unclean);
    second.release().await.unwrap();
    assert!(state(&third, LockState::Held).await.predecessor_unclean);
}

#[tokio::test(start_paused = true)]
async fn a_crash_that_nobody_in_the_queue_has_seen_is_not_clean() {
    for (seed, mode) in (0..20).zip(
        [Mode::Exclusive, semaphore(), Mode::Write, Mode::Read]
            .into_iter()
            .cycle(),
    ) {
        let world = world_of(seed);
        let first = asking(
            &world,
            "first",
            if mode == Mode::Read { Mode::Write } else { mode },
        );
        first.acquire().await.unwrap();
        world.expire(first.status().session.unwrap());
        drop(first);
        let next = asking(&world, "next", mode);
        next.acquire().await.unwrap();
        assert!(next.status().predecessor_unclean, "seed {seed}, {mode:?}");
    }
}

/// Another client's contender with this number, below a lock root that was just created.
fn curator(world: &World, number: u32) -> String {
    let path = format!("{ROOT}/_c_5f0c3f1e-0000-4000-8000-000000000000-lock-{number:010}");
    world.create_owned(&path, b"10.0.0.7", 77);
    path
}

#[tokio::test(start_paused = true)]
async fn clean_releases_below_an_older_lock_root_settle_nothing_below_the_new_one() {
    let world = world_of(0);
    for _ in 0..5 {
        let lock = asking(&world, "earlier", Mode::Exclusive);
        lock.acquire().await.unwrap();
        lock.release().await.unwrap();
    }
    world.delete(ROOT);
    let agreement = lockkeeper_lock::Agreement::of(Mode::Exclusive).to_data();
    world.create(ROOT, &agreement);
    let holder = curator(&world, 0);
    let heir = asking(&world, "heir", Mode::Exclusive);
    queued_at(&heir, 1).await;
    world.delete(&holder);
    assert!(state(&heir, LockState::Held).await.predecessor_unclean);
}

/// The holders in the control node.
fn holders(world: &World) -> Vec<FencingToken> {
    let control = world.node(CONTROL).map(|node| Control::parse(&node.data));
    let holders = control.and_then(|control| control.holders).unwrap_or_default();
    holders.iter().map(|holder| holder.token).collect()
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_asks_is_written_down_before_it_holds() {
    for seed in 0..20 {
        let world = world_of(seed);
        for (name, mode) in [("first", Mode::Exclusive), ("second", Mode::Exclusive)] {
            let lock = asking(&world, name, mode);
            if seed.is_multiple_of(2) {
                // It was written, but the answer was lost.
                lock.contend().await.unwrap();
                world.lose_next_answer(name);
            }
            let token = lock.acquire().await.unwrap();
            assert_eq!(holders(&world), [token], "seed {seed}");
            lock.release().await.unwrap();
            assert_eq!(holders(&world), [], "seed {seed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_does_not_ask_is_written_down_all_the_same_where_it_holds_alone() {
    let world = world_of(0);
    let first = lock(&world, "first");
    let token = first.acquire().await.unwrap();
    eventually("it is recorded", || holders(&world) == [token]).await;
    world.expire(first.status().session.unwrap());
    drop(first);
    let next = asking(&world, "next", Mode::Exclusive);
    next.acquire().await.unwrap();
    assert!(next.status().predecessor_unclean);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_does_not_ask_waits_for_nobody_and_settles_nothing() {
    let world = world_of(0);
    let first = asking(&world, "first", Mode::Exclusive);
    first.acquire().await.unwrap();
    world.expire(first.status().session.unwrap());
    drop(first);
    let hasty = lock(&world, "hasty");
    let token = hasty.acquire().await.unwrap();
    hasty.settle(token);
    eventually("it is recorded", || holders(&world).contains(&token)).await;
    hasty.release().await.unwrap();
    let next = asking(&world, "next", Mode::Exclusive);
    next.acquire().await.unwrap();
    assert!(next.status().predecessor_unclean);
}

#[tokio::test(start_paused = true)]
async fn who_comes_after_one_that_has_waited_does_not_wait_for_the_one_before_it() {
    let world = world_of(0);
    let first = asking(&world, "first", semaphore());
    first.acquire().await.unwrap();
    world.expire(first.status().session.unwrap());
    drop(first);
    let second = asking(&world, "second", semaphore());
    let token = second.acquire().await.unwrap();
    assert!(second.status().predecessor_unclean);
    second.settle(token);
    eventually("it is settled", || holders(&world) == [token]).await;
    let third = asking(&world, "third", semaphore());
    third.acquire().await.unwrap();
    assert!(!third.status().predecessor_unclean, "the second goes on");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_not_held_settles_nothing() {
    let world = world_of(0);
    let first = asking(&world, "first", Mode::Exclusive);
    let old = first.acquire().await.unwrap();
    world.expire(first.status().session.unwrap());
    state(&first, LockState::Lost).await;
    first.release().await.unwrap();
    first.settle(old);
    first.acquire().await.unwrap();
    first.settle(old);
    assert!(
        first.status().predecessor_unclean,
        "its own hold before did not end cleanly"
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_control_node_that_can_be_used_the_holder_before_counts_as_one_that_died() {
    for is_written_to in [false, true] {
        let world = world_of(0);
        let first = asking(&world, "first", Mode::Exclusive);
        first.acquire().await.unwrap();
        first.release().await.unwrap();
        if is_written_to {
            world.protect(CONTROL);
        } else {
            world.forbid(CONTROL);
        }
        let second = asking(&world, "second", Mode::Exclusive);
        second.acquire().await.unwrap();
        assert!(second.status().predecessor_unclean);
        second.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_control_node_that_was_emptied_counts_as_a_holder_that_died() {
    let world = world_of(0);
    let first = asking(&world, "first", Mode::Exclusive);
    first.acquire().await.unwrap();
    world.expire(first.status().session.unwrap());
    drop(first);
    world.delete(CONTROL);
    let second = asking(&world, "second", Mode::Exclusive);
    second.acquire().await.unwrap();
    assert!(second.status().predecessor_unclean);
    second.release().await.unwrap();
    let third = asking(&world, "third", Mode::Exclusive);
    let token = third.acquire().await.unwrap();
    assert!(third.status().predecessor_unclean, "the second has not waited");
    third.settle(token);
    third.release().await.unwrap();
    let fourth = asking(&world, "fourth", Mode::Exclusive);
    fourth.acquire().await.unwrap();
    assert!(!fourth.status().predecessor_unclean);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_was_removed_from_the_control_node_is_written_down_again() {
    let world = world_of(0);
    let holder = asking(&world, "holder", semaphore());
    let token = holder.acquire().await.unwrap();
    world.set_data(CONTROL, br#"{"v":1,"holders":[]}"#);
    eventually("it is there again", || holders(&world) == [token]).await;
    world.delete(CONTROL);
    eventually("and again", || holders(&world) == [token]).await;
}

#[tokio::test(start_paused = true)]
async fn a_control_node_that_names_as_many_holders_as_it_can_keeps_nobody_from_the_lock() {
    let world = world_of(0);
    let first = asking(&world, "first", semaphore());
    first.acquire().await.unwrap();
    first.release().await.unwrap();
    let named = (0..64).map(|number| format!(r#"{{"contender":"x-lock-{number:010}","token":{number}}}"#));
    let named: Vec<_> = named.collect();
    let full = format!(r#"{{"v":1,"holders":[{}],"moreHolders":1}}"#, named.join(","));
    world.set_data(CONTROL, full.as_bytes());
    let next = asking(&world, "next", semaphore());
    let token = next
        .acquire_within(super::BOUND)
        .await
        .unwrap()
        .expect("it holds");
    assert!(next.status().predecessor_unclean);
    assert!(holders(&world).contains(&token));
}
