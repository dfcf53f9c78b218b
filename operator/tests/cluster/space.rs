//! A namespace of a test's own.

use k8s_openapi::api::core::v1::{Namespace, Pod, Secret, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_operator::identity::Identity;
use serde_json::{Value, json};

use super::eventually;

/// A namespace.
pub struct Space {
    pub client: Client,
    pub name: String,
}

impl Space {
    /// Makes a namespace of this name with these labels, and waits for its ServiceAccount, without which no pod gets in.
    pub async fn made(client: Client, name: &str, labels: Value) -> Self {
        let name = format!("{name}-{:016x}", fastrand::u64(..));
        let namespace = json!({ "metadata": { "name": name, "labels": labels } });
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        let api: Api<Namespace> = Api::all(client.clone());
        api.create(&PostParams::default(), &namespace).await.unwrap();
        let space = Self { client, name };
        let accounts = space.api::<ServiceAccount>();
        eventually("the account of the namespace", async || {
            accounts.get_opt("default").await.unwrap()
        })
        .await;
        space
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    pub async fn lock(&self, name: &str, spec: DistributedLockSpec) -> DistributedLock {
        let lock = DistributedLock::new(name, spec);
        self.api().create(&PostParams::default(), &lock).await.unwrap()
    }

    /// Waits until a lock is as it should be.
    pub async fn wait_for_lock(
        &self,
        name: &str,
        what: &str,
        mut pleases: impl FnMut(&DistributedLock) -> bool,
    ) -> DistributedLock {
        let api = self.api::<DistributedLock>();
        eventually(what, async || {
            api.get_opt(name).await.unwrap().filter(&mut pleases)
        })
        .await
    }

    /// A pod that no scheduler looks at: its object is all that counts here.
    pub async fn pod(&self, name: &str, lock: &str) -> Pod {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"lockkeeper.io/lock": lock}},
            "spec": {"schedulerName": "none", "containers": [{"name": "app", "image": "none"}]},
        }))
        .unwrap();
        self.api().create(&PostParams::default(), &pod).await.unwrap()
    }

    /// Waits until a pod has a role.
    pub async fn wait_for_role(&self, pod: &str, role: &str) {
        let api = self.api::<Pod>();
        eventually(&format!("{pod} is {role}"), async || {
            let pod = api.get(pod).await.unwrap();
            let found = pod.labels().get("lockkeeper.io/role").map(String::as_str);
            (found == Some(role)).then_some(())
        })
        .await;
    }

    /// The namespace's identity in use.
    pub async fn identity(&self) -> Identity {
        self.identities().await.swap_remove(0)
    }

    /// The namespace's identities, as its pods read them.
    pub async fn identities(&self) -> Vec<Identity> {
        let api = self.api::<Secret>();
        eventually("the Secret of the namespace", async || {
            let secret = api.get_opt("lockkeeper-zookeeper").await.unwrap()?;
            let auth = secret.data?.remove("auth")?;
            Identity::parse_lines(std::str::from_utf8(&auth.0).unwrap()).ok()
        })
        .await
    }

    /// Writes a Secret, whatever it held.
    pub async fn write_secret(&self, name: &str, data: &[(&str, &str)]) {
        let api = self.api::<Secret>();
        let data: std::collections::BTreeMap<_, _> = data.iter().copied().collect();
        let secret: Secret =
            serde_json::from_value(json!({"metadata": {"name": name}, "stringData": data})).unwrap();
        let _ = api.delete(name, &DeleteParams::default()).await;
        api.create(&PostParams::default(), &secret).await.unwrap();
    }

    /// Asks for another identity of the namespace.
    pub async fn rotate(&self) {
        let patch = json!({"metadata": {"annotations": {"lockkeeper.io/rotate": "now"}}});
        let api = self.api::<Secret>();
        api.patch(
            "lockkeeper-zookeeper",
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
        .unwrap();
    }

    pub async fn annotate(&self, lock: &str, key: &str, value: &str) {
        let patch = json!({"metadata": {"annotations": {key: value}}});
        let api = self.api::<DistributedLock>();
        api.patch(lock, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Waits for an event about an object.
    pub async fn wait_for_event(&self, about: &str, reason: &str) -> String {
        let api = self.api::<Event>();
        eventually(&format!("{reason} about {about}"), async || {
            let events = api.list(&ListParams::default()).await.unwrap();
            let found = events.items.into_iter().find(|event| {
                let regarding = event.regarding.as_ref().and_then(|object| object.name.as_deref());
                regarding == Some(about) && event.reason.as_deref() == Some(reason)
            });
            found.and_then(|event| event.note)
        })
        .await
    }

    /// Deletes the namespace, and waits until the operator has let its locks go.
    pub async fn leave(self) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.delete(&self.name, &DeleteParams::default()).await.unwrap();
        let locks = self.api::<DistributedLock>();
        eventually("the locks of the namespace are gone", async || {
            let left = locks.list(&ListParams::default().limit(1)).await.unwrap();
            left.items.is_empty().then_some(())
        })
        .await;
    }
}
