//! Data that another client writes by hand: into a contender's node, and into the control node.

use std::sync::Arc;

use lockkeeper_fake::World;
use lockkeeper_lock::{ContenderData, LockOptions, LockState, LossReason};

use super::takeover::{L, deleted, leasing, states_its_lease, with_lease};
use super::{CONTROL, FakeLock, T, contender, eventually, is_still, lock_with, queued_at, state, world_of};

fn said(world: &World, path: &str) -> ContenderData {
    ContenderData::parse(&world.node(path).unwrap().data)
}

/// A holder whose data state L, and the next one.
async fn held_before_another(world: &Arc<World>) -> [FakeLock; 2] {
    let [holder, heir] = ["holder", "heir"].map(|name| leasing(world, name));
    holder.acquire().await.unwrap();
    queued_at(&heir, 1).await;
    states_its_lease(world, &contender(&holder)).await;
    [holder, heir]
}

#[tokio::test(start_paused = true)]
async fn a_holder_with_a_lease_duration_replaces_what_another_client_has_written_into_its_node() {
    for seed in 0..20 {
        let world = world_of(seed);
        let [holder, heir] = held_before_another(&world).await;
        let own = contender(&holder);
        world.set_data(&own, b"10.0.0.7");
        eventually("its data are its own again", || {
            said(&world, &own).lease() == Some(L) && said(&world, &own).is_held()
        })
        .await;
        assert!(is_still(&holder, |status| status.state == LockState::Held).await);
        assert_eq!(heir.status().state, LockState::Waiting, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_contender_into_whose_node_a_client_writes_again_and_again_is_left_to_its_session() {
    let world = world_of(0);
    let [holder, heir] = held_before_another(&world).await;
    let (path, session) = (contender(&holder), holder.status().session.unwrap());
    let data = world.node(&path).unwrap().data;
    let died = world.now();
    drop(holder);
    while world.node(&path).is_some() {
        world.set_data(&path, &data);
        tokio::time::sleep(L / 4).await;
    }
    let gone = deleted(&world, &path).unwrap() - died;
    assert!(!world.is_alive(session) && gone > T / 2, "{gone:?}");
    state(&heir, LockState::Held).await;
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_place_is_taken_after_a_forged_lease_learns_of_it_at_once() {
    let world = world_of(0);
    let [holder, heir] = held_before_another(&world).await;
    let own = contender(&holder);
    world.set_data(&own, br#"{"v":1,"state":"held","leaseMillis":1}"#);
    let lost = state(&holder, LockState::Lost).await;
    assert_eq!(lost.loss, Some(LossReason::ContenderDeleted));
    let told = world.now() - deleted(&world, &own).unwrap();
    assert!(told < L / 4, "{told:?}");
    state(&heir, LockState::Held).await;
}

#[tokio::test(start_paused = true)]
async fn whatever_a_client_writes_into_the_control_node_one_contender_holds_at_a_time() {
    let junk: [&[u8]; 3] = [b"junk", b"{}", br#"{"v":1,"holders":[],"lastRelease":[]}"#];
    for (seed, data) in (0..).zip(junk) {
        let world = world_of(seed);
        let with_record = || LockOptions {
            control: CONTROL.to_owned(),
            ask_for_predecessor: true,
            ..with_lease()
        };
        let [holder, heir] = ["holder", "heir"].map(|name| lock_with(&world, name, with_record()));
        holder.acquire().await.unwrap();
        queued_at(&heir, 1).await;
        world.set_data(CONTROL, data);
        assert!(is_still(&holder, |status| status.state == LockState::Held).await);
        assert_eq!(heir.status().state, LockState::Waiting, "seed {seed}");
        holder.release().await.unwrap();
        state(&heir, LockState::Held).await;
    }
}
