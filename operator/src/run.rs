//! Puts the parts of the operator together, and ends them in order.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use kube::Client;
use kube::runtime::applier;
use kube::runtime::controller::Config;
use lockkeeper_daemon::exit::Failure;
use lockkeeper_lock::{BootClock, Lock, LockOptions};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::admin::{Admin, AdminServer, Readiness};
use crate::admission::run::{Surroundings, Webhooks};
use crate::admission::webhook::ensembles::Ensembles;
use crate::admission::webhook::metrics::WebhookMetrics;
use crate::args::Settings;
use crate::controller::context::Context;
use crate::controller::memory::Memories;
use crate::controller::missing_locks::MissingLocks;
use crate::controller::provision_identity::IdentityController;
use crate::controller::reconcile::{on_error, reconcile};
use crate::controller::triggers::{locks, triggers};
use crate::controller::turns::{self, Turns};
use crate::controller::writer::Writers;
use crate::identity::secrets::Secrets;
use crate::kubernetes::answers;
use crate::kubernetes::cluster_id;
use crate::kubernetes::objects;
use crate::kubernetes::pods::Pods;
use crate::kubernetes::reader::Reader;
use crate::leadership::{self, Leadership};
use crate::lock_metrics::LockStates;
use crate::metrics::Metrics;
use crate::node_fencing::machine::OUT_OF_SERVICE;
use crate::node_fencing::{Fencing, Nodes};
use crate::signals::Signals;
use crate::work_queue::WorkQueue;
use crate::zookeeper::ensemble::{self, Ensemble};
use crate::zookeeper::foreign::{self, OtherEnsembles, Places};
use crate::zookeeper::nodes::Tree;
use crate::zookeeper::paths::Layout;
use crate::zookeeper::reachability::Reachability;

/// How long reconciliations that are under way may take at the end.
const DRAIN: Duration = Duration::from_secs(10);

/// How long a server may take to report its release.
const PATIENCE_FOR_RELEASES: Duration = Duration::from_secs(5);

/// How long handing over the leadership may take at the end.
const HAND_OVER: Duration = Duration::from_secs(5);

/// The program of this process (proc_pid_exe(5)), even after its file was replaced.
const PROGRAM: &str = "/proc/self/exe";

/// Runs until SIGTERM or SIGINT. Then: no new reconciliation is begun; those under way end; the
/// leadership is handed over. A second signal ends all that at once.
///
/// # Errors
/// When something that the operator needs is missing, and when a task ends that must not end.
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
pub(crate) async fn serve(settings: Settings, stop: watch::Receiver<bool>) -> Result<(), Failure> {
    let Settings {
        zookeeper,
        identity,
        root,
        timing,
        other_ensembles,
        other_ensembles_sessions,
        trust_out_of_service_taint,
        lock_metrics,
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
    tasks.spawn(cluster_id::find(client.clone(), uid));
    let asked = zookeeper.clone();
    tasks.spawn(async move {
        asked.warn_of_defects(PATIENCE_FOR_RELEASES).await;
        std::future::pending().await
    });
    let changes = Arc::new(WorkQueue::default());
    let (own, link) = Ensemble::own(zookeeper.clone(), tree, Arc::clone(&changes), &mut tasks);
    let has_certificate = certificates.contains_key(objects::CERTIFICATE);
    let lock = Lock::new(
        zookeeper,
        BootClock,
        LockOptions::new(format!("{root}/operator"), timing),
    );
    let (pods, (secrets, namespaces)) = (Arc::new(Pods::new()), Secrets::new(certificates));
    let secrets = Arc::new(secrets);
    let others = OtherEnsembles::new(foreign::Shared {
        client: client.clone(),
        secrets: Arc::clone(&secrets),
        changes: Arc::clone(&changes),
        own: connect.clone(),
        root: root.clone(),
        hosts: Arc::new(other_ensembles),
        places: Arc::new(Places::new(other_ensembles_sessions)),
        program: PROGRAM.into(),
    });
    let others = Arc::new(others);
    let writers = Arc::new(Writers::new(
        client.clone(),
        Leadership::of(&lock),
        metrics.clone(),
    ));
    let missing = MissingLocks::new(Arc::clone(&pods), Arc::clone(&writers), timing.tick_time);
    let missing = Arc::new(missing);
    let fencing = trust_out_of_service_taint.then(|| {
        let fencing = Arc::new(Fencing::new(Arc::clone(&changes)));
        (fencing, Nodes::new(client.clone()))
    });
    let machines = fencing.as_ref().map(|(fencing, _)| Arc::clone(fencing));
    if let Some((fencing, nodes)) = fencing.clone() {
        tracing::info!("Trusting the taint {OUT_OF_SERVICE}: contenders of silent nodes with it are removed");
        tasks.spawn(async move { fencing.vouch(nodes).await });
    }
    let ctx = Arc::new(Context {
        reader: Reader::new(client.clone()),
        writers,
        own,
        other_ensembles: others,
        turns: Turns::new(Arc::clone(&changes)),
        changes,
        namespaces: WorkQueue::default(),
        pods: Arc::clone(&pods),
        secrets: Arc::clone(&secrets),
        fencing,
        metrics,
        tick_time: timing.tick_time,
        memories: Memories::default(),
        started: Instant::now(),
    });
    let (locks_ready, leading) = (watch::Sender::new(false), watch::Sender::new(false));
    let are_locks_ready = locks_ready.subscribe();
    let (store, locks) = locks(&client, &ctx, locks_ready);
    let of_leader = Arc::clone(&ctx.writers);
    let states = LockStates::new(
        store.clone(),
        Box::new(move || of_leader.is_leading()),
        lock_metrics,
    );
    registry.register_collector(Box::new(states));
    let webhooks = Webhooks::bind(
        webhook,
        Surroundings {
            client: client.clone(),
            locks: store.clone(),
            ensembles: Ensembles {
                own: Arc::clone(&ctx.own),
                others: Arc::clone(&ctx.other_ensembles),
            },
            fencing: machines,
            leadership: Leadership::of(&lock),
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
        let client = client.clone();
        async move { pods.follow(client).await }
    });
    tasks.spawn({
        let client = client.clone();
        async move { secrets.follow(client).await }
    });
    let (answered, all_answered) = watch::channel(false);
    tasks.spawn(answer(webhooks, stop.clone(), answered));
    tasks.spawn({
        let (missing, store, are_ready) = (Arc::clone(&missing), store.clone(), are_locks_ready.clone());
        async move { missing.follow(store, are_ready).await }
    });
    tasks.spawn(admin.serve(Admin::new(readiness, registry)));
    tasks.spawn(gauges(Arc::clone(&ctx), leading.subscribe()));
    let triggers = triggers(&ctx, missing, &store, locks, namespaces, leading.subscribe());
    let (drained, is_drained) = watch::channel(false);
    let leader = tokio::spawn({
        let mut link = link.clone();
        async move {
            // Not before the owner of the root is known: another cluster's operators would wait behind this one.
            let known = async { drop(link.wait_for(|link| link.up().is_some()).await) };
            tokio::select! {
                biased;
                () = until(is_drained.clone()) => {}
                () = known => {}
            }
            leadership::lead(lock, leading, until(is_drained)).await;
        }
    });
    let identities = IdentityController::new(Arc::clone(&ctx), store.clone());
    let locks = applier(
        |lock, ctx| Box::pin(reconcile(lock, ctx)),
        on_error,
        Arc::clone(&ctx),
        store,
        triggers.take_until(until(stop.clone())),
        Config::default().concurrency(turns::IN_ALL),
    )
    .for_each(|done| {
        // Reconciliations log their own errors; an object that is gone is no error.
        if let Err(kube::runtime::controller::Error::QueueError(error)) = done {
            tracing::warn!(%error, "Failed to watch DistributedLocks; trying again");
        }
        ready(())
    });
    let identities = identities.run(are_locks_ready, until(stop.clone()));
    let mut controllers = Box::pin(futures_util::future::join(locks, identities));
    tokio::select! {
        // The controllers end with this signal, too.
        biased;
        () = until(stop) => {
            tracing::info!("Stopping");
            if tokio::time::timeout(DRAIN, controllers).await.is_err() {
                tracing::warn!("Reconciliations did not end in time; going on without them");
            }
        }
        // The controllers have seen the signal first.
        ((), ()) = &mut controllers => tracing::info!("Stopping"),
        Some(ended) = tasks.join_next() => {
            let why = ended.err().map_or_else(|| "it ended".to_owned(), |error| error.to_string());
            return Err(Failure::software(format!(
                "one of the operator's own tasks ended, which it never should ({why}), so the operator ends, to be started \
                 again: please report this with the log"
            )));
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

/// Serves the webhooks until `stop`, and says in `answered` that all reviews are answered.
async fn answer(webhooks: Webhooks, stop: watch::Receiver<bool>, answered: watch::Sender<bool>) {
    match webhooks.serve(stop).await {
        Ok(()) => {
            answered.send_replace(true);
            std::future::pending().await
        }
        Err(failure) => tracing::error!(%failure, "The webhooks are gone"),
    }
}

/// Completes when the value is true, or its sender is gone.
async fn until(mut receiver: watch::Receiver<bool>) {
    // An error is the end of the sender.
    let _ = receiver.wait_for(|is_true| *is_true).await;
}

/// Updates the gauges, which show states and not counts.
async fn gauges(ctx: Arc<Context>, mut leading: watch::Receiver<bool>) {
    /// As often as metrics are scraped.
    const PERIOD: Duration = Duration::from_secs(5);
    loop {
        let (locks, contenders) = ctx.own.view.size();
        ctx.metrics.locks.set(locks as u64);
        ctx.metrics.contenders.set(contenders as u64);
        let vouched = ctx.fencing.as_ref().map_or(0, |(fencing, _)| fencing.vouched());
        ctx.metrics.vouched.set(vouched as u64);
        let is_connected = matches!(*ctx.own.reachability.borrow(), Reachability::Up(_));
        ctx.metrics.connected.set(is_connected.into());
        ctx.metrics.leading.set(ctx.writers.is_leading().into());
        // At once when that changes; the sender outlives this task.
        let _ = tokio::time::timeout(PERIOD, leading.changed()).await;
    }
}
