//! The controller of the namespaces' identities: a namespace gets one when a lock needs it, again when a user deletes it,
//! and another one when a user asks.
//!
//! Changes of the namespace's locks and of its Secret trigger it. It looks at each namespace once at a time, and at a few
//! namespaces at once. The reconciliation of a lock reads what came of that ([`Secrets::settled`]), waits while there is
//! nothing to read, and is triggered when the Secret changes.
//!
//! [`Secrets::settled`]: crate::identity::secrets::Secrets::settled

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use kube::runtime::reflector::Store;
use lockkeeper_crds::DistributedLock;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::controller::context::Context;
use crate::controller::error::Error;

mod ensure;
mod obstacle;

use ensure::PutOff;

/// Namespaces that are looked at at once: what bounds the requests under way.
const AT_ONCE: usize = 16;

/// Maintains the identities of all namespaces.
pub(crate) struct IdentityController {
    ctx: Arc<Context>,
    locks: Store<DistributedLock>,
}

/// The namespaces that have to be looked at, and those that are.
#[derive(Debug, Default)]
struct Queue {
    due: HashMap<String, Instant>,
    under_way: HashSet<String>,
}

struct Looked {
    namespace: String,
    put_off: Option<PutOff>,
    again: Option<Duration>,
}

// === impl Queue ===

impl Queue {
    /// Has a namespace looked at then, or before if that was planned.
    fn put(&mut self, namespace: String, at: Instant) {
        let due = self.due.entry(namespace).or_insert(at);
        *due = at.min(*due);
    }

    /// Takes the namespace that has been due for the longest time.
    fn take(&mut self, now: Instant) -> Option<String> {
        let (namespace, _) = self.first().filter(|(_, at)| *at <= now)?;
        let namespace = namespace.clone();
        self.due.remove(&namespace);
        self.under_way.insert(namespace.clone());
        Some(namespace)
    }

    /// When there is one to take, unless one comes or ends before.
    fn next(&self) -> Option<Instant> {
        self.first().map(|(_, at)| at)
    }

    fn end(&mut self, namespace: &str) {
        self.under_way.remove(namespace);
    }

    fn first(&self) -> Option<(&String, Instant)> {
        let due = self.due.iter().map(|(namespace, at)| (namespace, *at));
        due.filter(|(namespace, _)| !self.under_way.contains(*namespace))
            .min_by_key(|(_, at)| *at)
    }
}

// === impl IdentityController ===

impl IdentityController {
    /// For the namespaces of these locks.
    pub(crate) fn new(ctx: Arc<Context>, locks: Store<DistributedLock>) -> Self {
        Self { ctx, locks }
    }

    /// Runs from when all locks and Secrets are known until `stop`; what is under way then ends first.
    pub(crate) async fn run(
        &self,
        mut are_locks_ready: watch::Receiver<bool>,
        stop: impl Future<Output = ()>,
    ) {
        let mut stop = std::pin::pin!(stop);
        let mut are_secrets_ready = self.ctx.secrets.ready();
        // What is not known yet is not missing. Changes are kept meanwhile.
        let are_known = async {
            // An error is the end of the sender.
            let _ = are_locks_ready.wait_for(|is_ready| *is_ready).await;
            let _ = are_secrets_ready.wait_for(|is_ready| *is_ready).await;
        };
        tokio::select! {
            biased;
            () = &mut stop => return,
            () = are_known => {}
        }
        let mut queue = Queue::default();
        let mut put_off = HashMap::new();
        let mut under_way = FuturesUnordered::new();
        loop {
            while under_way.len() < AT_ONCE
                && let Some(namespace) = queue.take(Instant::now())
            {
                let known = put_off.remove(&namespace);
                under_way.push(self.attempt(namespace, known));
            }
            let next = queue.next().filter(|_| under_way.len() < AT_ONCE);
            let due = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = &mut stop => break,
                Some(looked) = under_way.next() => {
                    let Looked { namespace, put_off: known, again } = looked;
                    queue.end(&namespace);
                    if let Some(again) = again {
                        queue.put(namespace.clone(), Instant::now() + again);
                    }
                    put_off.extend(known.map(|known| (namespace, known)));
                }
                namespaces = self.ctx.namespaces.take() => {
                    let now = Instant::now();
                    namespaces.into_iter().for_each(|namespace| queue.put(namespace, now));
                }
                () = due => {}
            }
        }
        under_way.for_each(async |_| ()).await;
    }

    async fn attempt(&self, namespace: String, mut put_off: Option<PutOff>) -> Looked {
        let done = self.ensure(&namespace, &mut put_off).await;
        let again = match done {
            Ok(again) => again,
            Err(error) => {
                self.ctx.metrics.reconciled(error.reason());
                log(&namespace, &error);
                error.rest()
            }
        };
        Looked {
            namespace,
            put_off,
            again,
        }
    }
}

impl std::fmt::Debug for IdentityController {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdentityController").finish_non_exhaustive()
    }
}

fn log(namespace: &str, error: &Error) {
    if error.is_failure() {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(
            namespace,
            %error,
            cause,
            "Failed to maintain the identity of a namespace; trying again"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_namespace_is_looked_at_once_at_a_time_and_a_change_meanwhile_is_not_forgotten() {
        let mut queue = Queue::default();
        let now = Instant::now();
        let second = Duration::from_secs(1);
        assert_eq!((queue.take(now), queue.next()), (None, None));
        queue.put("shop".into(), now + second);
        queue.put("bank".into(), now);
        queue.put("shop".into(), now);
        queue.put("shop".into(), now + second);
        let mut both = [(); 2].map(|()| queue.take(now).unwrap());
        both.sort();
        assert_eq!((both, queue.take(now)), (["bank".into(), "shop".into()], None));
        queue.put("shop".into(), now);
        assert_eq!((queue.take(now), queue.next()), (None, None));
        queue.end("bank");
        assert_eq!(queue.take(now), None);
        queue.end("shop");
        assert_eq!(queue.take(now).as_deref(), Some("shop"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_changes_all_the_time_keeps_no_other_one_waiting() {
        let mut queue = Queue::default();
        queue.put("shop".into(), Instant::now());
        tokio::time::advance(Duration::from_millis(1)).await;
        queue.put("evil".into(), Instant::now());
        assert_eq!(queue.take(Instant::now()).as_deref(), Some("shop"));
        queue.put("bank".into(), Instant::now() + Duration::from_secs(1));
        assert_eq!(queue.take(Instant::now()).as_deref(), Some("evil"));
        assert_eq!(queue.take(Instant::now()), None, "it is not due yet");
        assert_eq!(queue.next(), Some(Instant::now() + Duration::from_secs(1)));
    }
}
