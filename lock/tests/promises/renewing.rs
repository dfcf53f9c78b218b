//! Contenders with a lease duration that live, or that others may not replace: they keep their places.

use std::time::Duration;

use lockkeeper_fake::{Client, Freezable, Happened, Record};
use lockkeeper_lock::{BootInstant, Clock, Lock, LockState, LockStatus};

use super::takeover::{L, deleted, leasing, sharing, states_its_lease, with_lease};
use super::{FakeLock, T, clock, contender, is_still, lock, queued_at, state, world_of};

#[tokio::test(start_paused = true)]
async fn contenders_that_live_keep_their_places_for_as_long_as_they_want() {
    for make in [leasing, sharing] {
        let world = world_of(0);
        let locks = ["a", "b", "c", "d"].map(|name| make(&world, name));
        for lock in &locks {
            lock.contend().await.unwrap();
        }
        tokio::time::sleep(10 * T).await;
        let is_gone = |record: &Record| matches!(record.happened, Happened::Deleted { .. });
        assert!(!world.records().iter().any(is_gone));
        assert_eq!(locks[0].status().state, LockState::Held);
    }
}

#[tokio::test(start_paused = true)]
async fn contenders_that_wait_further_back_write_nothing() {
    let world = world_of(0);
    let locks = ["holder", "heir", "third", "fourth"].map(|name| leasing(&world, name));
    for (place, lock) in locks.iter().enumerate() {
        queued_at(lock, place).await;
    }
    tokio::time::sleep(10 * T).await;
    let records = world.records();
    let writes = |lock: &FakeLock| {
        let own = contender(lock);
        let is_own = |happened: &Happened| matches!(happened, Happened::Changed { path } if *path == own);
        records.iter().filter(|record| is_own(&record.happened)).count()
    };
    let [holder, heir, third, fourth] = locks.each_ref().map(writes);
    // Each eighth of L, or a little later.
    let most = usize::try_from((10 * T).as_millis() / (L / 8).as_millis()).unwrap();
    for renewals in [holder, heir] {
        assert!(
            (most - most / 4..=most + 2).contains(&renewals),
            "{renewals} of {most}"
        );
    }
    assert_eq!((third, fourth), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_contender_that_states_no_lease_is_left_to_its_session() {
    let world = world_of(0);
    let [holder, heir] = [lock(&world, "holder"), leasing(&world, "heir")];
    holder.acquire().await.unwrap();
    queued_at(&heir, 1).await;
    let session = holder.status().session.unwrap();
    assert_eq!(holder.status().takeover_deadline, None);
    drop(holder);
    state(&heir, LockState::Held).await;
    assert!(!world.is_alive(session));
}

#[tokio::test(start_paused = true)]
async fn a_contender_without_a_lease_of_its_own_replaces_no_other() {
    let world = world_of(0);
    let [holder, heir] = [leasing(&world, "holder"), lock(&world, "heir")];
    holder.acquire().await.unwrap();
    queued_at(&heir, 1).await;
    let session = holder.status().session.unwrap();
    states_its_lease(&world, &contender(&holder)).await;
    drop(holder);
    state(&heir, LockState::Held).await;
    assert!(!world.is_alive(session));
}

#[tokio::test(start_paused = true)]
async fn a_takeover_lease_is_counted_from_the_moment_at_which_its_renewal_was_sent() {
    let world = world_of(0);
    // The holder's clock shows this more than the world's.
    let ahead = clock().now() - BootInstant::from_nanos(0) - world.now();
    let [holder, heir] = ["holder", "heir"].map(|name| leasing(&world, name));
    holder.acquire().await.unwrap();
    queued_at(&heir, 1).await;
    let path = contender(&holder);
    states_its_lease(&world, &path).await;
    let mut view = holder.view();
    let mut renewals = 0;
    while renewals < 40 {
        let status = view.changed().await.unwrap();
        let Some(deadline) = status.takeover_deadline else {
            continue;
        };
        // 1 % and 200 ms are the margin.
        let sent =
            deadline - BootInstant::from_nanos(0) + L.mul_f64(0.01) + Duration::from_millis(200) - L - ahead;
        let records = world.records();
        let is_own =
            |happened: &Happened| matches!(happened, Happened::Changed { path: changed } if *changed == path);
        let committed = records
            .iter()
            .rev()
            .find(|record| is_own(&record.happened))
            .unwrap()
            .at;
        assert!(
            sent <= committed,
            "counted from {sent:?}, committed at {committed:?}"
        );
        renewals += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn a_contender_that_slept_does_not_replace_one_that_has_renewed_meanwhile() {
    for seed in 0..50 {
        let world = world_of(seed);
        let holder = leasing(&world, "holder");
        let client = world.client("heir");
        let freezable = Freezable::new(client.clone());
        let (heir, task) = Lock::with_task::<Client>(client, clock(), with_lease());
        tokio::spawn(freezable.run(task));
        let token = holder.acquire().await.unwrap();
        queued_at(&heir, 1).await;
        states_its_lease(&world, &contender(&holder)).await;
        tokio::time::sleep(Duration::from_millis(seed * 11)).await;
        // Shorter than the silence after which a client gives a connection up: two fifths of T.
        world.freeze("heir", L + L / 8);
        let holds = |status: &LockStatus| status.token == Some(token) && status.state == LockState::Held;
        assert!(
            is_still(&holder, holds).await,
            "seed {seed}: {:?}",
            holder.status()
        );
        assert_eq!(heir.status().position, Some(1), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_contender_whose_server_shows_renewals_late_replaces_nobody_who_has_renewed() {
    let mut tries = 0;
    // In four of nine worlds the third is at a server of its own.
    for seed in 0..200 {
        let world = world_of(seed);
        let [holder, heir, third] = ["holder", "heir", "third"].map(|name| leasing(&world, name));
        holder.acquire().await.unwrap();
        queued_at(&heir, 1).await;
        queued_at(&third, 2).await;
        states_its_lease(&world, &contender(&heir)).await;
        // The third writes nothing, so that it does not notice how late its server is.
        let server = world.server_of("third").unwrap();
        if ["holder", "heir"]
            .map(|name| world.server_of(name))
            .contains(&Some(server))
        {
            continue;
        }
        tries += 1;
        world.set_lag(server, 2 * L);
        tokio::time::sleep(10 * T).await;
        let is_gone = |record: &Record| matches!(record.happened, Happened::Deleted { .. });
        assert!(!world.records().iter().any(is_gone), "seed {seed}");
        if tries == 8 {
            return;
        }
    }
    panic!("the third was at a server of its own in {tries} worlds");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_that_is_retained_is_not_taken_over_while_its_keeper_reaches_the_ensemble() {
    for seed in 0..20 {
        let world = world_of(seed);
        let holder = leasing(&world, "holder");
        holder.acquire().await.unwrap();
        holder.retain(true);
        let path = contender(&holder);
        world.isolate("holder", L);
        state(&holder, LockState::Lost).await;
        let heir = leasing(&world, "heir");
        queued_at(&heir, 1).await;
        for _ in 0..10 {
            tokio::time::sleep(L / 2).await;
            world.disconnect("holder");
        }
        tokio::time::sleep(3 * T).await;
        assert_eq!(deleted(&world, &path), None, "seed {seed}");
        assert_eq!(heir.status().state, LockState::Waiting, "seed {seed}");
        holder.retain(false);
        state(&heir, LockState::Held).await;
    }
}
