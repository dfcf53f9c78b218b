//! The moment from which the task counts is always before its request. And events that it does not count.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_fake::{Client, Freezable, SkewedClock, World};
use lockkeeper_lock::ensemble::Closed;
use lockkeeper_lock::{BootInstant, Clock, Lock, LockState};

use super::{FakeLock, T, clock, lock, options, state, status_where, world, world_of};

/// Long compared with everything else that takes time in this world, and shorter than the wait for a server.
const SLOW: Duration = Duration::from_millis(300);

/// So short that a later renewal can still prove a renewal that waits for it: an interval less half a tick and the
/// slack.
const BRIEF: Duration = Duration::from_millis(40);

/// A lock, and its clock.
fn lock_with_clock(world: &Arc<World>) -> (FakeLock, SkewedClock) {
    let clock = clock();
    let lock = Lock::new::<Client>(world.client("a"), clock.clone(), options());
    (lock, clock)
}

/// Stops all answers for some time.
fn stall(world: &Arc<World>, length: Duration) {
    for server in 0..3 {
        world.stall(server, length);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_session_is_counted_from_the_moment_at_which_it_was_asked_for() {
    let world = world();
    let (lock, clock) = lock_with_clock(&world);
    let asked = clock.now();
    stall(&world, SLOW);
    lock.contend().await.unwrap();
    let status = status_where(&lock, |status| status.lease_end.is_some()).await;
    assert!(status.lease_end.unwrap() < asked + T + SLOW / 2, "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_taken_elsewhere_is_counted_from_the_moment_at_which_that_was_asked_for() {
    let world = world();
    let (lock, clock) = lock_with_clock(&world);
    lock.acquire().await.unwrap();
    tokio::time::sleep(T).await;
    let asked = clock.now();
    world.disconnect("a");
    stall(&world, SLOW);
    state(&lock, LockState::Suspended).await;
    let status = state(&lock, LockState::Held).await;
    let end = status.lease_end.unwrap();
    assert!(end + SLOW > asked + T && end < asked + T + SLOW / 2, "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_is_counted_from_the_moment_at_which_it_was_sent() {
    let world = world();
    let (lock, clock) = lock_with_clock(&world);
    lock.acquire().await.unwrap();
    tokio::time::sleep(T).await;
    // Half of the time there are no answers: they come later.
    let mut windows = Vec::new();
    let mut ends = Vec::new();
    for _ in 0..400 {
        windows.push(clock.now());
        stall(&world, BRIEF);
        tokio::time::sleep(BRIEF * 2).await;
        ends.push(lock.status().lease_end.unwrap());
    }
    ends.dedup();
    let is_unanswered = |end: &&BootInstant| {
        let counted_from = end.saturating_sub(T);
        windows
            .iter()
            .any(|begin| *begin + BRIEF / 8 < counted_from && counted_from < *begin + BRIEF * 3 / 4)
    };
    assert!(ends.len() > 20, "{ends:?}");
    assert!(ends.iter().filter(is_unanswered).count() > 3, "{ends:?}");
}

/// Whether a process that wakes has a longer lease, if the connection was lost after a renewal was answered.
async fn counts_what_a_lost_connection_has_answered(seed: u64) -> bool {
    let world = world_of(seed);
    let client = world.client("a");
    let (lock, task) = Lock::with_task::<Client>(client.clone(), clock(), options());
    tokio::spawn(Freezable::new(client).run(task));
    lock.acquire().await.unwrap();
    tokio::time::sleep(T).await;
    let mut seen = lock.view().receiver();
    // The next renewal is sent, and not answered.
    let interval = options().timing.renew_interval;
    stall(&world, interval - Duration::from_millis(20));
    tokio::time::sleep(interval - Duration::from_millis(30)).await;
    let before = lock.status().lease_end;
    world.freeze("a", Duration::from_millis(100));
    tokio::time::sleep(Duration::from_millis(60)).await;
    world.hang_up("a", Closed::Disconnected);
    seen.mark_unchanged();
    seen.changed().await.unwrap();
    let after = seen.borrow().lease_end;
    after != before
}

#[tokio::test(start_paused = true)]
async fn an_answer_over_a_connection_that_was_gone_meanwhile_extends_no_lease() {
    for seed in 0..20 {
        assert!(
            !counts_what_a_lost_connection_has_answered(seed).await,
            "seed {seed}"
        );
    }
}

/// As when a server is reached again too late.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_stays_lost_when_the_servers_are_back() {
    let world = world();
    let lock = lock(&world, "a");
    let token = lock.acquire().await.unwrap();
    lock.retain(true);
    world.isolate("a", T * 4);
    state(&lock, LockState::Lost).await;
    world.heal();
    tokio::time::sleep(T).await;
    // No other contender has taken its place, so only its own loss keeps it from going on.
    let status = lock.status();
    assert_eq!(status.state, LockState::Lost, "{status:?} {token:?}");
}
