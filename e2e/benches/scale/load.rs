//! Many locks with contenders, and the time that the API server alone needs for their statuses.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use json_patch::{AddOperation, Patch as JsonPatch, PatchOperation};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_lock::zookeeper::Onlooker;
use lockkeeper_lock::{BootClock, Clock};
use lockkeeper_operator::lock_key::LockKey;
use lockkeeper_operator::zookeeper::nodes::Tree;
use lockkeeper_operator::zookeeper::paths::Layout;
use lockkeeper_product::beside::conditions::holders;
use lockkeeper_product::beside::{Environment, Tenant};
use serde_json::json;
use zookeeper_client::{Acls, CreateMode};

use crate::environment::operator_identity;

/// Requests under way at once: as many as the operator has.
const BREADTH: usize = 64;

/// Time between two checks that the locks are gone.
const LOOK: Duration = Duration::from_millis(500);

/// Contenders in each queue: one holds, the others wait.
pub const CONTENDERS: usize = 3;

/// Locks of one namespace, with contenders that belong to no pod and stay without a connection.
pub struct Load {
    pub space: Tenant,
    connection: Onlooker,
    tree: Tree,
    keys: Vec<LockKey>,
    contenders: Vec<String>,
}

impl Load {
    /// No locks yet.
    pub async fn new(environment: &Environment) -> Self {
        Self {
            space: environment.namespace("many").await,
            connection: environment.connection().await,
            tree: Tree::new(Layout::new("/lockkeeper"), operator_identity()),
            keys: Vec::new(),
            contenders: Vec::new(),
        }
    }

    /// Makes more locks, until there are `count`.
    pub async fn grow(&mut self, count: usize) {
        let new: Vec<_> = (self.keys.len()..count)
            .map(|at| LockKey::new(self.space.name.as_str(), format!("lock-{at:05}")))
            .collect();
        let locks = self.locks();
        let made: Vec<_> = stream::iter(&new)
            .map(async |key| {
                self.tree.ensure_lock(&self.connection, key, &[]).await.unwrap();
                let mut made = Vec::new();
                for at in 0..CONTENDERS {
                    made.push(self.join(key, at).await);
                }
                let lock = DistributedLock::new(&key.name, DistributedLockSpec::default());
                locks.create(&PostParams::default(), &lock).await.unwrap();
                made
            })
            .buffer_unordered(BREADTH)
            .concat()
            .await;
        self.contenders.extend(made);
        self.keys.extend(new);
    }

    async fn join(&self, key: &LockKey, at: usize) -> String {
        let pod = format!("{}-{at}", key.name);
        let data = json!({
            "v": 1,
            "state": if at == 0 { "held" } else { "waiting" },
            "pod": {"namespace": &*key.namespace, "name": pod, "uid": pod, "node": "n1"},
            "since": "2026-01-01T00:00:00Z",
            "stopBudgetMillis": 3000,
        });
        let options = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
        let path = format!("{}/_c_{pod}-lock-", self.tree.layout().lock(key));
        let data = data.to_string();
        let (_, sequence) = self
            .connection
            .create(&path, data.as_bytes(), &options)
            .await
            .unwrap();
        format!("{path}{sequence}")
    }

    /// The time of a client that only writes as many statuses of the same size. All of them are wrong
    /// afterwards.
    pub async fn raw_writes(&self) -> Duration {
        let locks = self.locks();
        let started = BootClock.now();
        stream::iter(&self.keys)
            .map(async |key| {
                let pod = |at: usize| {
                    json!({
                        "pod": format!("{}-{at}", key.name),
                        "uid": format!("{}-{at}", key.name),
                        "node": "n0",
                        "contender": format!("_c_{}-{at}-lock-0000000000", key.name),
                    })
                };
                let mut holder = pod(0);
                holder["fencingToken"] = 1.into();
                holder["since"] = "2025-01-01T00:00:00Z".into();
                let condition = |kind: &str| {
                    json!({
                        "type": kind,
                        "status": "Unknown",
                        "reason": "Disconnected",
                        "message": "nobody has looked yet",
                        "lastTransitionTime": "2025-01-01T00:00:00Z",
                        "observedGeneration": 1,
                    })
                };
                let conditions = ["Ready", "Held", "EnsembleReachable"].map(condition);
                let status = json!({
                    "holders": [holder],
                    "waiting": 7,
                    "queue": [pod(1), pod(2)],
                    "stopBudget": "1s",
                    "conditions": conditions,
                });
                let patch = JsonPatch(vec![PatchOperation::Add(AddOperation {
                    path: "/status".parse().unwrap(),
                    value: status,
                })]);
                let patch = Patch::<DistributedLock>::Json(patch);
                locks
                    .patch_status(&key.name, &PatchParams::default(), &patch)
                    .await
                    .unwrap();
            })
            .buffer_unordered(BREADTH)
            .collect::<()>()
            .await;
        BootClock.now() - started
    }

    /// The number of correct statuses.
    pub async fn right(&self) -> usize {
        let locks = self.locks();
        let mut right = 0;
        let mut page = ListParams::default().limit(1_000);
        loop {
            let list = locks.list(&page).await.unwrap();
            let is_right = |lock: &&DistributedLock| {
                let waiting = lock.status.as_ref().and_then(|status| status.waiting);
                holders(lock) == [format!("{}-0", lock.name_any())] && waiting == Some(CONTENDERS as i32 - 1)
            };
            right += list.items.iter().filter(is_right).count();
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return right,
            }
        }
    }

    /// Empties all queues, deletes the namespace, and waits until the operator has released the locks'
    /// finalizers.
    pub async fn leave(self, bound: Duration) {
        stream::iter(&self.contenders)
            .map(async |path| self.connection.delete(path, None).await.unwrap())
            .buffer_unordered(BREADTH)
            .collect::<()>()
            .await;
        let namespaces: Api<Namespace> = Api::all(self.space.client.clone());
        let name = &self.space.name;
        namespaces.delete(name, &DeleteParams::default()).await.unwrap();
        let locks = self.locks();
        let left = async || locks.list(&ListParams::default().limit(1)).await.unwrap().items;
        let end = BootClock.now() + bound;
        while !left().await.is_empty() {
            assert!(BootClock.now() < end, "locks are left in {name}");
            tokio::time::sleep(LOOK).await;
        }
    }

    fn locks(&self) -> Api<DistributedLock> {
        self.space.api()
    }
}
