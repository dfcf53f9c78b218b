//! A contender that is kept through a loss, for work that still runs.

use lockkeeper_fake::Traffic;
use lockkeeper_lock::{ContenderData, LossReason, Survivors};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_retained_contender_keeps_the_lock_from_others_though_it_is_lost() {
    let world = world();
    let (first, second) = (lock(&world, "a"), lock(&world, "b"));
    let token = first.acquire().await.unwrap();
    second.contend().await.unwrap();
    first.retain(true);
    // Renewals prove less than the first connection does: the lease ends before the session.
    tokio::time::sleep(T * 2).await;
    world.isolate("a", T * 3 / 4);
    let lost = status_where(&first, |status| status.state == LockState::Lost).await;
    assert_eq!(lost.loss, Some(LossReason::DeadlineReached));
    // The servers can be reached again before they end the session, and it lives as long as necessary.
    world.heal();
    tokio::time::sleep(T * 10).await;
    let status = first.status();
    assert_eq!((status.state, status.token), (LockState::Lost, Some(token)));
    assert!(!first.view().is_held(), "no contender holds it");
    assert_eq!(second.status().state, LockState::Waiting);

    first.release().await.unwrap();
    status_where(&second, |status| status.state == LockState::Held).await;
}

#[tokio::test(start_paused = true)]
async fn a_contender_that_is_not_retained_any_more_expires() {
    let world = world();
    let (first, second) = (lock(&world, "a"), lock(&world, "b"));
    first.acquire().await.unwrap();
    second.contend().await.unwrap();
    first.retain(true);
    // Renewals prove less than the first connection does: the lease ends before the session.
    tokio::time::sleep(T * 2).await;
    world.isolate("a", T * 3 / 4);
    status_where(&first, |status| status.state == LockState::Lost).await;
    world.heal();
    tokio::time::sleep(T * 3).await;
    assert_eq!(second.status().state, LockState::Waiting);
    first.retain(false);
    world.isolate("a", T * 10);
    status_where(&second, |status| status.state == LockState::Held).await;
}

/// Waits until a contender's data state these survivors.
async fn states(world: &World, lock: &FakeLock, survivors: Option<Survivors>) {
    let path = contender(lock);
    eventually("its data state what survives", || {
        let node = world.node(&path).expect("the contender is kept");
        ContenderData::parse(&node.data).survivors == survivors
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_outlives_sigkill_stands_in_the_data_of_the_contender_until_it_has_gone() {
    let some = |pid| {
        Some(Survivors {
            processes: Some(1),
            pid: Some(pid),
        })
    };
    // With and without a lease that it renews by its data; held, and kept through a loss.
    for options in [options(), takeover::with_lease()] {
        let world = world();
        let holder = lock_with(&world, "a", options);
        holder.acquire().await.unwrap();
        holder.retain(true);
        states(&world, &holder, None).await;
        holder.survived(some(1));
        states(&world, &holder, some(1)).await;
        holder.survived(None);
        states(&world, &holder, None).await;

        tokio::time::sleep(T * 2).await;
        world.isolate("a", T * 3 / 4);
        state(&holder, LockState::Lost).await;
        holder.survived(some(2));
        world.heal();
        states(&world, &holder, some(2)).await;
        holder.survived(None);
        states(&world, &holder, None).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_outlives_sigkill_is_stated_again_where_the_write_or_its_answer_got_lost() {
    let survivors = Some(Survivors {
        processes: None,
        pid: Some(7),
    });
    let world = world();
    let holder = lock(&world, "a");
    holder.acquire().await.unwrap();
    holder.retain(true);
    states(&world, &holder, None).await;
    // Nobody knows whether the write was carried out: the first one was not, and the second one was.
    for traffic in [Traffic::Requests, Traffic::Answers] {
        for said in [survivors, None] {
            let server = world.server_of("a").unwrap();
            world.cut_client("a", server, traffic, T);
            holder.survived(said);
            tokio::time::sleep(Duration::from_millis(100)).await;
            world.disconnect("a");
            world.heal();
            states(&world, &holder, said).await;
        }
    }
    // The write is carried out, and taken back before its answer is known to be lost.
    let server = world.server_of("a").unwrap();
    world.cut_client("a", server, Traffic::Answers, T);
    holder.survived(survivors);
    states(&world, &holder, survivors).await;
    holder.survived(None);
    world.disconnect("a");
    world.heal();
    states(&world, &holder, None).await;
}

#[tokio::test(start_paused = true)]
async fn a_retained_contender_keeps_the_lock_from_others_though_the_servers_grant_it_too_little_time() {
    let world = world();
    let (first, second) = (lock(&world, "a"), lock(&world, "b"));
    first.acquire().await.unwrap();
    second.contend().await.unwrap();
    first.retain(true);
    (0..3).for_each(|server| world.limit_sessions(server, Duration::from_secs(2)));
    world.disconnect("a");
    let lost = state(&first, LockState::Lost).await;
    assert_eq!(lost.loss, Some(LossReason::Refused));
    assert!(lost.refusal.is_some());
    tokio::time::sleep(T * 10).await;
    assert_eq!(second.status().state, LockState::Waiting);
    assert_eq!(first.status().state, LockState::Lost);
    first.release().await.unwrap();
    state(&second, LockState::Held).await;
}
