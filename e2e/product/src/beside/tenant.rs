//! A namespace of one test, as a tenant uses it through the API server. No kubelet runs its pods.

use k8s_openapi::api::core::v1::{Namespace, Pod, Secret, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Error, ResourceExt};
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_testbed::eventually::eventually;
use serde_json::{Value, json};

/// What the operator says of an API server that is late.
pub const BUSY: &str = "(the API server has not answered for ";

/// A tenant's namespace. Its functions panic when the API server refuses a request.
pub struct Tenant {
    /// A client with all rights, for the runtime of the test.
    pub client: Client,
    /// Name of the namespace.
    pub name: String,
}

impl Tenant {
    /// Makes a namespace of this name with these labels, and waits for its ServiceAccount, without which the
    /// API server accepts no pod.
    pub async fn new(client: Client, name: &str, labels: Value) -> Self {
        let name = format!("{name}-{:016x}", fastrand::u64(..));
        let namespace = json!({ "metadata": { "name": name, "labels": labels } });
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        let api: Api<Namespace> = Api::all(client.clone());
        api.create(&PostParams::default(), &namespace).await.unwrap();
        let tenant = Self { client, name };
        let accounts = tenant.api::<ServiceAccount>();
        eventually("the account of the namespace", async || {
            accounts.get_opt("default").await.unwrap()
        })
        .await;
        tenant
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

    /// A pod that no scheduler handles: only its object matters here.
    pub async fn pod(&self, name: &str, lock: &str) -> Pod {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"lockkeeper.io/lock": lock}},
            "spec": {"schedulerName": "none", "containers": [{"name": "app", "image": "none"}]},
        }))
        .unwrap();
        self.api().create(&PostParams::default(), &pod).await.unwrap()
    }

    pub async fn wait_for_role(&self, pod: &str, role: &str) {
        let api = self.api::<Pod>();
        eventually(&format!("{pod} is {role}"), async || {
            let pod = api.get(pod).await.unwrap();
            let found = pod.labels().get("lockkeeper.io/role").map(String::as_str);
            (found == Some(role)).then_some(())
        })
        .await;
    }

    /// The namespace's identities, as its pods read them: one in each line, the one in use first. `None`
    /// until they exist.
    pub async fn identities(&self) -> Option<String> {
        let secret = self.api::<Secret>().get_opt("lockkeeper-zookeeper").await;
        let auth = secret.unwrap()?.data?.remove("auth")?;
        Some(String::from_utf8(auth.0).unwrap())
    }

    /// Writes a Secret, and replaces its former data.
    pub async fn write_secret(&self, name: &str, data: &[(&str, &str)]) {
        let api = self.api::<Secret>();
        let data: std::collections::BTreeMap<_, _> = data.iter().copied().collect();
        let secret: Secret =
            serde_json::from_value(json!({"metadata": {"name": name}, "stringData": data})).unwrap();
        let _ = api.delete(name, &DeleteParams::default()).await;
        api.create(&PostParams::default(), &secret).await.unwrap();
    }

    /// Requests another identity of the namespace.
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

    pub async fn wait_for_event(&self, about: &str, reason: &str) -> String {
        self.wait_for_note(about, reason, "").await
    }

    /// Waits for an event about an object whose sentence begins so.
    pub async fn wait_for_note(&self, about: &str, reason: &str, beginning: &str) -> String {
        let api = self.api::<Event>();
        eventually(&format!("{reason} about {about}"), async || {
            let events = api.list(&ListParams::default()).await.unwrap();
            let found = events.items.into_iter().find(|event| {
                let regarding = event.regarding.as_ref().and_then(|object| object.name.as_deref());
                regarding == Some(about)
                    && event.reason.as_deref() == Some(reason)
                    && event.note.iter().any(|note| note.starts_with(beginning))
            });
            found.and_then(|event| event.note)
        })
        .await
    }

    /// Deletes the namespace, and waits until the operator has released the finalizers of its locks.
    pub async fn leave(self) {
        let locks = self.api::<DistributedLock>();
        self.abandon().await;
        eventually("the locks of the namespace are gone", async || {
            let left = locks.list(&ListParams::default().limit(1)).await.unwrap();
            left.items.is_empty().then_some(())
        })
        .await;
    }

    /// Deletes the namespace, without waiting.
    ///
    /// # Panics
    /// When the API server refuses it.
    pub async fn abandon(self) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.delete(&self.name, &DeleteParams::default()).await.unwrap();
    }

    /// The pod as the API server admits it, or the reason why it refuses it. If the operator has had no answer from a busy
    /// API server, the pod is tried again, as its controller would.
    ///
    /// # Errors
    /// The sentence of the refusal.
    ///
    /// # Panics
    /// When it is no pod, or the API server does not answer.
    pub async fn admit(&self, pod: &Value) -> Result<Value, String> {
        self.send(pod, false).await
    }

    /// The same as a dry run.
    ///
    /// # Errors
    /// As [`Self::admit`].
    pub async fn try_out(&self, pod: &Value) -> Result<Value, String> {
        self.send(pod, true).await
    }

    async fn send(&self, pod: &Value, dry_run: bool) -> Result<Value, String> {
        let params = PostParams {
            dry_run,
            ..PostParams::default()
        };
        let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
        eventually("the API server answers the operator", async || {
            match self.api().create(&params, &pod).await {
                Ok(created) => Some(Ok(serde_json::to_value::<Pod>(created).unwrap())),
                Err(Error::Api(status)) if status.message.contains(BUSY) => None,
                Err(Error::Api(status)) => Some(Err(status.message)),
                Err(error) => panic!("{error}"),
            }
        })
        .await
    }
}
