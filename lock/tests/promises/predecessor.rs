//! `ask_for_predecessor`.

use std::num::NonZeroU32;

use lockkeeper_lock::fake::World;
use lockkeeper_lock::{LockOptions, LockState, Mode};
use std::sync::Arc;

use super::{FakeLock, lock_with, options, queued_at, state, world_of};

fn asking(world: &Arc<World>, name: &str, mode: Mode) -> FakeLock {
    let options = LockOptions {
        mode,
        ask_for_predecessor: true,
        ..options()
    };
    lock_with(world, name, options)
}

/// The last one waits while all before it hold. The first one ends, cleanly or not.
async fn is_unclean(seed: u64, mode: Mode, holders: usize, is_crash: bool) -> bool {
    let world = world_of(seed);
    let mut held = Vec::new();
    for number in 0..holders {
        let lock = asking(&world, &number.to_string(), mode);
        lock.acquire().await.unwrap();
        assert!(!lock.status().predecessor_unclean, "nobody was before it");
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

#[tokio::test(start_paused = true)]
async fn a_crash_is_the_business_of_the_next_one_and_not_of_the_one_after_it() {
    let world = world_of(0);
    let [first, second, third] =
        ["first", "second", "third"].map(|name| asking(&world, name, Mode::Exclusive));
    first.acquire().await.unwrap();
    queued_at(&second, 1).await;
    queued_at(&third, 2).await;
    world.expire(first.status().session.unwrap());
    assert!(state(&second, LockState::Held).await.predecessor_unclean);
    second.release().await.unwrap();
    assert!(!state(&third, LockState::Held).await.predecessor_unclean);
}
