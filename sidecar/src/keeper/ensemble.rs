//! Checks of the ensemble before anything is started, and its credentials.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_daemon::credentials::Credentials;
use lockkeeper_daemon::exit::Failure;
use lockkeeper_lock::zookeeper::{self, ZooKeeper};
use lockkeeper_lock::{Identity, LockOptions};
use tokio::sync::watch;

use super::observer::Observer;
use super::policy::Kind;
use crate::args::Settings;

/// How long a server may take to report its tick, and its release.
const PATIENCE_FOR_TICK: Duration = Duration::from_millis(500);

/// Time between two looks at the credentials file: short beside what a kubelet needs to write it.
const LOOK: Duration = Duration::from_secs(5);

/// How long the resolver may take before a keeper goes on without it: the kubelet's probes are waiting, or the user.
const PATIENCE_FOR_ADDRESSES: Duration = Duration::from_secs(2);

/// How long it may take before a `run` ends that has no address at all: two attempts at a name server, and a bit
/// (resolv.conf(5): 5 s each by default).
const PATIENCE_FOR_ANY_ADDRESS: Duration = Duration::from_secs(11);

/// Time between two questions for the tick of a server that has not told it yet.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Refuses an ensemble whose tick is longer than stated, because the length of leases depends on it; and in `run` an
/// ensemble of which no server has an address. A pod may start before the names exist, so it waits for them as for
/// servers.
pub(super) async fn check(settings: &Settings, zookeeper: &ZooKeeper, kind: Kind) -> Result<(), Failure> {
    let has_any = |looked_up: &[Result<(), String>]| looked_up.iter().any(Result::is_ok);
    let mut looked_up = look_up(settings, PATIENCE_FOR_ADDRESSES).await;
    if kind == Kind::Run && !has_any(&looked_up) {
        looked_up = look_up(settings, PATIENCE_FOR_ANY_ADDRESS).await;
    }
    let has_address = has_any(&looked_up);
    for refusal in looked_up.into_iter().filter_map(Result::err) {
        match kind {
            _ if has_address => tracing::warn!("{refusal}; going on with the other servers"),
            Kind::Run => return Err(Failure::unavailable(refusal)),
            Kind::Wrap | Kind::Signal => tracing::warn!("{refusal}; waiting for it"),
        }
    }
    let stated = settings.timing.tick_time;
    let (told, ()) = tokio::join!(
        zookeeper.tick_time(PATIENCE_FOR_TICK),
        zookeeper.warn_of_defects(PATIENCE_FOR_TICK),
    );
    match told {
        Some(tick) if tick > stated => Err(longer_tick(stated, tick)),
        Some(_) => Ok(()),
        None => {
            tracing::info!(
                tick_time = ?stated,
                "The ensemble does not tell its tickTime (four-letter word conf); using --tick-time"
            );
            Ok(())
        }
    }
}

/// Whether each server of `--connect` has an address: getaddrinfo(3) answers with at least one, or with an error.
async fn look_up(settings: &Settings, patience: Duration) -> Vec<Result<(), String>> {
    let looked_up = settings.connect.servers().iter().map(async |server| {
        let looked_up = tokio::net::lookup_host((server.host.as_str(), server.port));
        tokio::time::timeout(patience, looked_up)
            .await
            .unwrap_or_else(|_| Err(io::Error::other("the resolver does not answer")))
            .map(drop)
            .map_err(|error| format!("{server} of --connect has no address: {error}"))
    });
    futures_util::future::join_all(looked_up).await
}

/// Asks the servers that did not answer [`check`], and all servers again after each new connection. Ends when one of
/// them has a longer tick than stated.
pub(super) async fn longer_tick_later(
    zookeeper: ZooKeeper,
    stated: Duration,
    connected: watch::Receiver<()>,
) -> Failure {
    let tick = zookeeper
        .tick_longer_than(stated, PATIENCE_FOR_TICK, ASK_AGAIN, connected)
        .await;
    longer_tick(stated, tick)
}

fn longer_tick(stated: Duration, tick: Duration) -> Failure {
    Failure::usage(format!(
        "--tick-time {stated:?} is shorter than the ensemble's tickTime, which is {tick:?}: the lease would be \
         too long; set --tick-time {}ms",
        tick.as_millis()
    ))
}

/// The identities of the credentials file, for as long as the keeper runs.
#[derive(Clone)]
pub(super) struct Identities(watch::Receiver<Vec<String>>);

impl Identities {
    /// The identities as read at the start, and a task that follows the file until `stop`: a kubelet writes a changed
    /// Secret into the volumes of pods that run, within about a minute.
    pub(super) fn follow(
        credentials: Option<Credentials>,
        stop: impl Future<Output = ()>,
    ) -> (Option<Self>, impl Future<Output = ()>) {
        let sender = credentials
            .as_ref()
            .map(|read| watch::Sender::new(read.identities().to_vec()));
        let identities = sender.as_ref().map(|sender| Self(sender.subscribe()));
        let following = credentials.zip(sender);
        let task = async move {
            let Some((credentials, sender)) = following else {
                return;
            };
            let mut stop = std::pin::pin!(stop);
            loop {
                tokio::select! {
                    () = &mut stop => return,
                    () = tokio::time::sleep(LOOK) => {}
                }
                match credentials.read_again() {
                    Ok(read) => {
                        let is_new = sender.send_if_modified(|known| {
                            let is_new = known != read.identities();
                            *known = read.identities().to_vec();
                            is_new
                        });
                        if is_new {
                            tracing::info!("Credentials changed");
                        }
                    }
                    Err(failure) => {
                        tracing::warn!(why = failure.sentence, "Keeping the previous credentials")
                    }
                }
            }
        };
        (identities, task)
    }
}

pub(super) fn zookeeper(settings: &Settings, identities: Option<&Identities>) -> Result<ZooKeeper, Failure> {
    let zookeeper = ZooKeeper::new(settings.connect.clone(), settings.timing.session_timeout)
        .with_readers(settings.readers.clone());
    let zookeeper = match identities {
        None => zookeeper,
        Some(Identities(identities)) => {
            zookeeper.with_credentials(zookeeper::Credentials::Digests(identities.clone()))
        }
    };
    #[cfg(feature = "tls")]
    let zookeeper = settings.tls.apply(zookeeper)?;
    Ok(zookeeper)
}

pub(super) fn lock_options(
    settings: &Settings,
    ask_for_predecessor: bool,
    observer: &Observer,
) -> LockOptions {
    LockOptions {
        mode: settings.access.mode(),
        control: settings.control.clone(),
        provisioned: settings.provisioned,
        ensemble: settings.ensemble.clone(),
        identity: identity(settings),
        ask_for_predecessor,
        gives_ticket: true,
        observer: Some(Arc::new(observer.clone())),
        ..LockOptions::new(&*settings.lock, settings.timing)
    }
}

/// Who we are, for others in the queue: a pod, or else the machine (uname(2)).
fn identity(settings: &Settings) -> Identity {
    let identity = settings.identity.clone();
    if identity.pod.is_some() {
        return identity;
    }
    let host = rustix::system::uname()
        .nodename()
        .to_str()
        .ok()
        .map(str::to_owned);
    Identity { host, ..identity }
}
