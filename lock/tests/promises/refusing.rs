//! A lock that cannot be had is refused, with the reason.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_fake::{Options, World};
use lockkeeper_lock::ensemble::{Closed, EnsembleError};
use lockkeeper_lock::{LeaseDuration, LockError, LockOptions, LockState, Timing};
use tokio::time::timeout;

use super::{BOUND, CONTROL, ROOT, T, lock, lock_with, world};

fn assert_refused(answer: LockError, path: &str) {
    let LockError::Refused { action, error } = answer else {
        panic!("{answer}")
    };
    assert_eq!(error, EnsembleError::NoAuth);
    assert!(action.contains(path), "{action}");
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_the_lock_root_contending_is_refused_with_its_path() {
    let world = world();
    world.forbid("/locks");
    let lock = lock(&world, "a");
    assert_refused(lock.contend().await.unwrap_err(), ROOT);
    assert_refused(lock.acquire().await.unwrap_err(), ROOT);
    assert_refused(lock.try_acquire().await.unwrap_err(), ROOT);
    assert_eq!(lock.status().state, LockState::Released);
    world.allow("/locks");
    lock.acquire().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_the_control_node_the_lock_is_held_and_released_all_the_same() {
    let world = world();
    world.forbid(CONTROL);
    let (first, second) = (lock(&world, "a"), lock(&world, "b"));
    let token = first.acquire().await.unwrap();
    second.contend().await.unwrap();
    first.release().await.unwrap();
    assert!(second.acquire().await.unwrap() > token);
    second.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_the_lock_hears_why_it_is_refused_after_all() {
    let world = world();
    let (holder, waiter) = (lock(&world, "a"), lock(&world, "b"));
    holder.acquire().await.unwrap();
    super::queued_at(&waiter, 1).await;
    let refused = async {
        // The waiter lists the children again when the one before it leaves.
        world.forbid(ROOT);
        world.delete(&super::contender(&holder));
    };
    let (answer, ()) = tokio::join!(waiter.acquire(), refused);
    assert_refused(answer.unwrap_err(), ROOT);
    let status = waiter.status();
    assert_eq!(status.state, LockState::Released);
    assert_refused(status.refusal.unwrap(), ROOT);
    world.allow(ROOT);
    waiter.acquire().await.unwrap();
    assert_eq!(waiter.status().refusal, None);
}

#[tokio::test(start_paused = true)]
async fn credentials_that_are_refused_over_a_connection_in_use_are_not_tried_for_ever() {
    let world = world();
    let (holder, waiter) = (lock(&world, "a"), lock(&world, "b"));
    holder.acquire().await.unwrap();
    // It waits: a call after the refusal would be a new attempt, with a session of its own.
    let mut acquiring = pin!(waiter.acquire());
    timeout(T, &mut acquiring).await.unwrap_err();
    // Its watches report it too, as for any lost connection.
    world.hang_up("b", Closed::AuthFailed);
    assert!(matches!(
        timeout(BOUND, acquiring).await.unwrap().unwrap_err(),
        LockError::Refused {
            error: EnsembleError::AuthFailed,
            ..
        }
    ));
    assert_eq!(waiter.status().state, LockState::Released);
}

fn generous() -> Arc<World> {
    Arc::new(World::new(Options {
        tick: Duration::from_secs(1),
        session_timeout: Duration::from_secs(60),
        ..Options::default()
    }))
}

fn long(stop_grace: Duration) -> LockOptions {
    let timing = Timing {
        tick_time: Duration::from_secs(1),
        stop_grace,
        lease_duration: LeaseDuration::Off,
        ..Timing::new(Duration::from_secs(60))
    };
    assert_eq!(timing.check(), Ok(()));
    LockOptions::new(ROOT, timing)
}

#[tokio::test(start_paused = true)]
async fn a_session_timeout_that_the_servers_shorten_is_the_one_that_counts() {
    let world = generous();
    let lock = lock_with(&world, "a", long(Duration::from_secs(1)));
    lock.acquire().await.unwrap();
    let status = lock.status();
    let granted = Duration::from_secs(20);
    assert_eq!(status.session_timeout, Some(granted));
    let end = status.lease_end.unwrap();
    assert!(end <= lockkeeper_lock::Clock::now(&super::clock()) + granted);
    assert_eq!(
        status.deadline(),
        Some(end.saturating_sub(Duration::from_millis(400)))
    );
    // Renewals come often enough for this session timeout.
    tokio::time::sleep(granted * 5).await;
    assert!(lock.view().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_session_timeout_that_the_servers_shorten_too_much_is_refused_with_the_arithmetic() {
    let world = generous();
    let lock = lock_with(&world, "a", long(Duration::from_secs(10)));
    let refused = lock.acquire().await.unwrap_err();
    assert!(matches!(refused, LockError::Timing { granted, .. } if granted == Duration::from_secs(20)));
    let message = refused.to_string();
    assert!(
        message.contains("session timeout of 20s") && message.contains("10s stop grace"),
        "{message}"
    );
    assert!(world.children(ROOT).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_server_costs_nobody_the_lock_and_refuses_nobody() {
    let world = world();
    // With more, the holder's lease ends first.
    for requests in 1..8 {
        let (first, second) = (lock(&world, "a"), lock(&world, "b"));
        world.throttle("a", requests);
        let token = first.acquire().await.unwrap();
        world.throttle("b", requests);
        super::queued_at(&second, 1).await;
        world.throttle("a", requests);
        let is_held = |status: &lockkeeper_lock::LockStatus| {
            status.token == Some(token) && matches!(status.state, LockState::Held | LockState::Suspended)
        };
        assert!(super::is_still(&first, is_held).await, "{:?}", first.status());
        assert_eq!(first.status().state, LockState::Held);
        world.throttle("a", requests);
        first.release().await.unwrap();
        world.throttle("b", requests);
        assert!(second.acquire().await.unwrap() > token);
        assert!(!second.participants().await.unwrap().is_empty());
        second.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_root_whose_sequence_numbers_are_used_up_is_refused_with_what_would_be_right() {
    for number in ["2147483647", "-2147483648", "-000000001"] {
        let world = world();
        let lock = lock(&world, "a");
        // As after 2^31 contenders; depending on the number, this one stays behind ours or before it.
        let other = format!("_c_00000000-0000-0000-0000-000000000000-lock-{number}");
        world.create("/locks", b"");
        world.create(ROOT, b"");
        world.create(&format!("{ROOT}/{other}"), b"");
        let refused = lock.acquire().await.unwrap_err();
        assert_eq!(
            refused,
            LockError::OutOfNumbers {
                root: ROOT.to_owned(),
                contender: other,
            }
        );
        assert_eq!(lock.status().state, LockState::Released);
        let said = refused.to_string();
        assert!(said.contains("make a new lock root"), "{said}");
    }
}
