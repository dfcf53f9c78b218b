//! Locks that name another ensemble than the operator's.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::DeleteParams;
use lockkeeper_crds::lock::{SecretRef, ZooKeeperSpec};
use lockkeeper_crds::{ApiDuration, DistributedLock, DistributedLockSpec};
use lockkeeper_operator::identity::Identity;
use lockkeeper_product::beside::Environment;
use lockkeeper_product::beside::conditions::{condition, holders, message};
use lockkeeper_testbed::eventually::{BOUND, eventually};
use lockkeeper_testbed::{Config, Ensemble};

use crate::contender::{Contender, way};
use crate::environment::alone;

fn start() -> Ensemble {
    Ensemble::start(Config {
        servers: 1,
        loopback: true,
        ..Config::default()
    })
    .expect("the servers start")
}

fn spec(connect: &str, credentials: Option<&str>) -> DistributedLockSpec {
    DistributedLockSpec {
        zookeeper: Some(ZooKeeperSpec {
            connect: connect.to_owned(),
            tick_time: Some(ApiDuration::from_secs(1)),
            credentials_secret: credentials.map(|name| SecretRef {
                name: name.to_owned(),
            }),
            tls_secret: None,
        }),
        ..DistributedLockSpec::default()
    }
}

fn is_ready(lock: &DistributedLock) -> bool {
    condition(lock, "Ready") == ("True".into(), "Provisioned".into())
}

fn is_out_of_reach(lock: &DistributedLock) -> bool {
    condition(lock, "EnsembleReachable") == ("False".into(), "Disconnected".into())
}

/// Replaces the running operator by one that may talk to another ensemble.
pub async fn allow(environment: &Environment, other: &Ensemble) {
    drop(environment.take_operator());
    // It may also talk to an ensemble that does not exist.
    let hosts = format!("{},127.0.0.1:1", other.connect_string());
    let options = ["--other-ensembles", &hosts, "--other-ensembles-sessions", "8"];
    environment.put_operator(environment.operator("operator-allowed", &options).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_another_ensemble_is_down_only_its_locks_say_so_and_all_others_go_on() {
    let Some(environment) = alone().await else { return };
    let other = start();
    allow(&environment, &other).await;
    let space = environment.namespace("others").await;
    let identity = Identity::parse("digest:team:secret").unwrap();
    space
        .write_secret("team", &[("auth", "digest:team:secret")])
        .await;
    let connect = format!("{}/team", other.connect_string());
    space.lock("there", spec(&connect, Some("team"))).await;
    space.lock("here", DistributedLockSpec::default()).await;
    space.wait_for_lock("there", "it is provided", is_ready).await;

    let pods = [space.pod("a", "there").await, space.pod("b", "here").await];
    let there = way(&connect, std::slice::from_ref(&identity));
    let a = Contender::join_by(there, &space, "there", &pods[0]);
    space
        .wait_for_lock("there", "a holds", |lock| holders(lock) == ["a"])
        .await;
    space.wait_for_role("a", "active").await;

    other.kill(0);
    let lock = space
        .wait_for_lock("there", "it is out of reach", is_out_of_reach)
        .await;
    assert_eq!(condition(&lock, "Held").0, "Unknown");
    assert_eq!(holders(&lock), ["a"], "what was known is kept");
    // Meanwhile, in the operator's own ensemble:
    let b = Contender::join(&environment, &space, "here", &pods[1]).await;
    let lock = space
        .wait_for_lock("here", "b holds", |lock| holders(lock) == ["b"])
        .await;
    assert_eq!(condition(&lock, "EnsembleReachable").0, "True");
    assert!(
        environment.pages()[0].is_ready().await,
        "an ensemble of somebody's is no matter of its probes"
    );

    other.launch(0).unwrap();
    space
        .wait_for_lock("there", "it is right again", |lock| {
            is_ready(lock) && condition(lock, "EnsembleReachable").0 == "True"
        })
        .await;
    drop(a);
    space
        .wait_for_lock("there", "its holder's session is over", |lock| {
            holders(lock).is_empty()
        })
        .await;
    b.leave().await;

    // The session ends with the last lock.
    let api = space.api::<DistributedLock>();
    api.delete("there", &DeleteParams::default()).await.unwrap();
    eventually("the session is dropped", async || {
        let connections = other.ask(0, "cons")?;
        (!connections.contains("sid=")).then_some(())
    })
    .await;
    let connection = way(&connect, &[identity]).onlooker(0, BOUND).await.unwrap();
    let above = format!("/team/lockkeeper/locks/{}", space.name);
    assert_eq!(
        connection.check_stat(&above).await.unwrap(),
        None,
        "nothing is left"
    );
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_credentials_went_while_no_operator_ran_does_not_stay_for_ever() {
    let Some(environment) = alone().await else { return };
    let other = start();
    allow(&environment, &other).await;
    let space = environment.namespace("orphaned").await;
    space
        .write_secret("team", &[("auth", "digest:team:secret")])
        .await;
    space
        .lock("report", spec(&other.connect_string(), Some("team")))
        .await;
    space
        .wait_for_lock(
            "report",
            "it is provided, and kept until its nodes are gone",
            |lock| is_ready(lock) && !lock.finalizers().is_empty(),
        )
        .await;
    drop(environment.take_operator());
    let delete = DeleteParams::default();
    space.api::<Secret>().delete("team", &delete).await.unwrap();
    let locks = space.api::<DistributedLock>();
    locks.delete("report", &delete).await.unwrap();
    let hosts = other.connect_string();
    let options = ["--other-ensembles", &hosts];
    environment.put_operator(environment.operator("operator-after", &options).await);
    eventually("the object is gone", async || {
        locks.get_opt("report").await.unwrap().is_none().then_some(())
    })
    .await;
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_secret_or_an_ensemble_is_said_and_mended_without_a_restart() {
    let Some(environment) = alone().await else { return };
    let other = start();
    allow(&environment, &other).await;
    let space = environment.namespace("wrong").await;
    let connect = other.connect_string();
    space.lock("report", spec(&connect, Some("team"))).await;
    let says = async |lock: &str, reason: &str, part: &str| {
        space
            .wait_for_lock(lock, part, |lock| {
                condition(lock, "Ready") == ("False".into(), reason.into())
                    && message(lock, "Ready").contains(part)
            })
            .await
    };
    says(
        "report",
        "SecretUnusable",
        "Secret team, which zookeeper.credentialsSecret names, does not exist",
    )
    .await;
    space.write_secret("team", &[("password", "secret")]).await;
    says("report", "SecretUnusable", "key auth of Secret team is missing").await;
    space.write_secret("team", &[("auth", "secret")]).await;
    says(
        "report",
        "SecretUnusable",
        "key auth of Secret team must hold digest:USER:PASSWORD",
    )
    .await;
    let note = space.wait_for_event("report", "ProvisioningFailed").await;
    assert!(note.contains("key auth of Secret team"), "{note}");
    space.write_secret("team", &[("auth", "digest:team:old")]).await;
    space.wait_for_lock("report", "it is provided", is_ready).await;

    // Another identity can replace it, since both are in the Secret for a while.
    space
        .write_secret("team", &[("auth", "digest:team:new\ndigest:team:old")])
        .await;
    let new = [Identity::parse("team:new").unwrap()];
    let root = format!("/lockkeeper/locks/{}/report", space.name);
    let connection = way(&connect, &new).onlooker(0, BOUND).await.unwrap();
    eventually("the nodes are open to the new identity", async || {
        connection.list_children(&root).await.ok()
    })
    .await;
    space.write_secret("team", &[("auth", "digest:team:new")]).await;
    let a = Contender::join_by(
        way(&connect, &new),
        &space,
        "report",
        &space.pod("a", "report").await,
    );
    space
        .wait_for_lock("report", "a holds", |lock| {
            holders(lock) == ["a"] && is_ready(lock)
        })
        .await;
    a.leave().await;

    // The identity that the operator makes has no right to the nodes of the team.
    space.lock("stranger", spec(&connect, None)).await;
    says(
        "stranger",
        "ProvisioningFailed",
        "there is no right to /lockkeeper/locks/",
    )
    .await;
    let mut short = spec(&connect, Some("team"));
    short.zookeeper.as_mut().unwrap().tick_time = Some(ApiDuration::from_millis(500));
    space.lock("short", short).await;
    says(
        "short",
        "InvalidSpec",
        "shorter than the ensemble's tickTime, which is 1s",
    )
    .await;
    // No server answers, and the deletion of the lock does not wait for one.
    space.lock("nowhere", spec("127.0.0.1:1", Some("team"))).await;
    space
        .wait_for_lock("nowhere", "it is out of reach", is_out_of_reach)
        .await;
    space.leave().await;
}
