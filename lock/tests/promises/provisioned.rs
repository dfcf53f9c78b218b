//! The lock waits for nodes that another client has to create, and never creates them.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_fake::World;
use lockkeeper_lock::ensemble::EnsembleError;
use lockkeeper_lock::{Agreement, LockError, LockOptions, LockState, LossReason, Mode, SLACK};

use super::{CONTROL, FakeLock, ROOT, contender, eventually, is_still, lock_with, options, state, world};

fn provisioned(world: &Arc<World>, name: &str) -> FakeLock {
    let options = LockOptions {
        provisioned: true,
        ..options()
    };
    lock_with(world, name, options)
}

/// Waits until the lock reports that it waits for this.
async fn awaits(lock: &FakeLock, path: &str, error: EnsembleError) {
    let expected = Some(LockError::NotProvided {
        path: path.to_owned(),
        error,
    });
    let status = super::status_where(lock, |status| status.refusal == expected).await;
    assert_eq!(status.state, LockState::Connecting);
}

fn provide(world: &World, path: &str) {
    if world.node("/locks").is_none() {
        world.create("/locks", b"");
    }
    let agreement = Agreement::of(Mode::Exclusive).to_data();
    world.create(path, if path == ROOT { &agreement } else { b"" });
}

#[tokio::test(start_paused = true)]
async fn a_lock_goes_on_as_soon_as_its_nodes_are_made_and_makes_none_itself() {
    let world = world();
    let lock = provisioned(&world, "a");
    let (held, ()) = tokio::join!(lock.acquire(), async {
        awaits(&lock, ROOT, EnsembleError::NoNode).await;
        provide(&world, ROOT);
        awaits(&lock, CONTROL, EnsembleError::NoNode).await;
        assert!(is_still(&lock, |status| status.state == LockState::Connecting).await);
        assert!(world.node(CONTROL).is_none());
        provide(&world, CONTROL);
        let before = world.now();
        state(&lock, LockState::Held).await;
        // A watch reports it, with no need to check from time to time: messages take 3 ms here, and 20 ms between
        // servers. The session is old by now: its lease is proven by a second write after the slack.
        let took = world.now() - before;
        assert!(took < Duration::from_millis(200) + SLACK, "{took:?}");
    });
    held.unwrap();
    assert_eq!(lock.status().refusal, None);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_is_waited_for() {
    for path in [ROOT, CONTROL] {
        let world = world();
        provide(&world, ROOT);
        provide(&world, CONTROL);
        world.forbid(path);
        let lock = provisioned(&world, "a");
        let (held, ()) = tokio::join!(lock.acquire(), async {
            awaits(&lock, path, EnsembleError::NoAuth).await;
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(lock.status().state, LockState::Connecting);
            world.allow(path);
        });
        held.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_waits_for_its_nodes_can_be_left() {
    let world = world();
    let lock = provisioned(&world, "a");
    let (refused, ()) = tokio::join!(lock.acquire(), async {
        awaits(&lock, ROOT, EnsembleError::NoNode).await;
        lock.release().await.unwrap();
    });
    assert_eq!(refused, Err(LockError::NotQueued));
    provide(&world, ROOT);
    provide(&world, CONTROL);
    assert!(is_still(&lock, |status| status.state == LockState::Released).await);
    assert!(world.children(ROOT).is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_connection_or_the_session_does_not_end_the_wait() {
    let world = world();
    let lock = provisioned(&world, "a");
    let (held, ()) = tokio::join!(lock.acquire(), async {
        for _ in 0..3 {
            awaits(&lock, ROOT, EnsembleError::NoNode).await;
            world.expire(lock.status().session.expect("a session"));
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        provide(&world, ROOT);
        provide(&world, CONTROL);
    });
    held.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_root_that_somebody_deletes_is_a_loss_and_then_waited_for() {
    let world = world();
    provide(&world, ROOT);
    provide(&world, CONTROL);
    let lock = provisioned(&world, "a");
    lock.acquire().await.unwrap();
    world.delete(&contender(&lock));
    world.delete(ROOT);
    let lost = state(&lock, LockState::Lost).await;
    assert_eq!(lost.loss, Some(LossReason::ContenderDeleted));
    lock.release().await.unwrap();
    let (held, ()) = tokio::join!(lock.acquire(), async {
        awaits(&lock, ROOT, EnsembleError::NoNode).await;
        provide(&world, ROOT);
    });
    held.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_control_node_that_goes_is_done_without_until_it_comes_back() {
    let world = world();
    provide(&world, ROOT);
    provide(&world, CONTROL);
    let lock = provisioned(&world, "a");
    lock.acquire().await.unwrap();
    world.delete(CONTROL);
    assert!(is_still(&lock, |status| status.state == LockState::Held).await);
    assert!(world.node(CONTROL).is_none());
    let own = lock.status().contender.unwrap();
    world.create(
        CONTROL,
        format!(r#"{{"v":1,"yield":{{"id":"1","contenders":["{own}"]}}}}"#).as_bytes(),
    );
    super::status_where(&lock, |status| status.yield_requested).await;
    world.delete(CONTROL);
    lock.release().await.unwrap();
    eventually("the contender is gone", || world.children(ROOT).is_empty()).await;
    assert!(world.node(CONTROL).is_none());
}

#[tokio::test(start_paused = true)]
async fn while_the_control_node_is_missing_the_holder_before_counts_as_one_that_died() {
    let world = world();
    provide(&world, ROOT);
    provide(&world, CONTROL);
    let asking = |name: &str| {
        let options = LockOptions {
            provisioned: true,
            ask_for_predecessor: true,
            ..options()
        };
        lock_with(&world, name, options)
    };
    let [first, second, third] = ["first", "second", "third"].map(asking);
    first.acquire().await.unwrap();
    assert!(!first.status().predecessor_unclean);
    super::queued_at(&second, 1).await;
    super::queued_at(&third, 2).await;
    world.delete(CONTROL);
    first.release().await.unwrap();
    let held = state(&second, LockState::Held).await;
    assert!(held.predecessor_unclean);
    // The next holder has to wait for it too, although the node comes back.
    world.create(CONTROL, b"");
    second.release().await.unwrap();
    let held = state(&third, LockState::Held).await;
    assert!(held.predecessor_unclean);
    third.settle(held.token.unwrap());
    super::status_where(&third, |status| !status.predecessor_unclean).await;
    third.release().await.unwrap();
    first.acquire().await.unwrap();
    assert!(!first.status().predecessor_unclean);
}
