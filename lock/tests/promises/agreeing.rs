//! All contenders of a lock agree on its kind and on its number of holders, or stay out of the queue.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_fake::{Happened, World};
use lockkeeper_lock::{Agreement, LockError, LockOptions, LockState, Mode, Objection, SLACK};

use super::{
    CONTROL, FakeLock, ROOT, is_still, lock, lock_in, lock_with, options, queued_at, state, world, world_of,
};

fn semaphore(holders: u32) -> Mode {
    Mode::Semaphore(NonZeroU32::new(holders).unwrap())
}

fn differs(agreed: Mode, asked: Mode) -> LockError {
    not_agreed(Objection::Differs {
        agreed: Agreement::of(agreed),
        asked: Agreement::of(asked),
    })
}

fn not_agreed(objection: Objection) -> LockError {
    LockError::NotAgreed {
        path: ROOT.to_owned(),
        objection,
    }
}

fn provisioned(world: &Arc<World>, name: &str, mode: Mode) -> FakeLock {
    let options = LockOptions {
        provisioned: true,
        mode,
        ..options()
    };
    lock_with(world, name, options)
}

fn provide(world: &World, data: &[u8]) {
    world.create("/locks", b"");
    world.create(ROOT, data);
    world.create(CONTROL, b"");
}

#[tokio::test(start_paused = true)]
async fn a_contender_with_another_setting_is_refused_with_both_and_creates_nothing() {
    for (first, second) in [
        (Mode::Exclusive, semaphore(2)),
        (semaphore(3), semaphore(2)),
        (Mode::Read, Mode::Exclusive),
    ] {
        let world = world();
        let holder = lock_in(&world, "holder", first);
        holder.acquire().await.unwrap();
        let other = lock_in(&world, "other", second);
        assert_eq!(other.acquire().await, Err(differs(first, second)));
        assert_eq!(other.status().state, LockState::Released);
        assert_eq!(world.children(ROOT).len(), 1);
        assert!(is_still(&holder, |status| status.state == LockState::Held).await);
    }
}

#[tokio::test(start_paused = true)]
async fn the_setting_can_change_once_no_contender_is_in_the_queue() {
    let world = world();
    let (old, new) = (lock(&world, "old"), lock_in(&world, "new", semaphore(2)));
    old.acquire().await.unwrap();
    new.acquire().await.unwrap_err();
    old.release().await.unwrap();
    new.acquire().await.unwrap();
    // It queues again with its own setting, and does not rely on what it knew of the lock root.
    let refused = old.acquire().await;
    assert_eq!(refused, Err(differs(semaphore(2), Mode::Exclusive)));
}

#[tokio::test(start_paused = true)]
async fn a_lock_root_from_before_is_given_an_agreement_by_the_first_contender() {
    let world = world();
    world.create("/locks", b"");
    world.create(ROOT, b"");
    lock(&world, "a").acquire().await.unwrap();
    let written = world.node(ROOT).unwrap();
    assert_eq!(
        Agreement::parse(&written.data),
        Ok(Some(Agreement::of(Mode::Exclusive)))
    );
    assert_eq!(written.version, 1);
}

#[tokio::test(start_paused = true)]
async fn contenders_that_come_at_once_agree_on_one_setting_whoever_is_first() {
    for seed in 0..50 {
        let world = world_of(seed);
        let modes = [Mode::Exclusive, semaphore(2), semaphore(3)];
        let locks: Vec<_> = (0..6)
            .map(|n| lock_in(&world, &n.to_string(), modes[n % 3]))
            .collect();
        let answers = futures_util::future::join_all(locks.iter().map(|lock| lock.contend())).await;
        // Those that were admitted, and those that wait behind them.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let agreed = Agreement::parse(&world.node(ROOT).unwrap().data)
            .unwrap()
            .unwrap();
        for (index, lock) in locks.iter().enumerate() {
            let is_in = matches!(lock.status().state, LockState::Held | LockState::Waiting);
            let is_agreed = agreed.admits(modes[index % 3]).is_ok();
            assert!(
                !is_in || is_agreed,
                "seed {seed}: {index}, {agreed}, {:?}",
                answers[index]
            );
        }
        assert!(
            locks.iter().any(|lock| lock.status().state == LockState::Held),
            "seed {seed}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_root_that_was_made_anew_with_the_same_version_deceives_nobody_who_knew_the_old_one() {
    let world = world();
    let (known, other) = (lock(&world, "known"), lock_in(&world, "other", semaphore(2)));
    known.acquire().await.unwrap();
    known.release().await.unwrap();
    assert_eq!(world.node(ROOT).unwrap().version, 0);
    world.delete(ROOT);
    other.acquire().await.unwrap();
    assert_eq!(world.node(ROOT).unwrap().version, 0);
    // It is created under the version that it knows, sees whose child it is, and leaves.
    assert_eq!(known.acquire().await, Err(differs(semaphore(2), Mode::Exclusive)));
    assert_eq!(world.children(ROOT).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_contender_whose_creation_was_not_answered_is_found_and_agrees() {
    for seed in 0..50 {
        let world = world_of(seed);
        let (holder, lock) = (lock(&world, "holder"), lock(&world, "a"));
        holder.acquire().await.unwrap();
        world.lose_next_answer("a");
        queued_at(&lock, 1).await;
        assert_eq!(world.children(ROOT).len(), 2, "seed {seed}");
        holder.release().await.unwrap();
        state(&lock, LockState::Held).await;
    }
}

#[tokio::test(start_paused = true)]
async fn data_of_somebody_else_in_the_lock_root_are_refused_and_kept() {
    let world = world();
    world.create("/locks", b"");
    world.create(ROOT, b"3");
    let refused = lock(&world, "a").acquire().await.unwrap_err();
    assert_eq!(refused, not_agreed(Objection::Unreadable));
    assert!(refused.to_string().contains(ROOT), "{refused}");
    assert_eq!(world.node(ROOT).unwrap().data, b"3");
}

#[tokio::test(start_paused = true)]
async fn with_provided_nodes_the_agreement_is_waited_for_and_never_written() {
    let asked = semaphore(2);
    for (data, objection) in [
        (Vec::new(), Objection::Missing),
        (b"3".to_vec(), Objection::Unreadable),
        (
            Agreement::of(Mode::Exclusive).to_data(),
            Agreement::of(Mode::Exclusive).admits(asked).unwrap_err(),
        ),
    ] {
        let world = world();
        provide(&world, &data);
        let lock = provisioned(&world, "a", asked);
        let (held, ()) = tokio::join!(lock.acquire(), async {
            let expected = Some(not_agreed(objection));
            let status = super::status_where(&lock, |status| status.refusal == expected).await;
            assert_eq!(status.state, LockState::Connecting);
            assert!(is_still(&lock, |status| status.refusal == expected).await);
            assert_eq!(world.node(ROOT).unwrap().data, data);
            assert!(world.children(ROOT).is_empty());
            world.set_data(ROOT, &Agreement::of(asked).to_data());
            let before = world.now();
            state(&lock, LockState::Held).await;
            // A watch reports it, with no need to check from time to time. The session is old by now: its lease is
            // proven by a second write after the slack.
            assert!(world.now() - before < Duration::from_millis(200) + SLACK);
        });
        held.unwrap();
        assert_eq!(lock.status().refusal, None);
    }
}

#[tokio::test(start_paused = true)]
async fn who_knew_another_agreement_creates_nothing_under_the_new_one() {
    let world = world();
    let old = lock(&world, "old");
    old.acquire().await.unwrap();
    old.release().await.unwrap();
    // The same lock root, with data of another version.
    world.set_data(ROOT, &Agreement::of(semaphore(2)).to_data());
    let new = lock_in(&world, "new", semaphore(2));
    new.acquire().await.unwrap();
    let created = || {
        let records = world.records();
        let of_sessions = records
            .iter()
            .filter(|record| matches!(record.happened, Happened::Created { session, .. } if session != 0));
        of_sessions.count()
    };
    let before = created();
    old.contend().await.unwrap_err();
    assert_eq!(created(), before);
}
