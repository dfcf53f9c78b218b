//! The identity of a namespace is rotated under pods that hold and wait.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use lockkeeper_crds::DistributedLockSpec;

use crate::contender::Contender;
use crate::world::{eventually, holders, waiting, world};

#[tokio::test(flavor = "multi_thread")]
async fn pods_before_and_after_a_rotation_queue_together_and_the_next_rotation_waits_for_who_knows_neither() {
    let Some(world) = world().await else { return };
    let space = world.namespace("rotating").await;
    space.lock("report", DistributedLockSpec::default()).await;
    let first = space.identities().await;
    assert_eq!(first.len(), 1);
    // It never learns of another identity, as a pod whose kubelet is out of reach.
    let a = Contender::join(&world, &space, "report", &space.pod("a", "report").await).await;
    space
        .wait_for_lock("report", "a holds", |lock| holders(lock) == ["a"])
        .await;
    let rotated = async |before: &[_]| {
        eventually("another identity", async || {
            Some(space.identities().await).filter(|now| now[0] != before[0])
        })
        .await
    };

    space.rotate().await;
    let second = rotated(&first).await;
    assert_eq!(second[1..], first, "the one before still counts");
    let b = Contender::join(&world, &space, "report", &space.pod("b", "report").await).await;
    space
        .wait_for_lock("report", "b waits behind a", |lock| {
            holders(lock) == ["a"] && waiting(lock) == ["b"]
        })
        .await;

    space.rotate().await;
    let note = space.wait_for_event("report", "RotationWaits").await;
    assert!(
        note.contains("waits: pod a at report does not know the identity in use"),
        "{note}"
    );
    assert_eq!(space.identities().await, second);
    let secret = space.api::<Secret>().get("lockkeeper-zookeeper").await.unwrap();
    assert!(
        secret.annotations().contains_key("lockkeeper.io/rotate"),
        "it is not forgotten"
    );

    a.leave().await;
    space
        .wait_for_lock("report", "b holds", |lock| holders(lock) == ["b"])
        .await;
    let third = rotated(&second).await;
    assert_eq!(third[1], second[0]);
    let c = Contender::join(&world, &space, "report", &space.pod("c", "report").await).await;
    space
        .wait_for_lock("report", "c waits behind b", |lock| waiting(lock) == ["c"])
        .await;
    b.leave().await;
    space
        .wait_for_lock("report", "c holds", |lock| holders(lock) == ["c"])
        .await;
    c.leave().await;
    space.leave().await;
}
