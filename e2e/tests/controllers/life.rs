//! The whole life of a lock: made, provided, held, handed over, deleted. Each stage has to be complete,
//! whatever happens to the operator meanwhile.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_lock::Control;
use lockkeeper_lock::zookeeper::{Credentials, Onlooker, ZooKeeper};
use lockkeeper_operator::identity::Identity;
use lockkeeper_product::beside::conditions::{condition, holders, waiting};
use lockkeeper_product::beside::{Environment, Tenant};
use lockkeeper_testbed::eventually::{BOUND, eventually, eventually_within};
use serde_json::{Value, json};
use zookeeper_client::{Acl, Acls, CreateMode, Permission};

use crate::environment::{identities, operator_identity};

/// For what takes several writes of the operator: it may be killed after each of them, and starts anew.
const LONG: Duration = BOUND.saturating_mul(3);

/// One lock, `report`, with the pods `a` and `b`; the test acts as their keepers.
struct Life<'a> {
    space: &'a Tenant,
    operators: &'a Onlooker,
    identity: Identity,
    root: String,
    control: String,
}

pub async fn live(environment: &Environment, space: &Tenant, operators: &Onlooker) {
    space.lock("report", DistributedLockSpec::default()).await;
    let pods = [space.pod("a", "report").await, space.pod("b", "report").await];
    let life = Life {
        identity: identities(space).await.swap_remove(0),
        space,
        operators,
        root: format!("/lockkeeper/locks/{}/report", space.name),
        control: format!("/lockkeeper/control/{}/report", space.name),
    };
    let keepers = ZooKeeper::new(environment.ensemble.connect_string().parse().unwrap(), BOUND)
        .with_credentials(Credentials::Digest(life.identity.digest_auth()))
        .onlooker(0, BOUND)
        .await
        .unwrap();
    let a = life.join(&keepers, &pods[0], "held").await;
    let b = life.join(&keepers, &pods[1], "waiting").await;
    life.becomes(&["a"], &["b"], json!({"a": "active", "b": "standby"}), &[])
        .await;

    space.annotate("report", "lockkeeper.io/handoff", "b").await;
    eventually("a is asked to step down", async || {
        let (data, _) = keepers.get_data(&life.control).await.unwrap();
        Control::parse(&data).asks(&a).then_some(())
    })
    .await;
    keepers.delete(&format!("{}/{a}", life.root), None).await.unwrap();
    let held = document(space, &pods[1], "held");
    let path = format!("{}/{b}", life.root);
    keepers.set_data(&path, held.as_bytes(), None).await.unwrap();
    life.becomes(&["b"], &[], json!({"a": "standby", "b": "active"}), &[&a])
        .await;

    // For pods that name the lock the operator would create another one with the defaults.
    let api = space.api::<Pod>();
    for pod in ["a", "b"] {
        let now = DeleteParams::default().grace_period(0);
        api.delete(pod, &now).await.unwrap();
    }
    let locks = space.api::<DistributedLock>();
    locks.delete("report", &DeleteParams::default()).await.unwrap();
    space
        .wait_for_lock("report", "deletion waits for b", |lock| {
            condition(lock, "Ready").1 == "Deleting" && holders(lock) == ["b"]
        })
        .await;
    keepers.delete(&path, None).await.unwrap();
    eventually("the object is gone", async || {
        locks.get_opt("report").await.unwrap().is_none().then_some(())
    })
    .await;
    for path in [&life.root, &life.control] {
        let left = operators.check_stat(path).await.unwrap();
        assert_eq!(left, None, "{path} is left");
    }
    assert_eq!(
        identities(space).await.swap_remove(0),
        life.identity,
        "another identity was made"
    );
}

fn document(space: &Tenant, pod: &Pod, state: &str) -> String {
    let pod = json!({"namespace": space.name, "name": pod.name_any(), "uid": pod.uid(), "node": "n1"});
    json!({"v": 1, "state": state, "pod": pod}).to_string()
}

impl Life<'_> {
    /// Queues as a pod's keeper, once the lock root exists and is open to the namespace. Returns the
    /// contender's name.
    async fn join(&self, keepers: &Onlooker, pod: &Pod, state: &str) -> String {
        let data = document(self.space, pod, state);
        let operator = zookeeper_client::AuthId::new("digest", &operator_identity().acl_id());
        let acls = [
            Acl::new(Permission::READ, operator),
            Acl::new(Permission::ALL, self.identity.auth_id()),
        ];
        let options = CreateMode::EphemeralSequential.with_acls(Acls::new(&acls));
        let path = format!("{}/_c_{}-lock-", self.root, pod.name_any());
        let sequence = eventually_within(LONG, "the lock is open to its namespace", async || {
            let made = keepers.create(&path, data.as_bytes(), &options).await;
            made.ok().map(|(_, sequence)| sequence)
        })
        .await;
        format!("_c_{}-lock-{sequence}", pod.name_any())
    }

    /// Waits until the status shows these holders and waiters, the pods have these roles, and the control
    /// node asks these contenders to step down.
    async fn becomes(&self, holding: &[&str], waits: &[&str], roles: Value, asked: &[&str]) {
        let (operator, namespace) = ("operator", "namespace");
        let wanted = json!({
            "holders": holding,
            "waiting": waits,
            "conditions": [["True", "Provisioned"], ["True", "HeldByPods"], ["True", "Connected"]],
            "isObserved": true,
            "finalizers": ["lockkeeper.io/queue"],
            "annotations": {},
            "roles": roles,
            "root": [[operator, rights(Permission::ALL)],
                [namespace, rights(Permission::READ | Permission::CREATE | Permission::DELETE)]],
            "control": [[operator, rights(Permission::ALL)], [namespace, rights(Permission::READ | Permission::WRITE)]],
            "asked": asked,
        });
        let mut last = Value::Null;
        eventually(&format!("everything as it should be: {wanted:#}"), async || {
            let state = self.state().await;
            // For a test that fails.
            if state != last {
                println!("{}: {state}", self.space.name);
            }
            last = state;
            (last == wanted).then_some(())
        })
        .await;
    }

    async fn state(&self) -> Value {
        let lock = self.space.api::<DistributedLock>().get("report").await.unwrap();
        let pods = self
            .space
            .api::<Pod>()
            .list(&ListParams::default())
            .await
            .unwrap();
        let role = |pod: Pod| {
            let role = pod.labels().get("lockkeeper.io/role").cloned();
            (pod.name_any(), Value::from(role))
        };
        let kinds = ["Ready", "Held", "EnsembleReachable"];
        // The control node is created after the lock root.
        let control = self.operators.get_data(&self.control).await.ok();
        let control = control.map(|(data, _)| Control::parse(&data)).unwrap_or_default();
        let asked = control.yield_request.map(|request| request.contenders);
        json!({
            "holders": holders(&lock),
            "waiting": waiting(&lock),
            "conditions": kinds.map(|kind| condition(&lock, kind)),
            "isObserved": lock.status.as_ref().and_then(|status| status.observed_generation) == lock.metadata.generation,
            "finalizers": lock.finalizers(),
            "annotations": lock.annotations(),
            "roles": pods.items.into_iter().map(role).collect::<serde_json::Map<_, _>>(),
            "root": self.access(&self.root).await,
            "control": self.access(&self.control).await,
            "asked": asked.unwrap_or_default(),
        })
    }

    /// The access rights to a node.
    async fn access(&self, path: &str) -> Value {
        let Ok((acls, _)) = self.operators.get_acl(path).await else {
            return Value::Null;
        };
        let who = |id: &str| match id {
            id if id == operator_identity().acl_id() => "operator".to_owned(),
            id if id == self.identity.acl_id() => "namespace".to_owned(),
            id => id.to_owned(),
        };
        acls.iter()
            .map(|acl| json!([who(acl.id()), rights(acl.permission())]))
            .collect()
    }
}

fn rights(permission: Permission) -> String {
    format!("{permission:?}")
}
