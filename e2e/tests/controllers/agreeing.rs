//! What all pods of a lock have to agree on is written in the lock root: a keeper with other settings gets no place, and
//! the operator changes them only while the queue is empty.

use kube::api::{Patch, PatchParams};
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_lock::Agreement;
use lockkeeper_product::beside::conditions::{condition, holders, message, waiting};
use lockkeeper_product::beside::{Environment, Tenant};
use serde_json::json;

use crate::environment::shared;
use crate::guarded::Guarded;

/// The settings as sentences name them.
const ONE: &str = "kind exclusive with maxHolders 1";
const TWO: &str = "kind exclusive with maxHolders 2";

/// What the webhook gives a pod whose lock has `maxHolders: 2`.
const MADE_FOR_TWO: [&str; 1] = ["--max-holders=2"];

fn spec(max_holders: i32) -> DistributedLockSpec {
    DistributedLockSpec {
        max_holders,
        ..DistributedLockSpec::default()
    }
}

/// As `kubectl patch` by a user; returns the version of the settings.
pub async fn set_holders(space: &Tenant, lock: &str, max_holders: i32) -> i64 {
    let patch = json!({ "spec": { "maxHolders": max_holders } });
    let api = space.api::<DistributedLock>();
    let patched = api
        .patch(lock, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    patched.metadata.generation.unwrap()
}

/// Whether the operator has looked at these settings, with this status and reason of `Ready`.
fn is_at(lock: &DistributedLock, generation: i64, ready: &str, reason: &str) -> bool {
    let looked = lock.status.as_ref().and_then(|status| status.observed_generation);
    looked == Some(generation) && condition(lock, "Ready") == (ready.to_owned(), reason.to_owned())
}

/// What the contenders agree on, and how many there are.
async fn in_zookeeper(environment: &Environment, space: &Tenant, lock: &str) -> (String, usize) {
    let root = format!("/lockkeeper/locks/{}/{lock}", space.name);
    let connection = environment.connection().await;
    let (data, _) = connection.get_data(&root).await.unwrap();
    let children = connection.list_children(&root).await.unwrap();
    let agreed = Agreement::parse(&data).unwrap().expect("the operator wrote one");
    (agreed.to_string(), children.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_made_for_other_settings_gets_no_place_and_names_both_while_a_new_one_runs() {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("made-before").await;
    let lock = space.lock("report", spec(2)).await;
    let first = lock.metadata.generation.unwrap();
    let is_two = |lock: &DistributedLock| is_at(lock, first, "True", "Provisioned");
    space.wait_for_lock("report", "it is provided", is_two).await;
    let shrunk = set_holders(&space, "report", 1).await;
    let is_one = |lock: &DistributedLock| is_at(lock, shrunk, "True", "Provisioned");
    space.wait_for_lock("report", "it is for one", is_one).await;

    // Its node was cut off while the lock was changed, for instance.
    let old = Guarded::start(&environment, &space, "report", "old", &MADE_FOR_TWO).await;
    let root = format!("/lockkeeper/locks/{}/report", space.name);
    let sentence = [
        format!("no place in the queue of {root}"),
        format!("agreed on {ONE}"),
        format!("set to {TWO}"),
    ];
    old.wait_until_it_says("/queuedz", &sentence);
    old.wait_until_it_says("/readyz", &sentence);
    let new = Guarded::start(&environment, &space, "report", "new", &[]).await;
    new.pod.wait_until_it_runs(0);
    let lock = space
        .wait_for_lock("report", "the new pod holds", |lock| holders(lock) == ["new"])
        .await;
    assert_eq!(waiting(&lock), [""; 0]);
    assert_eq!(
        in_zookeeper(&environment, &space, "report").await,
        (ONE.to_owned(), 1),
        "the old pod has no place"
    );
    let log = old.pod.said();
    assert!(sentence.iter().all(|part| log.contains(part.as_str())), "{log}");

    // An empty queue does not let it in either: only the operator changes what was agreed.
    new.leave();
    space
        .wait_for_lock("report", "the queue is empty", |lock| holders(lock).is_empty())
        .await;
    let newest = Guarded::start(&environment, &space, "report", "newest", &[]).await;
    newest.pod.wait_until_it_runs(0);
    assert_eq!(
        in_zookeeper(&environment, &space, "report").await,
        (ONE.to_owned(), 1)
    );
    old.wait_until_it_says("/queuedz", &sentence);
    assert!(!old.has_run(), "{}", old.pod.said());
    newest.leave();
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_pods_with_the_former_settings_are_in_the_queue_the_status_says_agreement_pending_and_nothing_changes()
 {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("pending").await;
    space.lock("report", spec(1)).await;
    let a = Guarded::start(&environment, &space, "report", "a", &[]).await;
    let token = a.pod.wait_until_it_runs(0);
    let b = Guarded::start(&environment, &space, "report", "b", &[]).await;
    space
        .wait_for_lock("report", "a holds and b waits", |lock| {
            holders(lock) == ["a"] && waiting(lock) == ["b"]
        })
        .await;

    let grown = set_holders(&space, "report", 2).await;
    let is_pending = |lock: &DistributedLock| is_at(lock, grown, "False", "AgreementPending");
    let lock = space
        .wait_for_lock("report", "the new setting waits", is_pending)
        .await;
    let said = message(&lock, "Ready");
    for part in [
        format!("have agreed on {ONE}"),
        format!("{TWO} comes into force when the queue is empty"),
    ] {
        assert!(said.contains(&part), "{said}");
    }
    let note = space.wait_for_event("report", "ProvisioningFailed").await;
    assert_eq!(note, said);
    assert_eq!(
        (holders(&lock), waiting(&lock)),
        (vec!["a".to_owned()], vec!["b".to_owned()])
    );
    assert_eq!(
        in_zookeeper(&environment, &space, "report").await,
        (ONE.to_owned(), 2)
    );

    // A pod with the new setting waits outside, and says why.
    let c = Guarded::start(&environment, &space, "report", "c", &MADE_FOR_TWO).await;
    let sentence = [format!("agreed on {ONE}"), format!("set to {TWO}")];
    c.wait_until_it_says("/queuedz", &sentence);

    // One pod less is not enough: the handoff is between pods with the former setting.
    a.leave();
    b.pod.wait_until_it_runs(token);
    let lock = space
        .wait_for_lock("report", "b holds", |lock| holders(lock) == ["b"])
        .await;
    assert!(is_pending(&lock), "{:?}", condition(&lock, "Ready"));
    assert_eq!(
        in_zookeeper(&environment, &space, "report").await,
        (ONE.to_owned(), 1)
    );
    c.wait_until_it_says("/queuedz", &sentence);
    assert!(!c.has_run(), "{}", c.pod.said());

    // With the last one the new setting is in force, without a restart of anything.
    b.leave();
    let is_done = |lock: &DistributedLock| is_at(lock, grown, "True", "Provisioned");
    space
        .wait_for_lock("report", "the new setting is in force", is_done)
        .await;
    let d = Guarded::start(&environment, &space, "report", "d", &MADE_FOR_TWO).await;
    c.pod.wait_until_it_runs(0);
    d.pod.wait_until_it_runs(0);
    space
        .wait_for_lock("report", "both hold", |lock| {
            let mut pods = holders(lock);
            pods.sort();
            pods == ["c", "d"] && is_done(lock)
        })
        .await;
    assert_eq!(
        in_zookeeper(&environment, &space, "report").await,
        (TWO.to_owned(), 2)
    );
    c.leave();
    d.leave();
    space.leave().await;
}
