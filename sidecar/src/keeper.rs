//! The keeper: owns the session and the place in the queue, tells the guard until when the
//! application may run, and answers questions about it.
//!
//! What it decides is in the pure state machine [`decider`]; this is its hands and ears.

pub(crate) mod decider;
mod ensemble;
mod guards;
mod leftovers;
mod observer;
pub(crate) mod policy;
mod running;
mod terminations;

use std::future::Future;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use lockkeeper_lock::{BootClock, BootInstant, Clock, Lock, LockError, LockState, LockView};
use tokio::sync::{mpsc, oneshot, watch};

use self::decider::{Act, Ask, Decider, Ending};
use self::ensemble::Identities;
use self::guards::{Guards, Heard};
use self::policy::{Kind, Policy};
use self::terminations::Terminations;
use crate::admin::AdminServer;
use crate::args::{RunSettings, Settings, SidecarSettings};
use crate::exit::{self, Failure};
use crate::guard::ContainerKiller;
use crate::guard::listener::GuardListener;
use crate::guard::protocol::{FromGuard, ToGuard};
use crate::guard::will::Will;
use crate::lease_env::LeaseEnv;
use crate::metrics::{self, LockMetrics};
use crate::peer::Users;
use crate::probes::AppProbes;
use crate::probes::health::{Health, Running};
use crate::socket::{Command, Served, SocketServer};
use crate::view;

/// How long a server may take to say its tick.
const PATIENCE_FOR_TICK: Duration = Duration::from_millis(500);

/// How long the session may take to end on the way out, with nothing in it any more.
const PATIENCE_FOR_CLOSE: Duration = Duration::from_secs(1);

/// How long the container beside us may take to end before its guard is killed, and we with it: half of what is left then
/// of the fixed part of the margin.
const PATIENCE_FOR_KILL: Duration = Duration::from_millis(50);

/// Between two rounds of that.
const PAUSE_BETWEEN_KILLS: Duration = Duration::from_millis(1);

type Asking = Pin<Box<dyn Future<Output = Result<(), LockError>>>>;

/// The hook after a start, under way.
type Hook = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// One keeper with everything it serves.
struct Keeper<'a> {
    decider: Decider,
    settings: Settings,
    identities: Option<Identities>,
    policy: Policy,
    lock: Option<std::rc::Rc<Lock<BootClock>>>,
    lock_view: LockView<BootClock>,
    /// What sockets and probes look at; it outlives an abandoned lock.
    published: watch::Sender<lockkeeper_lock::LockStatus>,
    /// What is known of the application, as its guard says.
    guarded: watch::Sender<view::Guarded>,
    asking: Option<Asking>,
    guards: &'a mut Guards,
    lease: Option<LeaseEnv>,
    /// For the container beside us, should its guard be killed.
    killer: Option<ContainerKiller>,
    /// What a guard of `run` leaves to us, should it be killed.
    will: Option<Will>,
    metrics: observer::Observer,
    /// Whether anybody was seen before us in the queue.
    has_seen_others: bool,
    /// It was said that something has outlived its deadline.
    has_told_survivors: bool,
    step_downs: Vec<oneshot::Sender<Result<(), String>>>,
    refusal: Option<String>,
    /// Ends with what is wrong with the ensemble.
    looking_at_ticks: Option<Pin<Box<dyn Future<Output = Failure>>>>,
    /// Why the lock is refused, where that is not the ensemble's word.
    failure: Option<Failure>,
    /// What probes of the application look at.
    app: watch::Sender<Option<Running>>,
    health: Health,
    hook: Option<Hook>,
    /// The last start that a hook was sent for.
    last_start: u64,
}

/// Keeps the lock for `lockkeeper run`, whose guard is at the other end of `guard`, and tells that
/// the exit code at the end. `socket` is where to answer questions about the lock, and `will` what that guard leaves
/// to us should it be killed.
///
/// # Errors
/// When there is no such guard. Everything else is said on stderr, and in the exit code.
pub async fn run(settings: RunSettings, guard: UnixStream, will: Will, socket: &Path) -> Result<u8, Failure> {
    let policy = Policy::of_run(&settings);
    let mut guards = Guards::parent(guard)?;
    let kept = async {
        let socket = match settings.socket {
            Some(_) => SocketServer::bind(socket)?,
            None => SocketServer::bind_private(socket)?,
        };
        let admin = settings.admin_listen.map(AdminServer::bind).transpose()?;
        let doors = Doors {
            socket,
            users: Users::own(),
            admin,
            lease: None,
            killer: None,
            will: Some(will),
        };
        keep(settings.lock, policy, AppProbes::default(), &mut guards, doors).await
    };
    let kept = kept.await;
    Ok(finish(guards, kept).await)
}

/// Keeps the lock of a pod: for the guard at the other end of `guard`, which is beside the
/// application's container, or for those that connect to a socket.
///
/// # Errors
/// As [`run`], and when the socket for guards cannot be made.
pub async fn sidecar(settings: SidecarSettings, guard: Option<UnixStream>) -> Result<u8, Failure> {
    let (kind, mut guards) = match guard {
        Some(guard) => (Kind::Signal, Guards::parent(guard)?),
        None => {
            let listener = GuardListener::bind(&settings.guard_socket, settings.users.clone())?;
            (Kind::Wrap, Guards::Listener(Box::new(listener)))
        }
    };
    let policy = Policy::of_sidecar(&settings, kind);
    let kept = async {
        let lease = LeaseEnv::new(settings.lease_file)?;
        let killer = settings.container.as_ref().map(ContainerKiller::new).transpose();
        let killer =
            killer.map_err(|error| Failure::software(format!("cannot look at processes: {error}")))?;
        let socket = SocketServer::bind(&settings.socket)?;
        if settings.pod.app_token.is_none() && settings.pod.app_probes.pre_stop.is_some() {
            tracing::warn!(
                "The preStop hook of the application is not sent: anybody who reaches the port could ask for it; \
                 give --app-token"
            );
        }
        let admin = AdminServer::bind(settings.admin_listen)?.with_app_token(settings.pod.app_token);
        let doors = Doors {
            socket,
            users: settings.users,
            admin: Some(admin),
            lease: Some(lease),
            killer,
            will: None,
        };
        keep(settings.lock, policy, settings.pod.app_probes, &mut guards, doors).await
    };
    let kept = kept.await;
    Ok(finish(guards, kept).await)
}

/// Says what went wrong, and tells a guard that is our parent how to end. Last, since it ends the
/// process that the user looks at.
async fn finish(mut guards: Guards, kept: Result<u8, Failure>) -> u8 {
    let code = kept.unwrap_or_else(|failure| {
        exit::tell(&failure.sentence);
        failure.exit.code()
    });
    if guards.is_parent() {
        guards.tell(ToGuard::Finish { code }).await;
    }
    code
}

/// Where others look at the lock, and what is there for the case that the guard is killed.
struct Doors {
    socket: SocketServer,
    /// Who may ask for a release at the socket.
    users: Users,
    admin: Option<AdminServer>,
    lease: Option<LeaseEnv>,
    killer: Option<ContainerKiller>,
    will: Option<Will>,
}

async fn keep(
    settings: Settings,
    policy: Policy,
    probes: AppProbes,
    guards: &mut Guards,
    doors: Doors,
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
    let mut registry = metrics::registry();
    let lock_metrics = LockMetrics::register(&mut registry);
    let observer = observer::Observer::new(lock_metrics.clone(), settings.on_loss);
    let (published, status) = watch::channel(lockkeeper_lock::LockStatus::new());
    let (guarded, guarded_now) = watch::channel(view::Guarded::default());
    let view = view::LockView::new(status, guarded_now, &settings);
    metrics::register_view(view.clone(), &mut registry);
    let (app, app_now) = watch::channel(None);
    let health = Health::new(app_now, probes);

    let (commands, command_receiver) = mpsc::channel(4);
    let (stopping, stopped) = watch::channel(());
    let stop = || {
        let mut stopped = stopped.clone();
        // The sender says nothing; it goes.
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
        tree: guards.tree().filter(|_| policy.kind == Kind::Run),
    };
    servers.spawn(socket.serve(served, stop()));
    if let Some(admin) = admin {
        servers.spawn(admin.serve(view, health.clone(), lock_metrics, registry, stop()));
    }

    let (identities, following) = Identities::follow(settings.credentials.clone(), stop());
    servers.spawn(following);
    let looking_at_ticks =
        ensemble::longer_tick_later(zookeeper, settings.timing.tick_time, observer.connected());
    let lock = new_lock(&settings, identities.as_ref(), &policy, &observer)?;
    let keeper = Keeper {
        decider: Decider::new(policy, began),
        lock_view: lock.view(),
        lock: Some(std::rc::Rc::new(lock)),
        settings,
        identities,
        policy,
        published,
        guarded,
        asking: None,
        guards,
        lease,
        killer,
        will,
        metrics: observer,
        has_seen_others: false,
        has_told_survivors: false,
        step_downs: Vec::new(),
        refusal: None,
        looking_at_ticks: Some(Box::pin(looking_at_ticks)),
        failure: None,
        app,
        health,
        hook: None,
        last_start: 0,
    };
    let code = keeper.keep(command_receiver, terminations).await;
    drop(stopping);
    while servers.join_next().await.is_some() {}
    code
}

fn new_lock(
    settings: &Settings,
    identities: Option<&Identities>,
    policy: &Policy,
    observer: &observer::Observer,
) -> Result<Lock<BootClock>, Failure> {
    let options = ensemble::lock_options(settings, !policy.lock_delay.is_zero(), observer);
    Ok(Lock::new(
        ensemble::zookeeper(settings, identities)?,
        BootClock,
        options,
    ))
}

impl Keeper<'_> {
    async fn keep(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut terminations: Terminations,
    ) -> Result<u8, Failure> {
        loop {
            let now = BootInstant::now();
            // Before anything is released: what was waited for is nobody's business any more.
            if let (Some(lock), Some(token)) = (&self.lock, self.decider.waited_under(now)) {
                lock.settle(token);
            }
            for act in self.decider.decide(now) {
                if let Act::End(ending) = act {
                    return self.end(ending).await;
                }
                self.act(act).await?;
            }
            self.publish_the_application();
            self.keep_the_contender(now);
            let wake = self
                .decider
                .wake_at(now)
                .map(|moment| BootClock.sleep(moment - now));
            tokio::select! {
                biased;
                status = self.lock_view.changed() => match status {
                    Ok(status) => self.lock_changed(status),
                    Err(_) => return Err(Failure::software("the task that keeps the lock has ended")),
                },
                heard = self.guards.hear() => match heard {
                    Ok(Heard::Frame(frame)) => {
                        tracing::debug!(?frame, "Guard said");
                        self.metrics.guard_said(&frame);
                        self.contained(&frame);
                        self.decider.guard_said(frame, BootInstant::now());
                    }
                    Ok(Heard::Lost { is_watched }) => {
                        if self.policy.kind != Kind::Wrap {
                            return self.orphaned(&mut commands).await;
                        }
                        self.decider.guard_lost(is_watched);
                    }
                    Ok(Heard::Ended { is_proof }) => self.decider.guard_ended(is_proof),
                    Ok(Heard::Succeeded) => self.decider.guard_succeeded(),
                    Err(error) => return Err(Failure::software(format!("cannot accept a guard: {error}"))),
                },
                answer = ask(&mut self.asking) => self.answered(answer),
                sent = ask(&mut self.hook) => self.hook_sent(sent),
                failure = ask(&mut self.looking_at_ticks) => {
                    self.looking_at_ticks = None;
                    self.decider.refused();
                    self.failure = Some(failure);
                }
                () = terminations.next() => self.decider.end_wanted(0),
                Some(command) = commands.recv() => self.obey(command),
                () = async { match wake { Some(wake) => wake.await, None => std::future::pending().await } } => {}
            }
        }
    }

    /// Keeps the place in the queue while something may be left of the application, and says what has outlived its
    /// deadline.
    fn keep_the_contender(&mut self, now: BootInstant) {
        if let Some(lock) = &self.lock {
            lock.retain(self.decider.keeps_the_contender());
        }
        let (survivors, is_seen) = (self.decider.survivors(now), self.decider.has_survivors(now));
        match survivors {
            Some(some) if is_seen && !self.has_told_survivors => {
                self.metrics.survived();
                tracing::error!(
                    processes = some.processes,
                    pid = some.pid,
                    "Something has outlived its deadline; the lock is kept until it has gone"
                );
            }
            Some(_) if self.guarded.borrow().survivors.is_none() => tracing::info!(
                "The guard has not seen yet whether anything is left of the application; the lock is kept until it has"
            ),
            None if self.has_told_survivors => tracing::info!("What had outlived its deadline has gone"),
            _ => {}
        }
        self.has_told_survivors = is_seen;
        self.guarded
            .send_if_modified(|guarded| std::mem::replace(&mut guarded.survivors, survivors) != survivors);
    }

    /// The guard says what holds the application together.
    fn contained(&self, frame: &FromGuard) {
        if let FromGuard::Hello(hello) = frame
            && let Some(containment) = hello.containment
        {
            let is_news = self
                .guarded
                .send_if_modified(|guarded| guarded.containment.replace(containment) != Some(containment));
            if is_news {
                tracing::info!(by = containment.name(), "The application is held together");
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::StepDown(reply) => {
                if self.decider.step_down_wanted() {
                    self.step_downs.push(reply);
                } else {
                    let _ = reply.send(Err("the lock is not in the queue".to_owned()));
                }
            }
            Command::AbandonSurvivors(reply) => {
                let noted = self.decider.give_up_survivors(BootInstant::now());
                if noted.is_ok() {
                    tracing::warn!(
                        "A user gives up what has outlived its deadline; the lock is left to expire"
                    );
                }
                let _ = reply.send(noted);
            }
            Command::Terminating(reply) => {
                let noted = self.decider.pod_ends(BootInstant::now());
                if noted.is_ok() {
                    tracing::info!("The pod is ending; nothing is started any more");
                }
                let _ = reply.send(noted);
            }
        }
    }

    fn lock_changed(&mut self, status: lockkeeper_lock::LockStatus) {
        self.metrics.lock_changed(&status);
        self.published.send_replace(status.clone());
        self.has_seen_others |= status.position.is_some_and(|position| position > 0);
        // While we are connecting, or wait, it may pass.
        let may_pass = matches!(status.state, LockState::Connecting | LockState::Waiting);
        if !may_pass && let Some(refusal) = &status.refusal {
            self.refusal = Some(refusal.to_string());
        }
        self.decider.lock_changed(status, BootInstant::now());
    }

    fn answered(&mut self, answer: Result<(), LockError>) {
        self.asking = None;
        let status = self.lock_view.status();
        self.published.send_replace(status.clone());
        // A lock that was lost or left meanwhile is no refusal: the state says what to do.
        let is_refused = matches!(
            answer,
            Err(LockError::Refused { .. }
                | LockError::Timing { .. }
                | LockError::OutOfNumbers { .. }
                | LockError::NotAgreed { .. })
        );
        if let (true, Err(error)) = (is_refused, answer) {
            self.refusal = Some(error.to_string());
        }
        self.decider
            .lock_answered(status, !is_refused, BootInstant::now());
    }

    async fn act(&mut self, act: Act) -> Result<(), Failure> {
        match act {
            Act::Tell(frame) => {
                tracing::debug!(?frame, "Guard told");
                self.metrics.guard_told(&frame);
                self.guards.tell(frame).await;
            }
            Act::WriteLease(token) => {
                if let Some(lease) = &self.lease {
                    lease.write(token)?;
                }
            }
            Act::RemoveLease => {
                if let Some(lease) = &self.lease {
                    lease.remove()?;
                }
            }
            Act::Ask(ask) => self.start_asking(ask),
            Act::Abandon => {
                self.metrics.abandoned();
                self.asking = None;
                self.lock = None;
                let lock = new_lock(
                    &self.settings,
                    self.identities.as_ref(),
                    &self.policy,
                    &self.metrics,
                )?;
                self.lock_view = lock.view();
                self.lock = Some(std::rc::Rc::new(lock));
                self.published.send_replace(self.lock_view.status());
                for reply in self.step_downs.drain(..) {
                    let unsure = "nobody can say that the application is gone; the lock is left to expire";
                    let _ = reply.send(Err(unsure.to_owned()));
                }
            }
            Act::KillGuard => {
                tracing::error!(
                    "The guard has not stopped the application by its deadline; killing the guard"
                );
                self.kill_container().await;
                self.guards.kill();
            }
            Act::AnswerStepDown => {
                for reply in self.step_downs.drain(..) {
                    let _ = reply.send(Ok(()));
                }
            }
            Act::End(_) => unreachable!("taken by the loop"),
        }
        Ok(())
    }

    /// Kills the container beside us in place of a guard that does not, until nothing is seen in it. Our own container
    /// ends with that guard, and we with it.
    async fn kill_container(&mut self) {
        let Some(killer) = &mut self.killer else { return };
        let end = BootInstant::now() + PATIENCE_FOR_KILL;
        while !killer.kill() && BootInstant::now() < end {
            BootClock.sleep(PAUSE_BETWEEN_KILLS).await;
        }
    }

    fn start_asking(&mut self, ask: Ask) {
        let Some(lock) = self.lock.clone() else { return };
        self.asking = Some(match ask {
            Ask::Contend => Box::pin(async move { lock.contend().await }),
            Ask::Release => Box::pin(async move { lock.release().await }),
        });
    }

    /// Ends: with the session, if that can be ended at once.
    async fn end(mut self, ending: Ending) -> Result<u8, Failure> {
        self.asking = None;
        let is_out = self.lock_view.status().state == lockkeeper_lock::LockState::Released;
        if is_out
            && let Some(Ok(lock)) = self.lock.take().map(std::rc::Rc::try_unwrap)
            && tokio::time::timeout(PATIENCE_FOR_CLOSE, lock.close())
                .await
                .is_err()
        {
            tracing::debug!("Session not ended; it will expire");
        }
        let lock = &self.settings.lock;
        match ending {
            Ending::Code(code) => Ok(code),
            Ending::NotAcquired if !self.has_seen_others => Err(Failure::unavailable(format!(
                "the lock {lock} was not acquired: the ensemble did not answer in time, so whether somebody holds it is \
                 not known"
            ))),
            Ending::NotAcquired => Err(Failure::unavailable(match self.policy.wait_timeout {
                Some(limit) if !limit.is_zero() => {
                    format!("the lock {lock} was not acquired within {limit:?}")
                }
                _ => format!("the lock {lock} is not free, and --wait-timeout says not to wait"),
            })),
            Ending::Refused if let Some(failure) = self.failure.take() => Err(failure),
            Ending::Refused => Err(Failure::unavailable(self.refusal.take().unwrap_or_else(|| {
                format!("the ensemble refuses the lock {lock} for good; the log says what and why")
            }))),
        }
    }
}

/// What a future comes to, if there is one.
async fn ask<T>(asking: &mut Option<Pin<Box<dyn Future<Output = T>>>>) -> T {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}
