//! All statuses of a lock that users could see, in their order.

use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use lockkeeper_crds::DistributedLock;
use lockkeeper_product::beside::Tenant;
use lockkeeper_product::beside::conditions::{holders, waiting};
use lockkeeper_testbed::eventually::eventually;
use tokio::task::JoinHandle;

/// Follows the lock `report` of a namespace.
pub struct History {
    namespace: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

/// The content of one status.
#[derive(Clone, Debug)]
struct Seen {
    token: Option<i64>,
    pods: Vec<String>,
}

impl History {
    /// Follows the lock from now on. A watch that ends begins anew, as those of users do.
    pub fn follow(space: &Tenant) -> Self {
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let mut locks = watcher(space.api::<DistributedLock>(), watcher::Config::default())
            .default_backoff()
            .applied_objects()
            .boxed();
        let known = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            while let Some(lock) = locks.next().await {
                // While the API server is down there are no statuses.
                let Ok(lock) = lock else { continue };
                let status = lock.status.as_ref();
                let holder = status.and_then(|status| status.holders.first());
                known.lock().unwrap().push(Seen {
                    token: holder.map(|holder| holder.fencing_token),
                    pods: [holders(&lock), waiting(&lock)].concat(),
                });
            }
        });
        Self {
            namespace: space.name.clone(),
            seen,
            task,
        }
    }

    /// Waits until it has seen this many more holders.
    pub async fn grows(&self, holders: usize) {
        let before = self.holders();
        eventually("statuses follow the queue", async || {
            (self.holders() >= before + holders).then_some(())
        })
        .await;
    }

    /// Ends, and checks that no status showed an older holder than an earlier status, or a pod of another
    /// namespace.
    pub fn check(self) {
        self.task.abort();
        let seen = self.seen.lock().unwrap().clone();
        let tokens: Vec<_> = seen.iter().filter_map(|one| one.token).collect();
        assert!(tokens.is_sorted(), "an old holder came back: {seen:#?}");
        for pod in seen.iter().flat_map(|one| &one.pods) {
            assert!(
                pod.starts_with(&self.namespace),
                "{pod} in the status of {}",
                self.namespace
            );
        }
    }

    fn holders(&self) -> usize {
        let mut tokens: Vec<_> = self
            .seen
            .lock()
            .unwrap()
            .iter()
            .filter_map(|one| one.token)
            .collect();
        tokens.dedup();
        tokens.len()
    }
}
