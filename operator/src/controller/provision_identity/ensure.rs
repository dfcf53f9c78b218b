//! One look at the identity of one namespace: it is created, completed or rotated, or the rotation is put off.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use kube::{Resource, ResourceExt};
use lockkeeper_crds::DistributedLock;
use tokio::time::Instant;

use super::IdentityController;
use super::obstacle::{Obstacle, obstacle};
use crate::controller::LOOK;
use crate::controller::error::Error;
use crate::controller::followed_locks::key;
use crate::controller::writer::{LeasedWay, StatusWriter, Writer};
use crate::kubernetes::events::{Notice, Reason};
use crate::zookeeper::reachability::Reachability;

/// Events that are told at once.
const EVENTS: usize = 8;

/// A rotation that waits.
#[derive(Debug)]
pub(super) struct PutOff {
    /// When that was found: contenders are looked at again after [`LOOK`].
    at: Instant,
    /// Why; people have been told.
    why: Obstacle,
}

// === impl PutOff ===

impl PutOff {
    /// How long it is believed. One look may go through all queues of the namespace.
    fn rest(&self) -> Option<Duration> {
        let rest = LOOK.saturating_sub(self.at.elapsed());
        (!rest.is_zero()).then_some(rest)
    }
}

// === impl IdentityController ===

impl IdentityController {
    /// Gives the namespace an identity, with all that pods need, if one of its locks stays. The locks are opened to a new
    /// identity before the Secret shows it. `put_off` is the rotation that waited at the last look, and the one that waits
    /// now. Returns when to look again.
    ///
    /// # Errors
    /// Those of the ensemble and of the API server; and when this replica does not lead.
    pub(super) async fn ensure(
        &self,
        namespace: &str,
        put_off: &mut Option<PutOff>,
    ) -> Result<Option<Duration>, Error> {
        let ctx = &*self.ctx;
        let secret = ctx.secrets.of(namespace);
        let rotated = secret
            .and_then(Result::ok)
            .filter(|known| known.is_rotation_asked);
        if rotated.is_none() {
            *put_off = None;
        }
        let rest = put_off.as_ref().and_then(PutOff::rest);
        if ctx.secrets.wanted(namespace, rest.is_none(), false).is_none() {
            return Ok(rest);
        }
        // All namespaces are announced when the ensemble is back, and when this replica leads.
        let Reachability::Up(way) = ctx.own.reachability.borrow().clone() else {
            return Ok(None);
        };
        let way = LeasedWay::new(way);
        let Ok(writer) = ctx.writers.writer() else {
            return Ok(None);
        };
        let locks = self.locks_that_stay(namespace);
        if locks.is_empty() {
            return Ok(None);
        }
        if let Some(known) = rotated.filter(|_| rest.is_none()) {
            let found = obstacle(&ctx.own, &ctx.other_ensembles, &way, namespace, &known.all[0]).await?;
            if let Some(why) = &found
                && put_off.as_ref().is_none_or(|before| before.why != *why)
            {
                tell(writer, &locks, why).await;
            }
            *put_off = found.map(|why| PutOff {
                at: Instant::now(),
                why,
            });
        }
        let again = put_off.as_ref().and_then(PutOff::rest);
        let may_rotate = put_off.is_none();
        let Some(wanted) = ctx
            .secrets
            .wanted(namespace, may_rotate, self.is_same_namespace(&locks))
        else {
            return Ok(again);
        };
        // The Secret of the replica that led before may come late: then there is nothing to change.
        if !writer.try_secret(&ctx.secrets, namespace, &wanted).await? {
            return Ok(again);
        }
        let _changing = ctx.secrets.begin(namespace);
        let keys = ctx.own.view.locks_of(namespace);
        let changed = async {
            for key in &keys {
                writer.ensure_lock(&way, key, &wanted.all).await?;
            }
            writer.write_secret(&ctx.secrets, namespace, &wanted).await
        };
        let changed = changed.await;
        // Whatever came of it, each lock is opened to what the Secret shows in the end.
        for key in &keys {
            ctx.memories.edit(key, |memory| memory.nodes.forget());
        }
        changed?;
        ctx.metrics.reconciled("ok");
        Ok(again)
    }

    /// The locks of a namespace that are not being deleted.
    fn locks_that_stay(&self, namespace: &str) -> Vec<Arc<DistributedLock>> {
        let stays = |lock: &Arc<DistributedLock>| {
            lock.metadata.namespace.as_deref() == Some(namespace)
                && lock.metadata.deletion_timestamp.is_none()
        };
        self.locks.state().into_iter().filter(stays).collect()
    }

    /// Whether the namespace of these locks is the one that had the Secret which this process has seen: one of them was
    /// there then. A namespace that was deleted and made anew has other objects.
    fn is_same_namespace(&self, locks: &[Arc<DistributedLock>]) -> bool {
        locks.iter().any(|lock| {
            let memory = self.ctx.memories.of(&key(lock));
            memory.was_identified(lock.uid().as_deref())
        })
    }
}

/// Publishes why a rotation waits, at the locks that it waits for.
async fn tell(writer: Writer<'_>, locks: &[Arc<DistributedLock>], why: &Obstacle) {
    let notices = [Notice::new(Reason::RotationWaits, why.sentence.as_str())];
    let concerned = locks.iter().filter(|lock| why.locks.contains(&key(lock)));
    let tell = async |lock: &Arc<DistributedLock>| writer.tell(&notices, &lock.object_ref(&())).await;
    stream::iter(concerned).for_each_concurrent(EVENTS, tell).await;
}
