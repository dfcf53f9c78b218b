//! A place in a queue whose session lives, and whose keeper does nothing any more: if the place is removed, it is not taken
//! again.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use lockkeeper_lock::zookeeper::Onlooker;
use lockkeeper_product::beside::{Environment, Tenant};
use lockkeeper_testbed::eventually::{BOUND, eventually};
use serde_json::json;
use zookeeper_client::{Acl, Acls, CreateMode, Error, Permission};

use crate::contender::way;
use crate::environment::{identities, operator_identity};

/// A place in the queue of a lock. Its session ends when it is dropped.
pub struct Seat {
    _connection: Onlooker,
}

impl Seat {
    /// Takes the next place in the queue, for a pod, and states that it holds.
    pub async fn take(environment: &Environment, space: &Tenant, lock: &str, pod: &Pod) -> Self {
        let identities = identities(space).await;
        let rights = |identity: &lockkeeper_operator::identity::Identity| {
            Acl::new(Permission::ALL, identity.auth_id())
        };
        let acls: Vec<_> = identities
            .iter()
            .chain([&operator_identity()])
            .map(rights)
            .collect();
        let options = CreateMode::EphemeralSequential.with_acls(Acls::new(&acls));
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let data = json!({
            "v": 1, "state": "held", "since": "2026-01-01T00:00:00Z", "stopBudgetMillis": 0,
            "pod": { "namespace": space.name, "name": pod.name_any(), "uid": pod.uid(), "node": node },
        })
        .to_string();
        let path = format!(
            "/lockkeeper/locks/{}/{lock}/_c_{:016x}-lock-",
            space.name,
            fastrand::u64(..)
        );
        let way = way(&environment.ensemble.connect_string(), &identities);
        let connection = way.onlooker(0, BOUND).await.unwrap();
        eventually("a place in the queue", async || {
            match connection.create(&path, data.as_bytes(), &options).await {
                Ok(_) => Some(()),
                // The operator is making the lock root.
                Err(Error::NoNode) => None,
                Err(error) => panic!("{error}"),
            }
        })
        .await;
        Self {
            _connection: connection,
        }
    }
}
