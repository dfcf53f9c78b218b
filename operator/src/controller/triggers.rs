//! What is reconciled next: locks that changed, locks for which another object changed, and the identities of
//! namespaces.

use std::future::ready;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use lockkeeper_crds::DistributedLock;
use tokio::sync::{mpsc, watch};

use crate::controller::context::Context;
use crate::controller::followed_locks;
use crate::controller::missing_locks::{MissingLocks, object};
use crate::kubernetes::objects::{LockPart, PAGE};
use crate::lock_key::LockKey;
use crate::zookeeper::reachability::Reachability;

/// The locks to be reconciled, in this order.
pub(crate) type Triggers = BoxStream<'static, Result<ObjectRef<DistributedLock>, watcher::Error>>;

/// The objects that are followed, in a store and as a stream.
///
/// Says in `is_ready` when the store is complete. `Store::wait_until_ready` wakes only one waiter (kube-runtime 5,
/// `DelayedInit`), and that is the controller.
pub(crate) fn locks(
    client: &Client,
    ctx: &Arc<Context>,
    is_ready: watch::Sender<bool>,
) -> (
    Store<DistributedLock>,
    impl Stream<Item = Result<DistributedLock, watcher::Error>> + Send + 'static,
) {
    let (store, writer) = reflector::store();
    let api: Api<LockPart> = Api::all(client.clone());
    let watch = move || {
        watcher(api.clone(), watcher::Config::default().page_size(PAGE))
            .default_backoff()
            .map_ok(whole)
            .boxed()
    };
    let (known, ctx) = (store.clone(), Arc::clone(ctx));
    let objects = followed_locks::census(watch, followed_locks::BOUNDS, ctx.metrics.locks_left_out.clone())
        .reflect(writer)
        .inspect(move |event| {
            ctx.other_ensembles.hear(event);
            match event {
                Ok(Event::InitDone) => {
                    let is_there = |key: &LockKey| known.get(&object(key)).is_some();
                    ctx.memories.keep(is_there);
                    ctx.metrics.keep(is_there);
                    if let Some((fencing, _)) = &ctx.fencing {
                        fencing.keep(is_there);
                    }
                    is_ready.send_replace(true);
                }
                Ok(Event::Delete(lock)) => {
                    let gone = followed_locks::key(lock);
                    ctx.memories.forget(&gone);
                    ctx.metrics.forget(&gone);
                    if let Some((fencing, _)) = &ctx.fencing {
                        fencing.forget(&gone);
                    }
                }
                _ => {}
            }
        })
        .applied_objects();
    (store, objects)
}

/// The same about the objects that the store has.
fn whole(event: Event<LockPart>) -> Event<DistributedLock> {
    match event {
        Event::Apply(lock) => Event::Apply(lock.into()),
        Event::Delete(lock) => Event::Delete(lock.into()),
        Event::Init => Event::Init,
        Event::InitApply(lock) => Event::InitApply(lock.into()),
        Event::InitDone => Event::InitDone,
    }
}

/// Everything that makes a lock worth a look. The identity of its namespace is announced beside it, where that may be
/// the reason.
pub(crate) fn triggers(
    ctx: &Arc<Context>,
    missing: Arc<MissingLocks>,
    store: &Store<DistributedLock>,
    locks: impl Stream<Item = Result<DistributedLock, watcher::Error>> + Send + 'static,
    namespaces: mpsc::UnboundedReceiver<String>,
    leading: watch::Receiver<bool>,
) -> Triggers {
    let announcing = |ctx: &Arc<Context>| {
        let ctx = Arc::clone(ctx);
        move |lock: &ObjectRef<DistributedLock>| ctx.namespaces.announce(lock.namespace.clone())
    };
    let objects = locks.map(|lock| lock.map(|lock| ObjectRef::from_obj(&lock)));
    let objects = objects.inspect_ok(announcing(ctx));
    let queues = stream::unfold(Arc::clone(&ctx.changes), |changes| async {
        let keys = changes.take().await;
        Some((keys, changes))
    });
    let pods = stream::unfold(
        (Arc::clone(&ctx.pods), missing, store.clone()),
        |(pods, missing, store)| async {
            let keys = pods.changes().await;
            for key in &keys {
                missing.notice(&store, key);
            }
            Some((keys, (pods, missing, store)))
        },
    );
    let keys = stream::select(queues, pods)
        .flat_map(stream::iter)
        .map(|key| object(&key));
    let in_namespace = {
        let (store, ctx) = (store.clone(), Arc::clone(ctx));
        stream::unfold(namespaces, |mut namespaces| async {
            Some((namespaces.recv().await?, namespaces))
        })
        .inspect(move |namespace| ctx.namespaces.announce([namespace.clone()]))
        .flat_map(move |namespace| {
            let is_in = |lock: &Arc<DistributedLock>| lock.namespace().as_ref() == Some(&namespace);
            let found = store.state().into_iter().filter(is_in);
            stream::iter(found.map(|lock| ObjectRef::from_obj(&*lock)).collect::<Vec<_>>())
        })
    };
    let everything = {
        let store = store.clone();
        let reach = changes(ctx.own.reachability.clone())
            .filter(|reach| ready(!matches!(reach, Reachability::Unsure)));
        let leading = changes(leading).filter(|leading| ready(*leading));
        stream::select(reach.map(drop), leading.map(drop))
            .flat_map(move |()| {
                let all = store.state().into_iter();
                stream::iter(all.map(|lock| ObjectRef::from_obj(&*lock)).collect::<Vec<_>>())
            })
            .inspect(announcing(ctx))
    };
    let others = stream::select_all([keys.boxed(), in_namespace.boxed(), everything.boxed()]);
    stream::select(objects, others.map(Ok)).boxed()
}

fn changes<T: Clone + Send + Sync + 'static>(receiver: watch::Receiver<T>) -> impl Stream<Item = T> + Send {
    stream::unfold(receiver, |mut receiver| async {
        receiver.changed().await.ok()?;
        let value = receiver.borrow_and_update().clone();
        Some((value, receiver))
    })
}
