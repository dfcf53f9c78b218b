//! A process that goes on with the contender of one that died.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_fake::World;
use lockkeeper_lock::{
    FencingToken, Identity, LockError, LockOptions, LockState, LossReason, Pod, SLACK, Ticket,
};

use super::takeover::{L, states_its_lease, with_lease};
use super::yielding::request;
use super::{
    CONTROL, FakeLock, ROOT, T, contender, eventually, is_still, lock, lock_with, options, queued_at, state,
    status_where, world, world_of,
};

fn giving(options: LockOptions) -> LockOptions {
    LockOptions {
        gives_ticket: true,
        ..options
    }
}

fn going_on(world: &Arc<World>, options: LockOptions, ticket: Ticket) -> FakeLock {
    let options = LockOptions {
        ticket: Some(ticket),
        ..giving(options)
    };
    lock_with(world, "successor", options)
}

/// The ticket of a holder.
async fn ticket(holder: &FakeLock) -> Ticket {
    holder.acquire().await.unwrap();
    let status = status_where(holder, |status| status.ticket.is_some()).await;
    status.ticket.unwrap()
}

/// A holder that has died, and its ticket.
async fn left(world: &Arc<World>, options: LockOptions) -> (FencingToken, Ticket) {
    let holder = lock_with(world, "holder", giving(options));
    let ticket = ticket(&holder).await;
    (holder.status().token.unwrap(), ticket)
}

#[tokio::test(start_paused = true)]
async fn a_successor_goes_on_with_the_contender_of_a_process_that_died() {
    for seed in 0..20 {
        let world = world_of(seed);
        let (token, ticket) = left(&world, options()).await;
        let heir = lock(&world, "heir");
        queued_at(&heir, 1).await;
        let died = world.now();
        let successor = going_on(&world, options(), ticket);
        assert_eq!(successor.acquire().await.unwrap(), token);
        // The session's old connection may keep it waiting for a moment; two writes prove the lease.
        let took = world.now() - died;
        assert!(took < SLACK + T / 4, "seed {seed}: {took:?}");
        assert_eq!(successor.status().session, Some(ticket.session.id));
        assert!(is_still(&heir, |status| status.state == LockState::Waiting).await);
        assert_eq!(successor.status().state, LockState::Held);
        assert_eq!(world.children(ROOT).len(), 2, "no contender was added");
    }
}

#[tokio::test(start_paused = true)]
async fn a_successor_holds_only_after_a_proof_of_its_own() {
    let world = world();
    let (_, ticket) = left(&world, options()).await;
    let successor = going_on(&world, options(), ticket);
    successor.contend().await.unwrap();
    let began = world.now();
    let held = state(&successor, LockState::Held).await;
    // A first write may have been answered for a session whose end has begun: see docs/safety.md, "A lease that has lapsed".
    assert!(world.now() - began >= SLACK);
    assert!(held.lease_end.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_successor_can_die_as_well() {
    let world = world();
    let (token, mut ticket) = left(&world, options()).await;
    for _ in 0..5 {
        let successor = going_on(&world, options(), ticket);
        assert_eq!(successor.acquire().await.unwrap(), token);
        let status = status_where(&successor, |status| status.ticket.is_some()).await;
        ticket = status.ticket.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_successor_releases_what_was_left_to_it() {
    let world = world();
    let (_, ticket) = left(&world, options()).await;
    let heir = lock(&world, "heir");
    queued_at(&heir, 1).await;
    let left_at = world.now();
    let successor = going_on(&world, options(), ticket);
    successor.contend().await.unwrap();
    successor.release().await.unwrap();
    state(&heir, LockState::Held).await;
    assert!(world.now() - left_at < T / 2, "not by the end of the session");
}

#[tokio::test(start_paused = true)]
async fn a_successor_releases_what_was_left_to_it_also_if_it_has_not_begun_yet() {
    let world = world();
    let (_, ticket) = left(&world, options()).await;
    let successor = going_on(&world, options(), ticket);
    successor.release().await.unwrap();
    assert!(world.children(ROOT).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_has_a_session_already_leaves_the_contender_of_its_ticket_to_its_own_session() {
    for waits_for_the_answer in [true, false] {
        let world = world();
        let (token, ticket) = left(&world, options()).await;
        let late = going_on(&world, options(), ticket);
        {
            let mut list = std::pin::pin!(late.participants());
            if waits_for_the_answer {
                assert_eq!(list.await.unwrap().len(), 1);
            } else {
                // It has begun to open a connection for a session of its own.
                assert!(tokio::time::timeout(Duration::ZERO, &mut list).await.is_err());
            }
        }
        let own = late.acquire().await.unwrap();
        assert!(own > token, "it queued behind the contender that was left");
        assert_ne!(late.status().session, Some(ticket.session.id));
    }
}

/// Waits until the successor knows that nothing is left, and that it queues again when its owner has released.
async fn is_lost(successor: &FakeLock, reason: LossReason) {
    let lost = Err(LockError::Lost(reason));
    assert_eq!(successor.contend().await, lost);
    assert_eq!(successor.status().loss, Some(reason));
    successor.release().await.unwrap();
    queued_at(successor, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_successor_that_comes_too_late_has_lost_the_lock() {
    let world = world();
    let (_, ticket) = left(&world, options()).await;
    let heir = lock(&world, "heir");
    heir.acquire().await.unwrap();
    let successor = going_on(&world, options(), ticket);
    is_lost(&successor, LossReason::SessionExpired).await;
    assert_ne!(successor.status().session, Some(ticket.session.id));
    heir.release().await.unwrap();
    state(&successor, LockState::Held).await;
}

#[tokio::test(start_paused = true)]
async fn a_successor_whose_contender_was_deleted_has_lost_the_lock() {
    let world = world();
    let holder = lock_with(&world, "holder", giving(options()));
    let ticket = ticket(&holder).await;
    let (path, heir) = (contender(&holder), lock(&world, "heir"));
    queued_at(&heir, 1).await;
    drop(holder);
    world.delete(&path);
    let successor = going_on(&world, options(), ticket);
    is_lost(&successor, LossReason::ContenderDeleted).await;
    assert_eq!(heir.status().state, LockState::Held);
}

#[tokio::test(start_paused = true)]
async fn a_successor_leaves_the_contender_of_another_pod_alone() {
    let of = |uid: &str| {
        let pod = Pod {
            namespace: "shop".to_owned(),
            name: "report-1".to_owned(),
            uid: uid.to_owned(),
            node: "a".to_owned(),
        };
        let identity = Identity {
            pod: Some(pod),
            host: None,
            revision: None,
        };
        LockOptions {
            identity,
            ..options()
        }
    };
    let world = world();
    let (_, ticket) = left(&world, of("one")).await;
    let successor = going_on(&world, of("another"), ticket);
    let _ = successor.contend().await;
    let lost = state(&successor, LockState::Lost).await;
    assert_eq!(lost.loss, Some(LossReason::ContenderDeleted));
    successor.release().await.unwrap();
    assert_eq!(world.children(ROOT).len(), 1, "it ends with its session");
    let (_, ticket) = left(
        &world,
        LockOptions {
            root: "/locks/other".to_owned(),
            ..of("one")
        },
    )
    .await;
    let successor = going_on(
        &world,
        LockOptions {
            root: "/locks/other".to_owned(),
            ..of("one")
        },
        ticket,
    );
    successor.acquire().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_of_a_contender_is_left_to_the_owner_of_what_runs_under_it() {
    let world = world();
    let holder = lock_with(&world, "holder", giving(options()));
    let ticket = ticket(&holder).await;
    let path = contender(&holder);
    let asked = request(&[&holder]);
    eventually("the control node is there", || world.node(CONTROL).is_some()).await;
    drop(holder);
    // A user asks it to step down, and the settings of the lock change.
    world.set_data(CONTROL, &asked);
    world.set_data(ROOT, br#"{"v":1,"kind":"exclusive","maxHolders":2}"#);
    let successor = going_on(&world, options(), ticket);
    successor.acquire().await.unwrap();
    assert!(is_still(&successor, |status| status.state == LockState::Held).await);
    assert!(successor.status().yield_requested);
    assert!(world.node(&path).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_successor_renews_what_states_a_lease_whatever_its_own_settings_are() {
    for own in [with_lease(), options()] {
        let world = world();
        let holder = lock_with(&world, "holder", giving(with_lease()));
        let ticket = ticket(&holder).await;
        assert_eq!(ticket.lease, Some(L));
        let path = contender(&holder);
        states_its_lease(&world, &path).await;
        let heir = lock_with(&world, "heir", with_lease());
        queued_at(&heir, 1).await;
        drop(holder);
        let successor = going_on(&world, own, ticket);
        successor.acquire().await.unwrap();
        assert!(is_still(&heir, |status| status.state == LockState::Waiting).await);
        let status = successor.status();
        assert!(status.takeover_deadline.is_some());
        assert_eq!(status.state, LockState::Held);
        // It can be replaced as its predecessor could.
        drop(successor);
        state(&heir, LockState::Held).await;
        assert!(world.is_alive(ticket.session.id));
    }
}

#[tokio::test(start_paused = true)]
async fn the_data_of_a_contender_outlive_its_process() {
    let world = world();
    let holder = lock_with(&world, "holder", giving(options()));
    let ticket = ticket(&holder).await;
    let path = contender(&holder);
    eventually("it is marked as the holder", || {
        let data = world.node(&path).map(|node| node.data).unwrap_or_default();
        String::from_utf8_lossy(&data).contains("held")
    })
    .await;
    let before = world.node(&path).unwrap();
    drop(holder);
    let successor = going_on(&world, options(), ticket);
    successor.acquire().await.unwrap();
    assert!(is_still(&successor, |status| status.state == LockState::Held).await);
    assert_eq!(world.node(&path), Some(before), "who holds, and since when");
}

#[tokio::test(start_paused = true)]
async fn only_a_holder_that_is_asked_for_a_ticket_gives_one() {
    let world = world();
    let holder = lock_with(&world, "holder", giving(options()));
    ticket(&holder).await;
    let waiter = lock_with(&world, "waiter", giving(options()));
    queued_at(&waiter, 1).await;
    assert!(is_still(&waiter, |status| status.ticket.is_none()).await);
    world.isolate("holder", T);
    let lost = state(&holder, LockState::Lost).await;
    assert_eq!(lost.ticket, None);
    world.heal();
    holder.release().await.unwrap();
    drop(waiter);
    let silent = lock(&world, "silent");
    silent.acquire().await.unwrap();
    assert!(is_still(&silent, |status| status.ticket.is_none()).await);
}
