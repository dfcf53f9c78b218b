//! The operator's reports of problems: a holder that is gone, and a resource that is too old.

use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_product::beside::conditions::{condition, history, holders, message};
use lockkeeper_product::chart::CRD;
use lockkeeper_testbed::eventually::eventually;
use serde_json::Value;

use crate::contender::Contender;
use crate::environment::alone;

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_dies_is_counted_as_a_loss_and_one_that_releases_is_not() {
    let Some(environment) = alone().await else { return };
    let operator = environment.take_operator();
    let space = environment.namespace("losing").await;
    let a = Contender::hold(&environment, &space).await;
    a.leave().await;
    let note = space.wait_for_event("report", "LockReleased").await;
    assert_eq!(note, "a no longer holds the lock");
    let pod = space.pod("b", "report").await;
    let b = Contender::join(&environment, &space, "report", &pod).await;
    space
        .wait_for_lock("report", "b holds", |lock| holders(lock) == ["b"])
        .await;
    let metrics = operator.pages.ask("/metrics").await.unwrap();
    assert!(
        !metrics.contains("lockkeeper_operator_losses_total{"),
        "{metrics}"
    );
    // Its session expires.
    drop(b);
    let note = space.wait_for_event("report", "LockLost").await;
    assert!(
        note.starts_with("b no longer holds the lock, and did not release it"),
        "{note}"
    );
    let name = &space.name;
    let series = format!("lockkeeper_operator_losses_total{{namespace=\"{name}\",lock=\"report\"}} 1");
    eventually("it is counted", async || {
        operator
            .pages
            .ask("/metrics")
            .await?
            .contains(&series)
            .then_some(())
    })
    .await;
    // Within minutes another holder is lost: the event names that one.
    let pod = space.pod("c", "report").await;
    let c = Contender::join(&environment, &space, "report", &pod).await;
    space
        .wait_for_lock("report", "c holds", |lock| holders(lock) == ["c"])
        .await;
    drop(c);
    space
        .wait_for_note("report", "LockLost", "c no longer holds the lock")
        .await;
    // Another operator has the history as well.
    drop(operator);
    environment.put_operator(environment.operator("operator-after-losses", &[]).await);
    let pod = space.pod("d", "report").await;
    let d = Contender::join(&environment, &space, "report", &pod).await;
    let lock = space
        .wait_for_lock("report", "d holds", |lock| holders(lock) == ["d"])
        .await;
    let expected = [("c", "Lost"), ("b", "Lost"), ("a", "Released")];
    assert_eq!(history(&lock), expected.map(|(pod, end)| (pod.to_owned(), end)));
    d.leave().await;
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_sees_each_lock_as_its_status_shows_it_also_when_no_pod_is_left() {
    let Some(environment) = alone().await else { return };
    let operator = environment.take_operator();
    let space = environment.namespace("measured").await;
    let now = async |what: &str| -> Option<f64> {
        let page = operator.pages.ask("/metrics").await?;
        let series = format!(
            "lockkeeper_lock_{what}{{namespace=\"{}\",lock=\"report\"}} ",
            space.name
        );
        page.lines()
            .find_map(|line| line.strip_prefix(&series)?.parse().ok())
    };
    let is = async |what: &str, wanted: f64| {
        eventually(&format!("{what} is {wanted}"), async || {
            (now(what).await? == wanted).then_some(())
        })
        .await;
    };
    let a = Contender::hold(&environment, &space).await;
    let pod = space.pod("b", "report").await;
    let b = Contender::join(&environment, &space, "report", &pod).await;
    for (what, wanted) in [
        ("holders", 1.0),
        ("waiting", 1.0),
        ("ready", 1.0),
        ("unheld_seconds", 0.0),
    ] {
        is(what, wanted).await;
    }
    b.leave().await;
    a.leave().await;
    for (what, wanted) in [("holders", 0.0), ("waiting", 0.0), ("ready", 1.0)] {
        is(what, wanted).await;
    }
    eventually("time without a holder is counted", async || {
        (now("unheld_seconds").await? >= 2.0).then_some(())
    })
    .await;
    environment.put_operator(operator);
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_of_an_older_release_is_told_where_users_look_until_it_is_upgraded() {
    let Some(environment) = alone().await else { return };
    let mut older: Value = serde_saphyr::from_str(CRD).unwrap();
    let version = &mut older["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let status = version["properties"]["status"]["properties"]
        .as_object_mut()
        .unwrap();
    assert!(status.remove("ensemble").is_some() && status.remove("trial").is_some());
    environment.cluster.apply(&older.to_string()).unwrap();
    let space = environment.namespace("older").await;
    space.lock("report", DistributedLockSpec::default()).await;
    let lock = space
        .wait_for_lock("report", "it says that the resource is too old", |lock| {
            condition(lock, "Ready") == ("False".into(), "ResourceOutdated".into())
        })
        .await;
    let said = message(&lock, "Ready");
    assert!(said.contains("upgrade the chart lockkeeper-crds"), "{said}");
    let note = space.wait_for_event("report", "ProvisioningFailed").await;
    assert_eq!(note, said);

    environment.cluster.apply(CRD).unwrap();
    space
        .wait_for_lock("report", "it is ready", |lock| {
            condition(lock, "Ready").0 == "True"
        })
        .await;
    space.leave().await;
}
