//! Two replicas: one writes, and when it ends the other one does. And an ensemble that no operator reaches.

use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_product::beside::conditions::{condition, holders};
use lockkeeper_testbed::eventually::{BOUND, eventually};
use rustix::process::Signal;

use crate::contender::Contender;
use crate::environment::alone;

#[tokio::test(flavor = "multi_thread")]
async fn a_second_replica_takes_over_when_the_leader_stops_or_dies() {
    let Some(environment) = alone().await else { return };
    let space = environment.namespace("replicas").await;
    let is_ready = |name: &'static str| {
        let space = &space;
        async move {
            space.lock(name, DistributedLockSpec::default()).await;
            space
                .wait_for_lock(name, "it is served", |lock| condition(lock, "Ready").0 == "True")
                .await
        }
    };
    let second = environment.operator("operator-second", &[]).await;
    is_ready("before").await;
    assert!(!second.pages.is_leading().await, "{}", second.log());

    let mut first = environment.take_operator();
    first.process.signal(Signal::TERM);
    let status = first.process.wait(BOUND).unwrap().expect("it ends");
    assert!(status.success(), "{}", first.log());
    is_ready("after-a-stop").await;
    assert!(second.pages.is_leading().await, "{}", second.log());

    let third = environment.operator("operator-third", &[]).await;
    // SIGKILL: it does not hand over the leadership, so its lease has to end.
    drop(second);
    is_ready("after-a-death").await;
    assert!(third.pages.is_leading().await, "{}", third.log());
    environment.put_operator(third);
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_ensemble_is_down_the_status_says_so_and_keeps_what_was_known() {
    let Some(environment) = alone().await else { return };
    let space = environment.namespace("outage").await;
    let a = Contender::hold(&environment, &space).await;
    for server in 0..environment.ensemble.len() {
        environment.ensemble.kill(server);
    }
    let lock = space
        .wait_for_lock("report", "it says that it does not know", |lock| {
            condition(lock, "EnsembleReachable") == ("False".into(), "Disconnected".into())
        })
        .await;
    assert_eq!(condition(&lock, "Held").0, "Unknown");
    assert_eq!(holders(&lock), ["a"]);
    for server in 0..environment.ensemble.len() {
        environment.ensemble.launch(server).unwrap();
    }
    space
        .wait_for_lock("report", "it knows again", |lock| {
            condition(lock, "EnsembleReachable").0 == "True"
        })
        .await;
    drop(a);
    eventually("the lock is free, for its holder's session is over", async || {
        let lock = space
            .api::<lockkeeper_crds::DistributedLock>()
            .get("report")
            .await
            .unwrap();
        holders(&lock).is_empty().then_some(())
    })
    .await;
    space.leave().await;
}
