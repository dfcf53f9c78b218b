//! Waiting contenders that a user deletes by hand.

use std::sync::{Arc, Mutex};

use lockkeeper_lock::LockState;

use super::{FakeLock, contender, eventually, lock, queued_at, state, status_where, world_of};

/// The tokens under which a lock was held, from now on.
fn holds(lock: &FakeLock) -> Arc<Mutex<Vec<i64>>> {
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let (mut view, seen) = (lock.view(), Arc::clone(&tokens));
    tokio::spawn(async move {
        while let Ok(status) = view.changed().await {
            if let (LockState::Held | LockState::Suspended, Some(token)) = (status.state, status.token) {
                seen.lock().unwrap().push(token.0);
            }
        }
    });
    tokens
}

#[tokio::test(start_paused = true)]
async fn an_heir_whose_contender_was_deleted_by_hand_does_not_hold() {
    for seed in 0..50 {
        let world = world_of(seed);
        let [holder, heir, next] = ["holder", "heir", "next"].map(|name| lock(&world, name));
        holder.acquire().await.unwrap();
        let place = queued_at(&heir, 1).await;
        queued_at(&next, 2).await;
        // It renews, so it has learned that it is the heir.
        let lease = heir.status().lease_end;
        eventually("a renewal of the heir", || heir.status().lease_end > lease).await;
        let held = holds(&heir);
        let own = contender(&heir);
        if seed.is_multiple_of(2) {
            world.delete(&own);
            status_where(&next, |status| status.position == Some(1)).await;
            holder.release().await.unwrap();
        } else {
            // All at one moment, after another change has used up its watch.
            let holders = contender(&holder);
            world.set_data(&own, b"10.0.0.7");
            world.delete(&own);
            world.delete(&holders);
            drop(holder);
        }
        state(&next, LockState::Held).await;
        next.release().await.unwrap();
        state(&heir, LockState::Held).await;
        let token = place.token.unwrap().0;
        let held = held.lock().unwrap();
        assert!(
            !held.contains(&token),
            "seed {seed}: held under the token of a node that was gone"
        );
    }
}
