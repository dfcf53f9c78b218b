//! Takeovers from silent holders, and changes of `leaseDuration` under pods that were created before.

use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use lockkeeper_crds::settings::word_of;
use lockkeeper_crds::{ApiLease, DistributedLock, DistributedLockSpec, keys};
use lockkeeper_product::beside::conditions::{condition, holders, message, waiting};
use lockkeeper_product::beside::{Environment, Tenant};
use lockkeeper_product::binaries;
use serde_json::json;

use crate::contender::Contender;
use crate::environment::shared;

/// The digest of the settings that a release has written whose default of `leaseDuration` was `off`.
const OF_THE_FORMER_DEFAULTS: &str = "4f53cda18c2baa0c";

/// A pod as the webhook creates it, as far as anybody here looks.
async fn pod_of(space: &Tenant, name: &str, lease: ApiLease, settings: &str) -> Pod {
    let lease = json!({ "name": keys::LEASE_DURATION, "value": lease });
    let pod = json!({
        "metadata": {
            "name": name,
            "labels": { keys::LOCK: "report" },
            "annotations": { keys::SETTINGS: settings },
        },
        "spec": {
            "schedulerName": "none",
            "initContainers": [{ "name": keys::SIDECAR, "image": "none", "restartPolicy": "Always", "env": [lease] }],
            "containers": [{ "name": "app", "image": "none" }],
        },
    });
    serde_json::from_value(space.admit(&pod).await.unwrap()).unwrap()
}

/// A lock with the defaults that `a` holds and for which `b` waits.
async fn held_before_another(environment: &Environment, space: &Tenant) -> [Contender; 2] {
    let spec = DistributedLockSpec::default();
    let (lease, settings) = (spec.lease_duration, word_of(&spec));
    space.lock("report", spec).await;
    let a = pod_of(space, "a", lease, &settings).await;
    let a = Contender::join(environment, space, "report", &a).await;
    let with_lease = |lock: &DistributedLock| holders(lock) == ["a"] && lease_of_holder(lock).is_some();
    space.wait_for_lock("report", "a holds", with_lease).await;
    let b = pod_of(space, "b", lease, &settings).await;
    let b = Contender::join(environment, space, "report", &b).await;
    space
        .wait_for_lock("report", "b waits", |lock| waiting(lock) == ["b"])
        .await;
    [a, b]
}

/// L as the first holder states it.
fn lease_of_holder(lock: &DistributedLock) -> Option<String> {
    let holder = lock.status.as_ref()?.holders.first()?;
    Some(holder.lease_duration?.to_string())
}

/// What the plugin prints.
fn plugin(environment: &Environment, space: &Tenant, words: [&str; 2]) -> String {
    let output = Command::new(binaries::plugin().unwrap())
        .args(words)
        .args(["--namespace", &space.name, "--kubeconfig"])
        .arg(environment.cluster.kubeconfig())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What `status` says in the row of this name, whatever its column's width.
fn row<'a>(status: &'a str, name: &str) -> &'a str {
    let rows = status.lines().filter_map(|line| line.split_once(':'));
    let mut values = rows.filter(|row| row.0 == name).map(|row| row.1.trim_start());
    values.next().unwrap_or_default()
}

/// Waits until a condition `Ready` says that the settings are in force except for these pods.
async fn wait_until_outdated(space: &Tenant, pods: &str) -> DistributedLock {
    let what = format!("outdated pods: {pods}");
    space
        .wait_for_lock("report", &what, |lock| {
            condition(lock, "Ready") == ("True".into(), "PodsOutdated".into())
                && message(lock, "Ready").ends_with(&format!(": {pods}"))
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_is_told_in_the_status_in_an_event_and_by_the_plugin_with_both_pods_and_the_silence() {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("taking").await;
    let [a, b] = held_before_another(&environment, &space).await;
    let why = plugin(&environment, &space, ["why", "b"]);
    assert!(why.contains("; it takes over if a is silent for "), "{why}");
    drop(a);
    let lock = space
        .wait_for_lock("report", "b holds", |lock| holders(lock) == ["b"])
        .await;
    let holder = lock.status.unwrap().holders.remove(0);
    let from = holder.taken_from.expect("it took the place");
    assert_eq!(from.pod, "a");
    let silence = from.silence;
    assert!(Some(silence) > holder.lease_duration, "{silence}");
    let note = space.wait_for_event("report", "TakenOver").await;
    assert_eq!(note, format!("a was silent for {silence}, and b took its place"));
    let status = plugin(&environment, &space, ["status", "report"]);
    let from = format!("by b from a, which was silent for {silence}");
    assert_eq!(row(&status, "Taken over"), from, "{status}");
    let history = plugin(&environment, &space, ["history", "report"]);
    let line = format!("TakenOver by b after {silence}\n");
    assert!(history.contains(&line), "{history}");
    let why = plugin(&environment, &space, ["why", "b"]);
    let part = format!("; it took the place of a, which was silent for {silence}");
    assert!(why.contains(&part), "{why}");
    b.leave().await;
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_duration_that_is_changed_reports_the_pods_that_keep_the_former_one_and_these_keep_to_it() {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("leasing").await;
    let [a, b] = held_before_another(&environment, &space).await;
    pod_of(&space, "old", ApiLease::Off, OF_THE_FORMER_DEFAULTS).await;
    let lock = wait_until_outdated(&space, "old").await;
    let lease = lease_of_holder(&lock).expect("its pod states one");

    let off = json!({ "spec": { "leaseDuration": "off" } });
    let api = space.api::<DistributedLock>();
    api.patch("report", &PatchParams::default(), &Patch::Merge(off))
        .await
        .unwrap();
    let lock = wait_until_outdated(&space, "a, b").await;
    assert_eq!(lease_of_holder(&lock).as_ref(), Some(&lease));
    let status = plugin(&environment, &space, ["status", "report"]);
    let kept = format!("{lease}; off for pods that are created now");
    assert_eq!(row(&status, "Lease"), kept, "{status}");
    let why = plugin(&environment, &space, ["why", "b"]);
    let parts = [
        format!("; it takes over if a is silent for {lease}"),
        "; it was created with other settings than the lock has now".to_owned(),
    ];
    assert!(parts.iter().all(|part| why.contains(part)), "{why}");
    drop(a);
    let lock = space
        .wait_for_lock("report", "b holds", |lock| holders(lock) == ["b"])
        .await;
    let from = lock.status.unwrap().holders.remove(0).taken_from;
    assert_eq!(from.map(|from| from.pod), Some("a".to_owned()));
    b.leave().await;
    space.leave().await;
}
