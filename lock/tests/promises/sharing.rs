//! Semaphores and read/write locks.

use std::num::NonZeroU32;
use std::time::Duration;

use lockkeeper_lock::{LockState, Mode};

use super::{ROOT, is_still, lock_in, queued_at, state, status_where, world};

#[tokio::test(start_paused = true)]
async fn two_of_three_hold_a_semaphore_of_two_and_the_third_follows_whoever_goes() {
    for going in [0, 1] {
        let world = world();
        let mode = Mode::Semaphore(NonZeroU32::new(2).unwrap());
        let locks = ["a", "b", "c"].map(|name| lock_in(&world, name, mode));
        for lock in &locks[..2] {
            lock.acquire().await.unwrap();
        }
        queued_at(&locks[2], 1).await;
        assert!(is_still(&locks[2], |status| status.state == LockState::Waiting).await);
        locks[going].release().await.unwrap();
        locks[2].acquire().await.unwrap();
        assert!(locks[1 - going].view().is_held());
    }
}

#[tokio::test(start_paused = true)]
async fn two_readers_hold_together_and_the_writer_waits_for_both() {
    let world = world();
    let [first, second] = ["first", "second"].map(|name| lock_in(&world, name, Mode::Read));
    let writer = lock_in(&world, "writer", Mode::Write);
    first.acquire().await.unwrap();
    second.acquire().await.unwrap();
    assert!(first.view().is_held() && second.view().is_held());
    writer.contend().await.unwrap();
    second.release().await.unwrap();
    assert!(is_still(&writer, |status| status.state == LockState::Waiting).await);
    first.release().await.unwrap();
    writer.acquire().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_comes_after_a_waiting_writer_waits_for_it() {
    let world = world();
    let [reader, late, later] = ["reader", "late", "later"].map(|name| lock_in(&world, name, Mode::Read));
    let writer = lock_in(&world, "writer", Mode::Write);
    reader.acquire().await.unwrap();
    writer.contend().await.unwrap();
    for late in [&late, &later] {
        late.contend().await.unwrap();
        status_where(late, |status| {
            status.position.is_some_and(|position| position > 0)
        })
        .await;
    }
    assert!(is_still(&late, |status| status.state != LockState::Held).await);
    reader.release().await.unwrap();
    writer.acquire().await.unwrap();
    assert!(is_still(&late, |status| status.state != LockState::Held).await);
    writer.release().await.unwrap();
    for late in [&late, &later] {
        tokio::time::timeout(Duration::from_secs(1), late.acquire())
            .await
            .expect("no contender is before it")
            .unwrap();
    }
    assert!(late.view().is_held());
}

/// A client of Curator takes the read lock while it holds the write lock: its reader has the writer's number.
#[tokio::test(start_paused = true)]
async fn a_writer_waits_for_a_reader_of_curator_that_came_in_before_it_and_is_not_refused_beside_both() {
    let world = world();
    let [waits, late] = ["waits", "late"].map(|name| lock_in(&world, name, Mode::Write));
    let [writer, reader] =
        ["__WRIT__", "__READ__"].map(|marker| format!("{ROOT}/_c_6f1d-{marker}0000000000"));
    world.create("/locks", b"");
    world.create(ROOT, b"");
    world.create_owned(&writer, b"10.0.0.7", 77);
    queued_at(&waits, 1).await;
    world.create_owned(&reader, b"10.0.0.7", 77);
    late.contend().await.unwrap();
    world.delete(&writer);
    let waits_still = |status: &lockkeeper_lock::LockStatus| status.state == LockState::Waiting;
    assert!(is_still(&waits, waits_still).await, "{:?}", waits.status());
    world.delete(&reader);
    waits.acquire().await.unwrap();
    assert_eq!(late.status().state, LockState::Waiting);
}

/// The writer of Curator has waited for a reader of another client.
#[tokio::test(start_paused = true)]
async fn a_writer_waits_for_such_a_reader_also_if_another_one_was_before_it_when_the_writer_left() {
    let world = world();
    let waits = lock_in(&world, "waits", Mode::Write);
    let [first, writer, reader] = [("__READ__", 0), ("__WRIT__", 1), ("__READ__", 1)]
        .map(|(marker, number)| format!("{ROOT}/_c_6f1d-{marker}000000000{number}"));
    world.create("/locks", b"");
    world.create(ROOT, b"");
    world.create_owned(&first, b"10.0.0.6", 76);
    world.create_owned(&writer, b"10.0.0.7", 77);
    queued_at(&waits, 2).await;
    // The waiter watches the writer alone, and does not hear of this.
    world.delete(&first);
    world.create_owned(&reader, b"10.0.0.7", 77);
    world.delete(&writer);
    let waits_still = |status: &lockkeeper_lock::LockStatus| status.state == LockState::Waiting;
    assert!(is_still(&waits, waits_still).await, "{:?}", waits.status());
    world.delete(&reader);
    waits.acquire().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn readers_hold_when_the_writer_before_them_gives_up_waiting() {
    let world = world();
    let [reader, late] = ["reader", "late"].map(|name| lock_in(&world, name, Mode::Read));
    let writer = lock_in(&world, "writer", Mode::Write);
    reader.acquire().await.unwrap();
    assert_eq!(writer.try_acquire().await, Ok(None));
    writer.contend().await.unwrap();
    late.contend().await.unwrap();
    writer.release().await.unwrap();
    state(&late, LockState::Held).await;
    assert!(reader.view().is_held());
}
