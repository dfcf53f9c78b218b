//! `participants`.

use std::num::NonZeroU32;
use std::time::Duration;

use lockkeeper_lock::{Identity, LockError, LockOptions, LockState, Mode, Participant, Pod};

use super::{FakeLock, ROOT, lock, lock_in, lock_with, options, queued_at, state, status_where, world};

/// The list once it is so: an onlooker's server may be late.
async fn listed(onlooker: &FakeLock, is_so: impl Fn(&[Participant]) -> bool) -> Vec<Participant> {
    loop {
        let list = onlooker.participants().await.unwrap();
        if is_so(&list) {
            return list;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn holders(list: &[Participant]) -> Vec<bool> {
    list.iter().map(|participant| participant.is_holder).collect()
}

#[tokio::test(start_paused = true)]
async fn an_onlooker_sees_everybody_in_order_with_token_and_data_and_stays_out_of_the_queue() {
    let world = world();
    let pod = Pod {
        namespace: "shop".into(),
        name: "report-0".into(),
        uid: "7".into(),
        node: "n1".into(),
    };
    let identity = Identity {
        pod: Some(pod.clone()),
        host: None,
        revision: Some("6c9d".into()),
    };
    let holder = lock_with(
        &world,
        "holder",
        LockOptions {
            identity,
            ..options()
        },
    );
    let waiter = lock(&world, "waiter");
    let onlooker = lock(&world, "onlooker");
    assert_eq!(onlooker.participants().await, Ok(Vec::new()), "no lock root yet");

    let token = holder.acquire().await.unwrap();
    let waiting = queued_at(&waiter, 1).await;
    // The mark comes a moment after the lock.
    let list = listed(&onlooker, |list| list.len() == 2 && list[0].data.is_held()).await;
    assert_eq!(holders(&list), [true, false]);
    assert_eq!(list[0].token, token);
    assert_eq!(Some(list[1].token), waiting.token);
    assert_eq!(Some(&list[1].name), waiting.contender.as_ref());
    assert_eq!(list[0].data.pod, Some(pod));
    assert_eq!(list[0].data.revision.as_deref(), Some("6c9d"));
    assert_eq!(list[0].data.stop_budget_millis, Some(500));
    assert!(!list[1].data.is_held());
    assert_eq!(onlooker.status().state, LockState::Released);
    assert_eq!(world.children(ROOT).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn contenders_of_curator_are_seen_and_waited_for_and_other_children_are_not() {
    let world = world();
    let onlooker = lock(&world, "onlooker");
    let lock = lock(&world, "a");
    lock.acquire().await.unwrap();
    lock.release().await.unwrap();
    // Curator writes its IP address. The one without a sequence number is not a contender.
    let curator = "_c_b3c1e3a0-6b3f-4a55-8d7c-9a1d9e3f0001-lock-0000000001";
    world.create(&format!("{ROOT}/{curator}"), b"10.0.0.7");
    world.create(&format!("{ROOT}/notes"), b"{\"state\":\"held\"}");
    let waiting = queued_at(&lock, 1).await;
    let list = listed(&onlooker, |list| list.len() == 2).await;
    assert_eq!(list[0].name, curator);
    assert_eq!(*list[0].data, lockkeeper_lock::ContenderData::default());
    assert_eq!(holders(&list), [true, false]);
    assert_eq!(lock.status().token, waiting.token);
    world.delete(&format!("{ROOT}/{curator}"));
    state(&lock, LockState::Held).await;
}

#[tokio::test(start_paused = true)]
async fn all_holders_of_a_semaphore_are_shown() {
    let world = world();
    let mode = Mode::Semaphore(NonZeroU32::new(2).unwrap());
    let locks = ["a", "b", "c"].map(|name| lock_in(&world, name, mode));
    queued_at(&locks[0], 0).await;
    queued_at(&locks[1], 0).await;
    queued_at(&locks[2], 1).await;
    assert_eq!(
        holders(&locks[2].participants().await.unwrap()),
        [true, true, false]
    );
}

#[tokio::test(start_paused = true)]
async fn readers_hold_together_and_a_writer_alone_whoever_looks() {
    let world = world();
    let modes = [Mode::Read, Mode::Read, Mode::Write, Mode::Read];
    let mut locks = Vec::new();
    for (number, mode) in modes.into_iter().enumerate() {
        let lock = lock_in(&world, &number.to_string(), mode);
        lock.contend().await.unwrap();
        status_where(&lock, |status| status.position.is_some()).await;
        locks.push(lock);
    }
    for onlooker in [&locks[3], &lock_in(&world, "onlooker", Mode::Write)] {
        let list = listed(onlooker, |list| list.len() == 4).await;
        assert_eq!(holders(&list), [true, true, false, false]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_onlooker_without_the_right_to_look_is_told_so_and_can_ask_again() {
    let world = world();
    world.create("/locks", b"");
    world.create(ROOT, b"");
    world.forbid(ROOT);
    let onlooker = lock(&world, "onlooker");
    let refused = loop {
        // A server that has not received the root yet has no contenders.
        match onlooker.participants().await {
            Ok(list) => assert!(list.is_empty()),
            Err(refused) => break refused,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert!(matches!(refused, LockError::Refused { .. }));
    assert!(refused.to_string().contains(ROOT), "{refused}");
    world.allow(ROOT);
    assert_eq!(onlooker.participants().await, Ok(Vec::new()));
}
