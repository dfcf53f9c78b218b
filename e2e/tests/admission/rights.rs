//! A client with the operator's token can do only what the operator does.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Error, Resource};
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_product::beside::Tenant;
use lockkeeper_product::beside::account::{client, kubeconfig_of};
use lockkeeper_product::chart::SYSTEM;
use lockkeeper_testbed::eventually::eventually;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::pods::{marked, plain};
use crate::webhooks::{Webhooks, shared};

const SECRETS: &str = "writes the Secret lockkeeper-zookeeper of type Opaque, and lockkeeper-webhook of type \
                       kubernetes.io/tls in its own namespace, and no other";
const NO_PODS: &str = "creates no pods, except as dry runs in its own namespace";
const POD: &str = "changes nothing in a pod but its label lockkeeper.io/role";
const LABELS: &str = "changes no label of a pod but lockkeeper.io/role";
const LOCK: &str = "does not change what a user has written into a lock";
const LOCK_METADATA: &str = "may change only the finalizer lockkeeper.io/queue";
const ELSEWHERE: &str = "creates locks only in its own ensemble";
const FOR_ONE: &str = "creates locks only for one holder";
const EVENTS: &str = "writes events about locks only, and changes no events of others";
const WEBHOOKS: &str = "changes nothing in its webhooks but the caBundle";
/// The sentence of RBAC.
const NO_RIGHT: &str = "User \"system:serviceaccount:lockkeeper-system:lockkeeper\" cannot";

/// A client with the operator's token.
async fn operator(webhooks: &Webhooks, test: &str) -> Client {
    let folder = webhooks.folder(test);
    client(&kubeconfig_of(webhooks.cluster, &folder, "lockkeeper")).await
}

/// All requests are dry runs, because the running operator would undo changes.
fn dry() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}

fn of<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn refusal<T>(answer: Result<T, Error>, what: &str) -> String {
    match answer {
        Ok(_) => panic!("{what} is allowed"),
        Err(Error::Api(status)) if status.is_forbidden() => status.message,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Patches an object, as a strategic merge if the kind supports that.
async fn patch<K>(api: &Api<K>, name: &str, patch: Patch<Value>) -> Result<K, Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    api.patch(name, &PatchParams::default().dry_run(), &patch).await
}

fn api<K>(client: &Client, namespace: &str) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), namespace)
}

fn secret(name: &str, kind: &str) -> Secret {
    of(json!({
        "metadata": { "name": name, "annotations": { "kubernetes.io/service-account.name": "default" } },
        "type": kind,
        "stringData": { "auth": "x", "tls.crt": "x", "tls.key": "x" },
    }))
}

async fn created<K>(space: &Tenant, object: K)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone,
    K: DeserializeOwned + Serialize + std::fmt::Debug,
{
    space
        .api::<K>()
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_makes_two_secrets_of_one_type_each_and_changes_no_other() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("secrets").await;
    let operator = operator(&webhooks, "rights-secrets").await;
    let create = async |namespace: &str, name: &str, kind: &str| {
        api(&operator, namespace)
            .create(&dry(), &secret(name, kind))
            .await
    };
    eventually("the policy is there", async || {
        create(&space.name, "other", "Opaque").await.err()
    })
    .await;
    create(&space.name, "lockkeeper-zookeeper", "Opaque")
        .await
        .unwrap();
    for (namespace, name, kind) in [
        (&*space.name, "other", "Opaque"),
        (SYSTEM, "other", "Opaque"),
        (&space.name, "other", "kubernetes.io/service-account-token"),
        (
            &space.name,
            "lockkeeper-zookeeper",
            "kubernetes.io/service-account-token",
        ),
        (&space.name, "lockkeeper-zookeeper", "kubernetes.io/tls"),
        (&space.name, "lockkeeper-webhook", "kubernetes.io/tls"),
        (SYSTEM, "lockkeeper-operator-auth", "Opaque"),
    ] {
        let what = format!("{namespace}/{name} of type {kind}");
        let said = refusal(create(namespace, name, kind).await, &what);
        assert!(said.contains(SECRETS), "{what}: {said}");
    }
    // Its own certificate, which may exist already.
    match create(SYSTEM, "lockkeeper-webhook", "kubernetes.io/tls").await {
        Err(Error::Api(status)) if status.is_already_exists() => {}
        answer => drop(answer.unwrap()),
    }

    // Secrets of others can be read one by one if the chart allows it, but not listed or changed.
    created(&space, secret("of-a-user", "Opaque")).await;
    let secrets = api::<Secret>(&operator, &space.name);
    secrets.get("of-a-user").await.unwrap();
    let listed = secrets.list(&ListParams::default()).await;
    let changed = patch(
        &secrets,
        "of-a-user",
        Patch::Merge(json!({ "data": { "auth": "eA==" } })),
    )
    .await;
    for said in [refusal(listed, "a list"), refusal(changed, "a change")] {
        assert!(said.contains(NO_RIGHT), "{said}");
    }
    let own = ListParams::default().fields("metadata.name=lockkeeper-zookeeper");
    Api::<Secret>::all(operator.clone()).list(&own).await.unwrap();
    space.abandon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_makes_no_pods_and_changes_nothing_in_them_but_the_role() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("pods").await;
    let operator = operator(&webhooks, "rights-pods").await;
    space.admit(&marked("guarded")).await.unwrap();
    space.admit(&plain("plain")).await.unwrap();
    let pods = api::<Pod>(&operator, &space.name);
    let labelled =
        |key: &str, value: Value| Patch::Merge(json!({ "metadata": { "labels": { key: value } } }));
    let other = || labelled("app", json!("other"));
    eventually("the policy is there", async || {
        patch(&pods, "guarded", other()).await.err()
    })
    .await;

    for role in ["active", "standby"] {
        patch(&pods, "guarded", labelled("lockkeeper.io/role", json!(role)))
            .await
            .unwrap();
    }
    let strategic = |spec: Value| Patch::Strategic(json!({ "spec": spec }));
    let metadata = |metadata: Value| Patch::Merge(json!({ "metadata": metadata }));
    for (pod, change, sentence) in [
        ("guarded", other(), LABELS),
        ("guarded", labelled("lockkeeper.io/lock", json!(null)), LABELS),
        (
            "guarded",
            labelled("lockkeeper.io/guard", json!("signal")),
            LABELS,
        ),
        ("guarded", labelled("lockkeeper.io/role", json!("king")), LABELS),
        ("plain", labelled("lockkeeper.io/role", json!("active")), LABELS),
        (
            "guarded",
            metadata(json!({ "annotations": { "lockkeeper.io/ensemble": "x" } })),
            POD,
        ),
        (
            "guarded",
            metadata(json!({ "finalizers": ["example.com/x"] })),
            POD,
        ),
        (
            "guarded",
            strategic(json!({ "containers": [{ "name": "app", "image": "other:1" }] })),
            POD,
        ),
        (
            "guarded",
            strategic(json!({ "initContainers": [{ "name": "lockkeeper", "image": "other:1" }] })),
            POD,
        ),
        ("plain", strategic(json!({ "activeDeadlineSeconds": 1 })), POD),
    ] {
        let what = format!("{pod}: {change:?}");
        let said = refusal(patch(&pods, pod, change).await, &what);
        assert!(said.contains(sentence), "{what}: {said}");
    }

    let in_its_own = api::<Pod>(&operator, SYSTEM);
    let pod = |name: &str| of::<Pod>(plain(name));
    in_its_own.create(&dry(), &pod("dry")).await.unwrap();
    let wet = in_its_own.create(&PostParams::default(), &pod("wet")).await;
    let said = refusal(wet, "a pod");
    assert!(said.contains(NO_PODS), "{said}");
    let said = refusal(pods.create(&dry(), &pod("elsewhere")).await, "a pod elsewhere");
    assert!(said.contains(NO_RIGHT), "{said}");
    space.abandon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_leaves_what_users_have_written_into_a_lock_and_tells_of_locks_alone() {
    let Some(webhooks) = shared().await else { return };
    let space = webhooks.namespace("locks").await;
    let operator = operator(&webhooks, "rights-locks").await;
    space.lock("report", DistributedLockSpec::default()).await;
    let wish = Patch::Merge(json!({ "metadata": { "annotations": { "example.com/of": "a user" } } }));
    let as_user = PatchParams::default();
    let own = space.api::<DistributedLock>();
    own.patch("report", &as_user, &wish).await.unwrap();
    let locks = api::<DistributedLock>(&operator, &space.name);
    let metadata = |metadata: Value| Patch::Merge(json!({ "metadata": metadata }));
    let spec = |spec: Value| Patch::Merge(json!({ "spec": spec }));
    let never = || spec(json!({ "handoff": "Never" }));
    eventually("the policy is there", async || {
        patch(&locks, "report", never()).await.err()
    })
    .await;
    for (change, sentence) in [
        (never(), LOCK),
        (metadata(json!({ "labels": { "a": "b" } })), LOCK),
        (
            metadata(json!({ "annotations": { "example.com/of": null } })),
            LOCK_METADATA,
        ),
        (
            metadata(json!({ "annotations": { "lockkeeper.io/handoff": "a" } })),
            LOCK_METADATA,
        ),
        (
            metadata(json!({ "finalizers": ["lockkeeper.io/queue", "example.com/x"] })),
            LOCK_METADATA,
        ),
    ] {
        let what = format!("{change:?}");
        let said = refusal(patch(&locks, "report", change).await, &what);
        assert!(said.contains(sentence), "{what}: {said}");
    }
    for finalizers in [json!(["lockkeeper.io/queue"]), json!([])] {
        patch(&locks, "report", metadata(json!({ "finalizers": finalizers })))
            .await
            .unwrap();
    }
    let status = Patch::Merge(json!({ "status": { "holders": [] } }));
    let tried = PatchParams::default().dry_run();
    locks.patch_status("report", &tried, &status).await.unwrap();

    let lock = |name: &str, spec: Value| {
        of::<DistributedLock>(json!({
            "apiVersion": "lockkeeper.io/v1alpha1", "kind": "DistributedLock", "metadata": { "name": name }, "spec": spec,
        }))
    };
    locks.create(&dry(), &lock("made", json!({}))).await.unwrap();
    let elsewhere = lock(
        "elsewhere",
        json!({ "zookeeper": { "connect": "zk.example.com:2181" } }),
    );
    let said = refusal(locks.create(&dry(), &elsewhere).await, "a lock elsewhere");
    assert!(said.contains(ELSEWHERE), "{said}");
    let plain = |metadata: Value| {
        let mut metadata = metadata;
        metadata["name"] = json!("made");
        of::<DistributedLock>(json!({
            "apiVersion": "lockkeeper.io/v1alpha1", "kind": "DistributedLock", "metadata": metadata, "spec": {},
        }))
    };
    for (what, other) in [
        ("more holders", lock("made", json!({ "maxHolders": 2 }))),
        ("readers", lock("made", json!({ "mode": "ReadWrite" }))),
        ("a finalizer", plain(json!({ "finalizers": ["example.com/x"] }))),
        (
            "an owner",
            plain(
                json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u" }] }),
            ),
        ),
        (
            "a handoff",
            plain(json!({ "annotations": { "lockkeeper.io/handoff": "x" } })),
        ),
    ] {
        let said = refusal(locks.create(&dry(), &other).await, what);
        assert!(said.contains(FOR_ONE), "{what}: {said}");
    }
    // What other webhooks write into every object.
    let of_others = plain(json!({ "labels": { "team": "a" }, "annotations": { "team": "a" } }));
    locks.create(&dry(), &of_others).await.unwrap();

    let events = api::<Event>(&operator, &space.name);
    let event = |reporter: &str, kind: &str| {
        of::<Event>(json!({
            "metadata": { "name": "report.1" }, "eventTime": "2026-03-01T08:00:00.000000Z", "type": "Normal",
            "reason": "LockAcquired", "action": "Follow", "reportingController": reporter, "reportingInstance": "x",
            "regarding": { "kind": kind, "name": "report", "namespace": space.name },
        }))
    };
    events
        .create(&dry(), &event("lockkeeper-operator", "DistributedLock"))
        .await
        .unwrap();
    // Beside the lock, a pod as a contender names it, or a contender of no pod.
    for related in [
        json!({ "apiVersion": "v1", "kind": "Pod", "namespace": space.name, "name": "a", "uid": "u" }),
        json!({ "kind": "DistributedLock", "namespace": space.name, "name": "report", "fieldPath": "contenders{_c_x-lock-0000000001}" }),
    ] {
        let mut event = event("lockkeeper-operator", "DistributedLock");
        event.related = Some(serde_json::from_value(related).unwrap());
        events.create(&dry(), &event).await.unwrap();
    }
    for (reporter, kind) in [("lockkeeper-operator", "Pod"), ("kubelet", "DistributedLock")] {
        let said = refusal(events.create(&dry(), &event(reporter, kind)).await, kind);
        assert!(said.contains(EVENTS), "{said}");
    }
    space.abandon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_changes_nothing_in_its_webhooks_but_whom_the_api_server_trusts() {
    let Some(webhooks) = shared().await else { return };
    let operator = operator(&webhooks, "rights-webhooks").await;
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(operator);
    let of_pods = |change: Value| {
        let mut webhook = json!({ "name": "pods.lockkeeper.io" });
        webhook
            .as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        Patch::Strategic(json!({ "webhooks": [webhook] }))
    };
    let open = || of_pods(json!({ "failurePolicy": "Ignore" }));
    eventually("the policy is there", async || {
        patch(&webhooks, "lockkeeper", open()).await.err()
    })
    .await;
    let everything =
        json!([{ "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"] }]);
    for change in [
        open(),
        of_pods(json!({ "rules": everything })),
        of_pods(json!({ "matchConditions": [{ "name": "marked", "expression": "true" }] })),
        of_pods(json!({ "clientConfig": { "service": { "name": "other", "namespace": "shop" } } })),
        Patch::Merge(json!({ "webhooks": [] })),
        Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } })),
    ] {
        let what = format!("{change:?}");
        let said = refusal(patch(&webhooks, "lockkeeper", change).await, &what);
        assert!(said.contains(WEBHOOKS), "{what}: {said}");
    }
    let bundle = json!({ "clientConfig": { "caBundle": "eA==" } });
    patch(&webhooks, "lockkeeper", of_pods(bundle)).await.unwrap();
}
