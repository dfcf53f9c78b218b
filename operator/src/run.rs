//! The parts of the operator, put together; and the order in which they end.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use kube::runtime::controller::Config;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt, applier};
use kube::{Api, Client, ResourceExt};
use lockkeeper_crds::DistributedLock;
use lockkeeper_lock::{BootClock, Lock, LockOptions};
use lockkeeper_sidecar::exit::Failure;
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::admin::{Admin, AdminServer, Readiness};
use crate::adopt::{self, object};
use crate::answers;
use crate::args::Settings;
use crate::census;
use crate::changes::Changes;
use crate::cluster;
use crate::context::{Context, Memories};
use crate::controller::{on_error, reconcile};
use crate::ensemble::{self, Ensemble};
use crate::events;
use crate::layout::Layout;
use crate::leader::{self, Leadership};
use crate::metrics::Metrics;
use crate::others::{self, Others, Places};
use crate::parts::{LockPart, PAGE};
use crate::pods::Pods;
use crate::reach::Reach;
use crate::rotation::Making;
use crate::secrets::{self, Secrets};
use crate::tree::Tree;
use crate::turns::{self, Turns};
use crate::webhook::ensembles::Ensembles;
use crate::webhook::metrics::WebhookMetrics;
use crate::webhook::run::{Surroundings, Webhooks};

/// How long reconciliations that are under way may take at the end.
const DRAIN: Duration = Duration::from_secs(10);

/// How long handing over the leadership may take at the end.
const HAND_OVER: Duration = Duration::from_secs(5);

/// This very program (proc_pid_exe(5)), also after another one was put in the place of its file.
const PROGRAM: &str = "/proc/self/exe";

type Triggers = BoxStream<'static, Result<ObjectRef<DistributedLock>, watcher::Error>>;

/// Runs until SIGTERM or SIGINT. Then: no new reconciliation is begun; those under way end; the
/// leadership is handed over. A second signal ends all that at once.
///
/// # Errors
/// When something cannot be had that the operator needs, and when a task ends that must not.
pub async fn run(settings: Settings) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    tokio::select! {
        ended = serve(settings, signals.first.clone()) => ended,
        () = signals.second() => Err(Failure::software("stopped at once, by a second signal")),
    }
}

/// As [`run`], until `stop` becomes true.
///
/// # Errors
/// As [`run`].
pub async fn serve(settings: Settings, stop: watch::Receiver<bool>) -> Result<(), Failure> {
    let Settings {
        zookeeper,
        identity,
        root,
        timing,
        other_ensembles,
        other_ensembles_sessions,
        admin_listen,
        webhook,
        certificates,
    } = settings;
    let client = Client::try_default().await.map_err(|error| {
        Failure::unavailable(format!(
            "there is no way to the API server: {error}; run in a pod, or set KUBECONFIG"
        ))
    })?;
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let client = answers::followed(client, metrics.objects_too_long.clone());
    let admin = AdminServer::bind(admin_listen)?;
    let connect = zookeeper.connect_string().clone();
    let acl_id = identity.acl_id();
    let tree = Tree::new(Layout::new(format!("{}{root}", connect.chroot())), identity);
    let (uid, known) = watch::channel(None);
    let tree = tree.of_cluster(known);
    let mut tasks = JoinSet::new();
    tasks.spawn(cluster::find(client.clone(), uid));
    let changes = Arc::new(Changes::default());
    let (own, link) = Ensemble::own(zookeeper.clone(), tree, Arc::clone(&changes), &mut tasks);
    let has_certificate = certificates.contains_key(secrets::CERTIFICATE);
    let lock = Lock::new(
        zookeeper,
        BootClock,
        LockOptions::new(format!("{root}/operator"), timing),
    );
    let (pods, (secrets, namespaces)) = (Arc::new(Pods::new()), Secrets::new(certificates));
    let secrets = Arc::new(secrets);
    let others = Others::new(others::Shared {
        client: client.clone(),
        secrets: Arc::clone(&secrets),
        changes: Arc::clone(&changes),
        own: connect.clone(),
        root: root.clone(),
        hosts: Arc::new(other_ensembles),
        places: Arc::new(Places::new(other_ensembles_sessions)),
        program: PROGRAM.into(),
    });
    let ctx = Arc::new(Context {
        recorder: Recorder::new(client.clone(), Reporter::from(events::REPORTER)),
        client,
        own,
        others: Arc::new(others),
        turns: Turns::new(Arc::clone(&changes)),
        changes,
        pods: Arc::clone(&pods),
        secrets: Arc::clone(&secrets),
        making: Making::default(),
        undescribed: adopt::Undescribed::default(),
        leadership: Leadership::of(&lock),
        metrics,
        tick_time: timing.tick_time,
        memories: Memories::default(),
        started: Instant::now(),
    });
    let (locks_ready, leading) = (watch::Sender::new(false), watch::Sender::new(false));
    let are_locks_ready = locks_ready.subscribe();
    let (store, locks) = locks(&ctx, locks_ready);
    let webhooks = Webhooks::bind(
        webhook,
        Surroundings {
            client: ctx.client.clone(),
            locks: store.clone(),
            ensembles: Ensembles {
                own: Arc::clone(&ctx.own),
                others: Arc::clone(&ctx.others),
            },
            leading: leading.subscribe(),
            connect: connect.to_string(),
            has_certificate,
            tick_time: ctx.tick_time,
            root,
            acl_id,
            metrics: WebhookMetrics::register(&mut registry),
        },
    )
    .await?;
    let (acceptable, is_acceptable) = watch::channel(true);
    tasks.spawn(ensemble::judge(link.clone(), acceptable));
    let readiness = Readiness::default()
        .with("webhooks", webhooks.ready())
        .with("features of the cluster", webhooks.knows())
        .with("nodes", webhooks.knows_nodes())
        .with("DistributedLocks", are_locks_ready.clone())
        .with("pods", pods.ready())
        .with("Secrets", secrets.ready())
        .with(
            "an ensemble and a root that may be used (see the log)",
            is_acceptable,
        );

    tasks.spawn({
        let client = ctx.client.clone();
        async move { pods.follow(client).await }
    });
    tasks.spawn({
        let client = ctx.client.clone();
        async move { secrets.follow(client).await }
    });
    let (answered, all_answered) = watch::channel(false);
    tasks.spawn(answer(webhooks, stop.clone(), answered));
    tasks.spawn(adopt::follow(Arc::clone(&ctx), store.clone(), are_locks_ready));
    tasks.spawn(admin.serve(Admin::new(readiness, registry)));
    tasks.spawn(gauges(Arc::clone(&ctx), leading.subscribe()));
    let triggers = triggers(&ctx, &store, locks, namespaces, leading.subscribe());
    let (drained, is_drained) = watch::channel(false);
    let leader = tokio::spawn({
        let mut link = link.clone();
        async move {
            // Not before it is known whose root it is: another cluster's operators would wait behind this one.
            let known = async { drop(link.wait_for(|link| link.up().is_some()).await) };
            tokio::select! {
                biased;
                () = until(is_drained.clone()) => {}
                () = known => {}
            }
            leader::lead(lock, leading, until(is_drained)).await;
        }
    });
    let controller = applier(
        |lock, ctx| Box::pin(reconcile(lock, ctx)),
        on_error,
        Arc::clone(&ctx),
        store,
        triggers.take_until(until(stop.clone())),
        Config::default().concurrency(turns::IN_ALL),
    )
    .for_each(|done| {
        // What fails in a reconciliation is said there; an object that is gone is no failure.
        if let Err(kube::runtime::controller::Error::QueueError(error)) = done {
            tracing::warn!(%error, "Failed to watch DistributedLocks; trying again");
        }
        ready(())
    });
    let mut controller = Box::pin(controller);
    tokio::select! {
        // The controller ends by it, too.
        biased;
        () = until(stop) => {
            tracing::info!("Stopping");
            if tokio::time::timeout(DRAIN, controller).await.is_err() {
                tracing::warn!("Reconciliations did not end in time; going on without them");
            }
        }
        // It has seen that first.
        () = &mut controller => tracing::info!("Stopping"),
        Some(ended) = tasks.join_next() => {
            let why = ended.err().map_or_else(|| "it ended".to_owned(), |error| error.to_string());
            return Err(Failure::software(format!("a task of the operator is gone: {why}")));
        }
    }
    drained.send_replace(true);
    // The webhooks need no leadership.
    let (handed_over, answered) = tokio::join!(
        tokio::time::timeout(HAND_OVER, leader),
        tokio::time::timeout(DRAIN, until(all_answered)),
    );
    if handed_over.is_err() {
        tracing::warn!("Failed to hand over in time; the next replica leads when our session expires");
    }
    if answered.is_err() {
        tracing::warn!("Reviews of objects did not end in time; going on without them");
    }
    Ok(())
}

/// The objects that are followed, in a store and as a stream.
///
/// Says in `is_ready` when the store is complete. `Store::wait_until_ready` wakes only one of those who
/// wait (kube-runtime 5, `DelayedInit`), and that one is the controller.
fn locks(
    ctx: &Arc<Context>,
    is_ready: watch::Sender<bool>,
) -> (
    Store<DistributedLock>,
    impl Stream<Item = Result<DistributedLock, watcher::Error>> + Send + 'static,
) {
    let (store, writer) = reflector::store();
    let api: Api<LockPart> = Api::all(ctx.client.clone());
    let watch = move || {
        watcher(api.clone(), watcher::Config::default().page_size(PAGE))
            .default_backoff()
            .map_ok(whole)
            .boxed()
    };
    let (known, ctx) = (store.clone(), Arc::clone(ctx));
    let objects = census::census(watch, census::BOUNDS, ctx.metrics.locks_left_out.clone())
        .reflect(writer)
        .inspect(move |event| {
            ctx.others.hear(event);
            match event {
                Ok(Event::InitDone) => {
                    ctx.memories.keep(|key| known.get(&object(key)).is_some());
                    is_ready.send_replace(true);
                }
                Ok(Event::Delete(lock)) => ctx.memories.forget(&census::key(lock)),
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

/// Everything that makes a lock worth a look.
fn triggers(
    ctx: &Arc<Context>,
    store: &Store<DistributedLock>,
    locks: impl Stream<Item = Result<DistributedLock, watcher::Error>> + Send + 'static,
    namespaces: mpsc::UnboundedReceiver<String>,
    leading: watch::Receiver<bool>,
) -> Triggers {
    let objects = locks.map(|lock| lock.map(|lock| ObjectRef::from_obj(&lock)));
    let queues = stream::unfold(Arc::clone(&ctx.changes), |changes| async {
        let keys = changes.take().await;
        Some((keys, changes))
    });
    let pods = stream::unfold((Arc::clone(ctx), store.clone()), |(ctx, store)| async {
        let keys = ctx.pods.changes().await;
        for key in &keys {
            adopt::notice(&ctx, &store, key);
        }
        Some((keys, (ctx, store)))
    });
    let keys = stream::select(queues, pods)
        .flat_map(stream::iter)
        .map(|key| object(&key));
    let in_namespace = {
        let store = store.clone();
        stream::unfold(namespaces, |mut namespaces| async {
            Some((namespaces.recv().await?, namespaces))
        })
        .flat_map(move |namespace| {
            let is_in = |lock: &Arc<DistributedLock>| lock.namespace().as_ref() == Some(&namespace);
            let found = store.state().into_iter().filter(is_in);
            stream::iter(found.map(|lock| ObjectRef::from_obj(&*lock)).collect::<Vec<_>>())
        })
    };
    let everything = {
        let store = store.clone();
        let reach = changes(ctx.own.reach.clone()).filter(|reach| ready(!matches!(reach, Reach::Unsure)));
        let leading = changes(leading).filter(|leading| ready(*leading));
        stream::select(reach.map(drop), leading.map(drop)).flat_map(move |()| {
            let all = store.state().into_iter();
            stream::iter(all.map(|lock| ObjectRef::from_obj(&*lock)).collect::<Vec<_>>())
        })
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

/// Serves the webhooks until `stop`, and says in `answered` that nobody waits for them any more.
async fn answer(webhooks: Webhooks, stop: watch::Receiver<bool>, answered: watch::Sender<bool>) {
    match webhooks.serve(stop).await {
        Ok(()) => {
            answered.send_replace(true);
            std::future::pending().await
        }
        Err(failure) => tracing::error!(%failure, "The webhooks are gone"),
    }
}

/// Completes when the value is true, or nobody can make it so any more.
async fn until(mut receiver: watch::Receiver<bool>) {
    // An error is the end of the sender.
    let _ = receiver.wait_for(|is_true| *is_true).await;
}

/// Keeps the gauges, which are states and no counts.
async fn gauges(ctx: Arc<Context>, mut leading: watch::Receiver<bool>) {
    /// As fine as anybody scrapes.
    const PERIOD: Duration = Duration::from_secs(5);
    loop {
        let (locks, contenders) = ctx.own.view.size();
        ctx.metrics.locks.set(locks as u64);
        ctx.metrics.contenders.set(contenders as u64);
        let is_connected = matches!(*ctx.own.reach.borrow(), Reach::Up(_));
        ctx.metrics.connected.set(is_connected.into());
        ctx.metrics.leading.set(ctx.leadership.is_leading().into());
        // At once when that changes, for whoever waits for it; the sender outlives this task.
        let _ = tokio::time::timeout(PERIOD, leading.changed()).await;
    }
}

struct Signals {
    first: watch::Receiver<bool>,
    second: watch::Receiver<bool>,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let failed = |error| Failure::software(format!("cannot listen for signals: {error}"));
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let (first_sender, first) = watch::channel(false);
        let (second_sender, second) = watch::channel(false);
        tokio::spawn(async move {
            for sender in [first_sender, second_sender] {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                sender.send_replace(true);
            }
        });
        Ok(Self { first, second })
    }

    async fn second(&mut self) {
        if self.second.wait_for(|is_true| *is_true).await.is_err() {
            std::future::pending().await
        }
    }
}
