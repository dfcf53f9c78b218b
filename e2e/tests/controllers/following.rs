//! Statuses and labels follow the queue, and the operator repairs what users break.

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use kube::api::DeleteParams;
use lockkeeper_crds::{ApiDuration, DistributedLock, DistributedLockSpec};
use lockkeeper_product::beside::conditions::{condition, holders, message, waiting};
use lockkeeper_testbed::ensemble::{SUPER, connector, with_clients};
use lockkeeper_testbed::eventually::eventually;
use zookeeper_client::{Acls, CreateMode};

use crate::contender::{Contender, SESSION_TIMEOUT};
use crate::environment::{alone, identities, shared};

#[tokio::test(flavor = "multi_thread")]
async fn status_and_role_labels_follow_the_queue() {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("following").await;
    space.lock("report", DistributedLockSpec::default()).await;
    let lock = space
        .wait_for_lock("report", "an idle lock", |lock| {
            condition(lock, "Held") == ("False".into(), "NobodyWaits".into())
        })
        .await;
    assert_eq!(condition(&lock, "Ready"), ("True".into(), "Provisioned".into()));
    assert_eq!(condition(&lock, "EnsembleReachable").0, "True");
    assert_eq!(lock.status.unwrap().observed_generation, lock.metadata.generation);

    let pods = [space.pod("a", "report").await, space.pod("b", "report").await];
    space.wait_for_role("a", "standby").await;
    let a = Contender::join(&environment, &space, "report", &pods[0]).await;
    space
        .wait_for_lock("report", "a holds", |lock| holders(lock) == ["a"])
        .await;
    space.wait_for_role("a", "active").await;
    let b = Contender::join(&environment, &space, "report", &pods[1]).await;
    let lock = space
        .wait_for_lock("report", "b waits", |lock| waiting(lock) == ["b"])
        .await;
    let token = lock.status.unwrap().holders[0].fencing_token;

    a.leave().await;
    let lock = space
        .wait_for_lock("report", "b holds", |lock| holders(lock) == ["b"])
        .await;
    assert!(lock.status.unwrap().holders[0].fencing_token > token);
    space.wait_for_role("b", "active").await;
    space.wait_for_role("a", "standby").await;
    let note = space.wait_for_event("report", "LockAcquired").await;
    assert!(note.contains("holds the lock under token"), "{note}");
    b.leave().await;
    space
        .wait_for_lock("report", "nobody holds", |lock| holders(lock).is_empty())
        .await;
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_an_unknown_kind_in_the_queue_is_named_where_users_look_until_it_has_left() {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("stranger").await;
    let a = Contender::hold(&environment, &space).await;
    let servers = environment.ensemble.connect_string();
    let client = with_clients(|| async {
        let client = connector().with_auth("digest", SUPER.as_bytes());
        client.connect(&servers).await
    });
    let client = client.await.unwrap();
    let root = format!("/lockkeeper/locks/{}/report", space.name);
    let theirs = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, number) = client.create(&format!("{root}/n_"), b"", &theirs).await.unwrap();
    let name = format!("n_{number}");
    let lock = space
        .wait_for_lock("report", "a stranger is seen", |lock| {
            condition(lock, "Ready") == ("False".into(), "UnknownContender".into())
        })
        .await;
    let said = message(&lock, "Ready");
    assert!(said.contains(&name), "{said}");
    let note = space.wait_for_event("report", "ProvisioningFailed").await;
    assert_eq!(note, said);
    client.delete(&format!("{root}/{name}"), None).await.unwrap();
    space
        .wait_for_lock("report", "it has left", |lock| {
            condition(lock, "Ready") == ("True".into(), "Provisioned".into())
        })
        .await;
    a.leave().await;
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_root_or_a_secret_that_is_deleted_by_hand_comes_back() {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("mended").await;
    space.lock("report", DistributedLockSpec::default()).await;
    let before = identities(&space).await.swap_remove(0);
    let is_ready = |lock: &DistributedLock| condition(lock, "Ready").0 == "True";
    space.wait_for_lock("report", "it is ready", is_ready).await;

    let root = format!("/lockkeeper/locks/{}/report", space.name);
    let connection = environment.connection().await;
    let (_, stat) = connection.get_data(&root).await.unwrap();
    connection.delete(&root, None).await.unwrap();
    eventually("the lock root is back", async || {
        let found = connection.check_stat(&root).await.unwrap()?;
        (found.czxid > stat.czxid).then_some(())
    })
    .await;
    let note = space.wait_for_event("report", "NodesRepaired").await;
    assert!(note.contains("1 created again"), "{note}");

    let first = Contender::join(
        &environment,
        &space,
        "report",
        &space.pod("first", "report").await,
    )
    .await;
    space
        .wait_for_lock("report", "the first one holds", |lock| holders(lock) == ["first"])
        .await;
    let secrets = space.api::<Secret>();
    secrets
        .delete("lockkeeper-zookeeper", &DeleteParams::default())
        .await
        .unwrap();
    let after = eventually("another Secret", async || {
        Some(identities(&space).await).filter(|identities| identities[0] != before)
    })
    .await;
    assert_eq!(after[1], before, "pods keep what they have");
    let after = after[0].clone();
    // The lock is open to the new identity, and still to the old one, so the running pod can release.
    let a = Contender::join(&environment, &space, "report", &space.pod("a", "report").await).await;
    first.leave().await;
    space
        .wait_for_lock("report", "a holds", |lock| holders(lock) == ["a"])
        .await;

    // After a rotation on request the running pod keeps its right to leave.
    space.rotate().await;
    eventually("a rotated identity", async || {
        Some(identities(&space).await.swap_remove(0)).filter(|identity| *identity != after)
    })
    .await;
    a.leave().await;
    let b = Contender::join(&environment, &space, "report", &space.pod("b", "report").await).await;
    space
        .wait_for_lock("report", "b holds", |lock| holders(lock) == ["b"])
        .await;
    b.leave().await;
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_names_a_lock_which_nobody_described_gets_one_with_the_defaults() {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("adopted").await;
    space.pod("a", "unheard-of").await;
    let lock = space.wait_for_lock("unheard-of", "it is made", |_| true).await;
    assert_eq!(lock.spec, DistributedLockSpec::default());
    space.wait_for_role("a", "standby").await;
    let api = space.api::<Pod>();
    assert!(
        api.get("a")
            .await
            .unwrap()
            .labels()
            .contains_key("lockkeeper.io/role")
    );
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_nobody_described_fits_the_tick_of_a_slow_ensemble() {
    let Some(environment) = alone().await else { return };
    drop(environment.take_operator());
    // The operator may state a longer tick than the true one.
    let slow = ["--tick-time", "4s", "--session-timeout", "20s"];
    environment.put_operator(environment.operator("operator-slow", &slow).await);
    let space = environment.namespace("slow").await;
    space.pod("a", "unheard-of").await;
    let lock = space
        .wait_for_lock("unheard-of", "it is ready", |lock| {
            condition(lock, "Ready").0 == "True"
        })
        .await;
    assert_eq!(lock.spec.session_timeout, ApiDuration::from_secs(20));
    space.leave().await;
    drop(environment.take_operator());
    environment.put_operator(environment.operator("operator-after", &[]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_leave_no_time_are_refused_with_the_arithmetic_and_repaired_by_the_user() {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("refused").await;
    // The schema admits this, since it does not know the tick of this operator's ensemble.
    let spec = DistributedLockSpec {
        session_timeout: ApiDuration::from_secs(2),
        stop_grace: ApiDuration::from_millis(100),
        renew_interval: Some(ApiDuration::from_millis(370)),
        ..DistributedLockSpec::default()
    };
    let api = space.api::<DistributedLock>();
    let lock = DistributedLock::new("report", spec);
    let created = api.create(&kube::api::PostParams::default(), &lock).await;
    if let Err(error) = created {
        // If the schema was stricter, it has refused it with the same sentence.
        assert!(error.to_string().contains("sessionTimeout"), "{error}");
        return space.leave().await;
    }
    let lock = space
        .wait_for_lock("report", "it is judged", |lock| {
            !condition(lock, "Ready").0.is_empty()
        })
        .await;
    assert_eq!(condition(&lock, "Ready"), ("False".into(), "InvalidSpec".into()));
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_while_nothing_changes() {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("silent").await;
    let a = Contender::hold(&environment, &space).await;
    space.wait_for_role("a", "active").await;
    let lock = space.api::<DistributedLock>().get("report").await.unwrap();
    // Wait for longer than a session timeout: renewals, pings and watches go on.
    tokio::time::sleep(SESSION_TIMEOUT + std::time::Duration::from_secs(1)).await;
    let later = space.api::<DistributedLock>().get("report").await.unwrap();
    assert_eq!(later.resource_version(), lock.resource_version());
    a.leave().await;
    space.leave().await;
}
