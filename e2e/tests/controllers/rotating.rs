//! The identity of a namespace is rotated under pods that hold and wait.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_product::beside::conditions::{condition, holders, waiting};
use lockkeeper_testbed::eventually::eventually;

use crate::contender::Contender;
use crate::environment::{identities, shared};

#[tokio::test(flavor = "multi_thread")]
async fn pods_before_and_after_a_rotation_queue_together_and_the_next_rotation_waits_for_who_knows_neither() {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("rotating").await;
    space.lock("report", DistributedLockSpec::default()).await;
    let first = identities(&space).await;
    assert_eq!(first.len(), 1);
    // This contender never learns of another identity, like a pod whose kubelet is out of reach.
    let a = Contender::join(&environment, &space, "report", &space.pod("a", "report").await).await;
    space
        .wait_for_lock("report", "a holds", |lock| holders(lock) == ["a"])
        .await;
    let rotated = async |before: &[_]| {
        eventually("another identity", async || {
            Some(identities(&space).await).filter(|now| now[0] != before[0])
        })
        .await
    };

    space.rotate().await;
    let second = rotated(&first).await;
    assert_eq!(second[1..], first, "the one before still counts");
    let b = Contender::join(&environment, &space, "report", &space.pod("b", "report").await).await;
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
    assert_eq!(identities(&space).await, second);
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
    let c = Contender::join(&environment, &space, "report", &space.pod("c", "report").await).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn no_status_speaks_of_the_moment_in_which_a_namespace_has_no_identity() {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("unnoticed").await;
    let reasons = Arc::<Mutex<BTreeSet<String>>>::default();
    let mut locks = watcher(space.api::<DistributedLock>(), watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .boxed();
    let seen = Arc::clone(&reasons);
    let task = tokio::spawn(async move {
        while let Some(lock) = locks.next().await {
            if let Ok(lock) = lock {
                seen.lock().unwrap().insert(condition(&lock, "Ready").1);
            }
        }
    });
    space.lock("report", DistributedLockSpec::default()).await;
    let is_ready = |lock: &DistributedLock| condition(lock, "Ready").0 == "True";
    space.wait_for_lock("report", "it is ready", is_ready).await;
    let first = identities(&space).await;
    let secrets = space.api::<Secret>();
    secrets
        .delete("lockkeeper-zookeeper", &DeleteParams::default())
        .await
        .unwrap();
    eventually("another identity", async || {
        Some(identities(&space).await).filter(|now| now[0] != first[0])
    })
    .await;
    // A status that was written after all of that.
    let a = Contender::join(&environment, &space, "report", &space.pod("a", "report").await).await;
    space
        .wait_for_lock("report", "a holds", |lock| holders(lock) == ["a"])
        .await;
    task.abort();
    let reasons = reasons.lock().unwrap().clone();
    assert!(
        reasons.contains("Provisioned") && !reasons.contains("SecretUnusable"),
        "{reasons:?}"
    );
    a.leave().await;
    space.leave().await;
}
