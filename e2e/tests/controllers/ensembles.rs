//! An operator that reaches another ensemble than before, or another root in it: pods of two ensembles do not
//! exclude each other.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use lockkeeper_crds::lock::ZooKeeperSpec;
use lockkeeper_crds::{ApiDuration, DistributedLock, DistributedLockSpec};
use lockkeeper_product::beside::conditions::{condition, holders, message};
use lockkeeper_product::beside::{Environment, Tenant};
use lockkeeper_testbed::eventually::eventually_within;
use serde_json::json;
use tokio::time::Instant;

use crate::contender::Contender;
use crate::environment::alone;
use crate::other_ensembles::allow;

/// A lock moves after half a minute without pods of the former ensemble, and pods are admitted a minute after
/// that.
const MOVES: Duration = Duration::from_secs(180);

/// The minute without admissions after a move, less the time by which the test may see the move late.
const REST: Duration = Duration::from_secs(50);

fn id(lock: &DistributedLock) -> String {
    let status = lock.status.clone().unwrap_or_default();
    status.ensemble.map(|ensemble| ensemble.id).unwrap_or_default()
}

fn is_disputed(lock: &DistributedLock) -> bool {
    condition(lock, "Ready") == ("False".into(), "EnsembleChanged".into())
}

fn is_ready(lock: &DistributedLock) -> bool {
    condition(lock, "Ready") == ("True".into(), "Provisioned".into())
}

/// Deletes a pod that no kubelet runs.
async fn delete(space: &Tenant, pod: &str) {
    let now = DeleteParams::default().grace_period(0);
    space.api::<Pod>().delete(pod, &now).await.unwrap();
}

/// Deletes a node and everything below it, as an administrator who empties an ensemble.
async fn empty(environment: &Environment, path: &str) {
    let connection = environment.connection().await;
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let children = connection.list_children(&path).await.unwrap();
        if children.is_empty() {
            connection.delete(&path, None).await.unwrap();
            continue;
        }
        left.push(path.clone());
        left.extend(children.iter().map(|child| format!("{path}/{child}")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_keeps_its_ensemble_and_its_holder_until_no_pod_of_it_is_left() {
    let Some(environment) = alone().await else { return };
    let space = environment.namespace("moved").await;
    let a = Contender::hold(&environment, &space).await;
    let lock = space.wait_for_lock("report", "it is ready", is_ready).await;
    let before = id(&lock);
    assert!(uuid::Uuid::try_parse(&before).is_ok(), "{before}");

    drop(environment.take_operator());
    let elsewhere = environment
        .operator("operator-elsewhere", &["--root", "/elsewhere"])
        .await;
    environment.put_operator(elsewhere);
    let lock = space
        .wait_for_lock("report", "the ensemble is another one", is_disputed)
        .await;
    assert_eq!(holders(&lock), ["a"], "what was known is kept");
    assert_eq!(id(&lock), before);
    assert_eq!(condition(&lock, "Held").0, "Unknown");
    let said = message(&lock, "Ready");
    for part in [
        &*before,
        "/elsewhere",
        "a was made for the former",
        "scale the workload to zero",
    ] {
        assert!(said.contains(part), "{said}");
    }
    space.wait_for_event("report", "EnsembleChanged").await;
    let nodes = format!("/elsewhere/locks/{}/report", space.name);
    let connection = environment.connection().await;
    assert_eq!(
        connection.check_stat(&nodes).await.unwrap(),
        None,
        "the lock can be had in both ensembles"
    );

    // The documented way: scale down, and wait until it is ready.
    a.leave().await;
    delete(&space, "a").await;
    let api = space.api::<DistributedLock>();
    let moved = eventually_within(MOVES, "the lock moves", async || {
        let lock = api.get("report").await.unwrap();
        (id(&lock) != before).then_some(lock)
    })
    .await;
    let since = Instant::now();
    assert!(is_disputed(&moved), "{:?}", moved.status);
    assert_eq!(holders(&moved), [""; 0]);
    assert_eq!(connection.check_stat(&nodes).await.unwrap(), None);
    eventually_within(MOVES, "the lock is ready there", async || {
        let lock = api.get("report").await.unwrap();
        is_ready(&lock).then_some(())
    })
    .await;
    // A pod that was admitted for the former ensemble may be under way in the API server for that long.
    assert!(since.elapsed() >= REST, "after {:?}", since.elapsed());
    assert!(connection.check_stat(&nodes).await.unwrap().is_some());

    drop(environment.take_operator());
    environment.put_operator(environment.operator("operator-back", &[]).await);
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_ensemble_is_another_one_and_nothing_is_made_in_it_while_pods_of_the_one_before_are_left()
{
    let Some(environment) = alone().await else { return };
    let space = environment.namespace("emptied").await;
    let a = Contender::hold(&environment, &space).await;
    let lock = space.wait_for_lock("report", "it is ready", is_ready).await;
    let before = id(&lock);
    drop(environment.take_operator());
    empty(&environment, "/lockkeeper").await;
    environment.put_operator(environment.operator("operator-after", &[]).await);
    let lock = space
        .wait_for_lock("report", "the ensemble is another one", is_disputed)
        .await;
    assert_eq!((holders(&lock), id(&lock)), (vec!["a".to_owned()], before));
    let root = format!("/lockkeeper/locks/{}/report", space.name);
    let connection = environment.connection().await;
    assert_eq!(connection.check_stat(&root).await.unwrap(), None);

    // A deleted object waits for the pods, and for no ensemble.
    let locks = space.api::<DistributedLock>();
    locks.delete("report", &DeleteParams::default()).await.unwrap();
    space
        .wait_for_lock("report", "it waits for its pod", |lock| {
            lock.metadata.deletion_timestamp.is_some() && is_disputed(lock)
        })
        .await;
    drop(a);
    delete(&space, "a").await;
    eventually_within(MOVES, "the object is gone", async || {
        locks.get_opt("report").await.unwrap().is_none().then_some(())
    })
    .await;
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_names_another_ensemble_while_its_pods_do_not_queue_yet_does_not_move() {
    let Some(environment) = alone().await else { return };
    allow(&environment, &environment.ensemble).await;
    let space = environment.namespace("renamed").await;
    let connect = environment.ensemble.connect_string();
    let spec = |path: &str| DistributedLockSpec {
        zookeeper: Some(ZooKeeperSpec {
            connect: format!("{connect}{path}"),
            tick_time: Some(ApiDuration::from_secs(1)),
            credentials_secret: None,
            tls_secret: None,
        }),
        ..DistributedLockSpec::default()
    };
    space.lock("report", spec("/one")).await;
    let lock = space.wait_for_lock("report", "it is ready", is_ready).await;
    let before = id(&lock);
    space.pod("a", "report").await;
    // According to its status the lock has neither holders nor waiters.
    let patch = Patch::Merge(json!({ "spec": spec("/two") }));
    let locks = space.api::<DistributedLock>();
    locks
        .patch("report", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let lock = space
        .wait_for_lock("report", "the ensemble is another one", is_disputed)
        .await;
    assert_eq!(id(&lock), before);
    let patch = Patch::Merge(json!({ "spec": spec("/one") }));
    locks
        .patch("report", &PatchParams::default(), &patch)
        .await
        .unwrap();
    space
        .wait_for_lock("report", "it is ready where it was", is_ready)
        .await;
    delete(&space, "a").await;
    space.leave().await;
}
