//! Sets up a keeper with its sockets, probes, metrics and credentials.

use lockkeeper_daemon::exit::Failure;
use lockkeeper_lock::{BootInstant, LockStatus};
use tokio::sync::{mpsc, watch};

use super::contender::{Contender, Source};
use super::ensemble::{self, Identities};
use super::keeping::{Keeper, Outlets, Reins};
use super::leftovers::Leftovers;
use super::observer::Observer;
use super::policy::{Kind, Policy};
use super::shown::{Probed, Shown};
use super::signals::Terminations;
use crate::admin::AdminServer;
use crate::args::Settings;
use crate::guard::ContainerKiller;
use crate::guard::handed_to_keeper::Will;
use crate::lease_env::LeaseEnv;
use crate::link::keeper_end::KeeperEnd;
use crate::metrics::{self, LockMetrics};
use crate::peer::Users;
use crate::probes::AppProbes;
use crate::probes::health::Health;
use crate::process;
use crate::socket::{Served, SocketServer, Tree};
use crate::view::{Guarded, KeeperView};

/// The servers of a keeper, and the means to stop the application if the guard is killed.
pub(super) struct Doors {
    pub(super) socket: SocketServer,
    /// The users that may ask for a release at the socket.
    pub(super) users: Users,
    pub(super) admin: Option<AdminServer>,
    pub(super) lease: Option<LeaseEnv>,
    pub(super) killer: Option<ContainerKiller>,
    pub(super) will: Option<Will>,
}

/// Keeps the lock until the keeper ends, and answers questions about it. Sets `has_begun` when all that it takes is there.
pub(super) async fn keep(
    settings: Settings,
    policy: Policy,
    probes: AppProbes,
    guards: &mut KeeperEnd,
    doors: Doors,
    has_begun: &mut bool,
) -> Result<u8, Failure> {
    let Doors {
        socket,
        users,
        admin,
        lease,
        killer,
        will,
    } = doors;
    let began = BootInstant::now();
    let terminations = Terminations::new(policy.kind)?;
    // Four-letter words need no identity.
    let zookeeper = ensemble::zookeeper(&settings, None)?;
    ensemble::check(&settings, &zookeeper, policy.kind).await?;
    let about = settings.about();
    let mut registry = metrics::registry((policy.kind == Kind::Run).then_some(about.lock.as_str()));
    let lock_metrics = LockMetrics::register(&mut registry);
    let observer = Observer::new(lock_metrics.clone());
    let (published, status) = watch::channel(LockStatus::new());
    let (guarded, guarded_now) = watch::channel(Guarded::default());
    let view = KeeperView::new(status, guarded_now, about);
    metrics::register_view(view.clone(), &mut registry);
    let (app, app_now) = watch::channel(None);
    let health = Health::new(app_now, probes);

    let (commands, command_receiver) = mpsc::channel(4);
    let (stopping, stopped) = watch::channel(());
    let stop = || {
        let mut stopped = stopped.clone();
        // The sender sends nothing: its end is the signal.
        async move { while stopped.changed().await.is_ok() {} }
    };
    let release_timeout = settings.timing.session_timeout + settings.timing.stop_grace;
    let mut servers = tokio::task::JoinSet::new();
    let served = Served {
        view: view.clone(),
        health: health.clone(),
        commands,
        release_timeout,
        users,
        // A guard beside a container is no ancestor of what it guards.
        tree: guards
            .parent_pid()
            .filter(|_| policy.kind == Kind::Run)
            .map(|guard| Tree {
                guard,
                keeper: Some(rustix::process::getpid()),
                has_elders: process::guard_has_elders(),
            }),
    };
    servers.spawn(socket.serve(served, stop()));
    if let Some(admin) = admin {
        servers.spawn(admin.serve(view, health.clone(), lock_metrics, registry, stop()));
    }

    let (identities, following) = Identities::follow(settings.credentials.clone(), stop());
    servers.spawn(following);
    let looking_at_ticks =
        ensemble::longer_tick_later(zookeeper, settings.timing.tick_time, observer.connected());
    let contender = Contender::new(
        Source {
            settings,
            identities,
            ask_for_predecessor: !policy.lock_delay.is_zero(),
            observer: observer.clone(),
        },
        published,
    )?;
    let reins = Reins {
        guards,
        lease,
        leftovers: Leftovers::new(killer, will),
    };
    let outlets = Outlets {
        shown: Shown::new(guarded, observer.clone()),
        probed: Probed::new(app, health),
        metrics: observer,
    };
    let keeper = Keeper::new(policy, began, contender, reins, outlets, looking_at_ticks);
    *has_begun = true;
    let code = keeper.keep(command_receiver, terminations).await;
    drop(stopping);
    while servers.join_next().await.is_some() {}
    code
}
