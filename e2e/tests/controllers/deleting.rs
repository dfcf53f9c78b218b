//! A deleted lock goes only when its queue is empty.

use kube::Resource;
use kube::api::DeleteParams;
use lockkeeper_crds::lock::DeletionPolicy;
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_product::beside::conditions::condition;
use lockkeeper_testbed::eventually::eventually;

use crate::contender::Contender;
use crate::environment::shared;

#[tokio::test(flavor = "multi_thread")]
async fn deletion_waits_while_somebody_holds_says_who_and_then_removes_the_nodes() {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("deleted").await;
    let a = Contender::hold(&environment, &space).await;
    let api = space.api::<DistributedLock>();
    api.delete("report", &DeleteParams::default()).await.unwrap();
    let lock = space
        .wait_for_lock("report", "it says that it waits", |lock| {
            condition(lock, "Ready").1 == "Deleting"
        })
        .await;
    let conditions = lock.status.unwrap().conditions;
    let ready = conditions.iter().find(|one| one.type_ == "Ready").unwrap();
    assert!(
        ready.message.ends_with("no longer held by a"),
        "{}",
        ready.message
    );
    let note = space.wait_for_event("report", "DeletionWaits").await;
    assert!(note.contains("no longer held by a"), "{note}");
    // For pods that still name the lock the operator would create another one with the defaults.
    space
        .api::<k8s_openapi::api::core::v1::Pod>()
        .delete("a", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    a.leave().await;
    eventually("the object is gone", async || {
        api.get_opt("report").await.unwrap().is_none().then_some(())
    })
    .await;
    let connection = environment.connection().await;
    for kind in ["locks", "control"] {
        let path = format!("/lockkeeper/{kind}/{}/report", space.name);
        assert_eq!(connection.check_stat(&path).await.unwrap(), None, "{path}");
    }
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_policy_retain_the_nodes_stay() {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("retained").await;
    let spec = DistributedLockSpec {
        deletion_policy: DeletionPolicy::Retain,
        ..DistributedLockSpec::default()
    };
    space.lock("report", spec).await;
    space
        .wait_for_lock("report", "it is ready", |lock| {
            condition(lock, "Ready").0 == "True"
                && !lock.meta().finalizers.as_deref().unwrap_or_default().is_empty()
        })
        .await;
    let api = space.api::<DistributedLock>();
    api.delete("report", &DeleteParams::default()).await.unwrap();
    eventually("the object is gone", async || {
        api.get_opt("report").await.unwrap().is_none().then_some(())
    })
    .await;
    let path = format!("/lockkeeper/locks/{}/report", space.name);
    let kept = environment.connection().await.check_stat(&path).await.unwrap();
    assert!(kept.is_some());
    space.leave().await;
}
