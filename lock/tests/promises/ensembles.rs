//! A lock with the ID of its ensemble queues in no other.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_fake::World;
use lockkeeper_lock::ensemble::EnsembleError;
use lockkeeper_lock::{EnsembleId, LockError, LockOptions, LockState};
use uuid::Uuid;

use super::{FakeLock, ROOT, is_still, lock_with, options, state, status_where, world};

const NODE: &str = "/ensemble-id";
const OURS: Uuid = Uuid::from_u128(0x6f1d_57a4_2c3b_4d5e_8f90_a1b2_c3d4_e5f6);
const OTHER: Uuid = Uuid::from_u128(0x0a0b_0c0d_0e0f_4011_9213_1415_1617_1819);

/// A lock of the ensemble `OURS`.
fn bound(world: &Arc<World>) -> FakeLock {
    let ensemble = EnsembleId {
        node: NODE.to_owned(),
        id: OURS,
    };
    let options = LockOptions {
        ensemble: Some(ensemble),
        ..options()
    };
    lock_with(world, "a", options)
}

/// Waits until the lock reports that it waits for this, and checks that it creates nothing meanwhile.
async fn stays_out(world: &World, lock: &FakeLock, expected: LockError) {
    let status = status_where(lock, |status| status.refusal.as_ref() == Some(&expected)).await;
    assert_eq!(status.state, LockState::Connecting);
    assert!(is_still(lock, |status| status.state == LockState::Connecting).await);
    assert!(world.node(ROOT).is_none(), "it made the lock root");
}

fn found(found: Option<Uuid>) -> LockError {
    LockError::OtherEnsemble {
        path: NODE.to_owned(),
        expected: OURS,
        found,
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_does_not_queue_in_another_ensemble_and_says_which_one_it_is() {
    let world = world();
    world.create(NODE, OTHER.to_string().as_bytes());
    let lock = bound(&world);
    let (held, ()) = tokio::join!(lock.acquire(), async {
        stays_out(&world, &lock, found(Some(OTHER))).await;
        let sentence = found(Some(OTHER)).to_string();
        assert!(
            sentence.contains(&OTHER.to_string()) && sentence.contains(&OURS.to_string()),
            "{sentence}"
        );
        world.set_data(NODE, b"not an ID, and too long for a log");
        stays_out(&world, &lock, found(None)).await;
        // The names of the servers lead back to the right ensemble.
        world.set_data(NODE, format!("{OURS}\n").as_bytes());
        state(&lock, LockState::Held).await;
    });
    held.unwrap();
    assert_eq!(lock.status().refusal, None);
}

#[tokio::test(start_paused = true)]
async fn an_ensemble_without_an_id_is_none_to_queue_in() {
    let world = world();
    let lock = bound(&world);
    let missing = |error| LockError::NotProvided {
        path: NODE.to_owned(),
        error,
    };
    let (held, ()) = tokio::join!(lock.acquire(), async {
        stays_out(&world, &lock, missing(EnsembleError::NoNode)).await;
        world.forbid(NODE);
        world.create(NODE, OURS.to_string().as_bytes());
        stays_out(&world, &lock, missing(EnsembleError::NoAuth)).await;
        world.allow(NODE);
        state(&lock, LockState::Held).await;
    });
    held.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_found_out_later_about_the_ensemble_does_not_touch_the_holder() {
    let world = world();
    world.create(NODE, OURS.to_string().as_bytes());
    let lock = bound(&world);
    lock.acquire().await.unwrap();
    world.delete(NODE);
    assert!(is_still(&lock, |status| status.state == LockState::Held).await);
    // A contender that queues again checks again.
    let before = world.now();
    let (again, ()) = tokio::join!(lock.step_down(), async {
        let missing = LockError::NotProvided {
            path: NODE.to_owned(),
            error: EnsembleError::NoNode,
        };
        status_where(&lock, |status| status.refusal.as_ref() == Some(&missing)).await;
        assert!(is_still(&lock, |status| status.state == LockState::Connecting).await);
        world.create(NODE, OURS.to_string().as_bytes());
        state(&lock, LockState::Held).await;
    });
    again.unwrap();
    assert!(world.now() - before < Duration::from_secs(30));
}
