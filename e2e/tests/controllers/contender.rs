//! A pod's keeper, as the operator sees it: a contender with the pod's identity, which steps down on request.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_lock::zookeeper::{Credentials, ZooKeeper};
use lockkeeper_lock::{BootClock, Identity, Lock, LockOptions, Timing};
use lockkeeper_operator::identity as digest;
use lockkeeper_product::beside::conditions::holders;
use lockkeeper_product::beside::{Environment, Tenant};
use tokio::task::JoinHandle;

use crate::environment::{identities, operator_identity};

/// The tick of all ensembles here.
const TICK: Duration = Duration::from_secs(1);
/// Long enough that no machine is too slow for the renewals.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(15);

/// A contender; it abandons its place when it is dropped.
pub struct Contender {
    task: JoinHandle<()>,
    leave: tokio::sync::watch::Sender<bool>,
}

impl Contender {
    /// Makes the lock `report` and the pod `a`, and returns when `a` holds it, also according to the status.
    pub async fn hold(environment: &Environment, space: &Tenant) -> Self {
        space.lock("report", DistributedLockSpec::default()).await;
        let pod = space.pod("a", "report").await;
        let a = Self::join(environment, space, "report", &pod).await;
        space
            .wait_for_lock("report", "a holds", |lock| holders(lock) == ["a"])
            .await;
        a
    }

    /// Queues for a pod with the present identities of its namespace.
    pub async fn join(environment: &Environment, space: &Tenant, lock: &str, pod: &Pod) -> Self {
        let reader = format!("digest:{}", operator_identity().acl_id());
        let way = way(&environment.ensemble.connect_string(), &identities(space).await);
        Self::join_by(way.with_readers(vec![reader.parse().unwrap()]), space, lock, pod)
    }

    /// Queues in another ensemble.
    pub fn join_by(zookeeper: ZooKeeper, space: &Tenant, lock: &str, pod: &Pod) -> Self {
        let timing = Timing {
            tick_time: TICK,
            stop_grace: Duration::from_millis(400),
            ..Timing::new(SESSION_TIMEOUT)
        };
        let labels = pod.labels();
        let revision = labels
            .get("pod-template-hash")
            .or_else(|| labels.get("controller-revision-hash"));
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let options = LockOptions {
            control: format!("/lockkeeper/control/{}/{lock}", space.name),
            provisioned: true,
            identity: Identity {
                pod: Some(lockkeeper_lock::Pod {
                    namespace: space.name.clone(),
                    name: pod.name_any(),
                    uid: pod.uid().unwrap(),
                    node: node.unwrap_or_else(|| "n1".to_owned()),
                }),
                host: None,
                revision: revision.cloned(),
            },
            ..LockOptions::new(format!("/lockkeeper/locks/{}/{lock}", space.name), timing)
        };
        let lock = Lock::new(zookeeper, BootClock, options);
        let (leave, mut leaving) = tokio::sync::watch::channel(false);
        let task = tokio::spawn(async move {
            let mut view = lock.view();
            lock.contend().await.unwrap();
            loop {
                tokio::select! {
                    _ = leaving.changed() => break,
                    status = view.changed() => {
                        if status.unwrap().yield_requested {
                            lock.step_down().await.unwrap();
                        }
                    }
                }
            }
            lock.close().await.unwrap();
        });
        Self { task, leave }
    }

    /// Releases, as a pod does that ends.
    pub async fn leave(mut self) {
        self.leave.send_replace(true);
        (&mut self.task).await.unwrap();
    }
}

/// How a pod reaches an ensemble.
pub fn way(connect: &str, identities: &[digest::Identity]) -> ZooKeeper {
    let identities = identities.iter().map(digest::Identity::digest_auth).collect();
    let (_, identities) = tokio::sync::watch::channel(identities);
    ZooKeeper::new(connect.parse().unwrap(), SESSION_TIMEOUT)
        .with_credentials(Credentials::Digests(identities))
}

impl Drop for Contender {
    fn drop(&mut self) {
        self.task.abort();
    }
}
