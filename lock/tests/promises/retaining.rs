//! A contender that is kept through a loss, for work that still runs.

use lockkeeper_lock::LossReason;

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
