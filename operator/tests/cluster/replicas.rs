//! Two replicas: one writes, and when it goes the other one does.

use lockkeeper_crds::DistributedLockSpec;
use rustix::process::Signal;

use crate::world::{BOUND, condition, eventually, world};

#[tokio::test(flavor = "multi_thread")]
async fn a_second_replica_takes_over_when_the_leader_stops_and_each_ends_cleanly() {
    let Some(world) = world().await else { return };
    let mut second = world.operator("operator-second").await;
    assert!(!second.is_leading().await, "{}", second.log());
    // The shared replica leads; the second one leaves its queue without disturbing it.
    second.process.signal(Signal::TERM);
    let status = second.process.wait(BOUND).unwrap().expect("it ends");
    assert!(status.success(), "{}", second.log());

    let space = world.namespace("replicas").await;
    space.lock("report", DistributedLockSpec::default()).await;
    space
        .wait_for_lock("report", "the leader serves it", |lock| {
            condition(lock, "Ready").0 == "True"
        })
        .await;
    space.leave().await;
    eventually("the leader says so", async || {
        let metrics = crate::world::ask(world.admin(), "/metrics").await?;
        metrics.contains("lockkeeper_operator_leading 1").then_some(())
    })
    .await;
    assert!(!world.log().contains("panicked"), "{}", world.log());
}
