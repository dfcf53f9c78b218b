//! From settings to the ensemble: what can be found out before anything is started.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tls")]
use lockkeeper_lock::zookeeper::InvalidTls;
use lockkeeper_lock::zookeeper::{self, ZooKeeper};
use lockkeeper_lock::{LockOptions, Mode};
use tokio::sync::watch;

use super::PATIENCE_FOR_TICK;
use super::observer::Observer;
use crate::args::{Access, Credentials, Settings};
use crate::exit::Failure;

/// Time between two looks at the credentials file: short beside what a kubelet needs to write it.
const LOOK: Duration = Duration::from_secs(5);

/// Refuses an ensemble of which no server has an address, and one whose tick is longer than stated:
/// the lease arithmetic stands on it.
pub(super) async fn check(settings: &Settings) -> Result<(), Failure> {
    let zookeeper = zookeeper(settings, None)?;
    let connect = &settings.connect;
    let mut refusal = None;
    let mut resolved = 0;
    for server in connect.servers() {
        match tokio::net::lookup_host((server.host.as_str(), server.port)).await {
            // getaddrinfo(3) answers with at least one, or with an error.
            Ok(_) => resolved += 1,
            Err(error) => refusal = Some(format!("{server} of --connect has no address: {error}")),
        }
    }
    match refusal {
        Some(refusal) if resolved == 0 => return Err(Failure::unavailable(refusal)),
        Some(refusal) => tracing::warn!("{refusal}; going on with the other servers"),
        None => {}
    }
    let stated = settings.timing.tick_time;
    match zookeeper.tick_time(PATIENCE_FOR_TICK).await {
        Some(tick) if tick > stated => Err(Failure::usage(format!(
            "--tick-time {stated:?} is shorter than the ensemble's tickTime, which is {tick:?}: the lease would be \
             counted too long; say --tick-time {}ms",
            tick.as_millis()
        ))),
        Some(_) => Ok(()),
        None => {
            tracing::info!(
                tick_time = ?stated,
                "The ensemble does not tell its tickTime (four-letter word conf); going by --tick-time"
            );
            Ok(())
        }
    }
}

/// The identities of the credentials file, for as long as the keeper runs.
#[derive(Clone)]
pub(super) struct Identities(watch::Receiver<Vec<String>>);

impl Identities {
    /// As they were read at the start, and what follows the file until `stop`: a kubelet writes a changed
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
                        tracing::warn!(why = failure.sentence, "Going on with the credentials before")
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
    let zookeeper = match &settings.tls.ca {
        None => zookeeper,
        Some(ca) => {
            let identity = settings.tls.identity.as_ref();
            let identity = identity.map(|own| (own.certificate.as_str(), own.key.as_str()));
            zookeeper.with_tls(ca, identity).map_err(invalid_tls)?
        }
    };
    Ok(zookeeper)
}

/// Names the option that the file came from.
#[cfg(feature = "tls")]
fn invalid_tls(error: InvalidTls) -> Failure {
    let option = match error {
        InvalidTls::Authorities(_) => "--tls-ca",
        InvalidTls::Certificate(_) => "--tls-cert",
        InvalidTls::Key(_) => "--tls-key",
        InvalidTls::Server(_) => "--connect",
    };
    Failure::usage(format!("{option}: {error}"))
}

pub(super) fn lock_options(
    settings: &Settings,
    ask_for_predecessor: bool,
    observer: &Observer,
) -> LockOptions {
    LockOptions {
        mode: match settings.access {
            Access::Exclusive => Mode::Exclusive,
            Access::Semaphore(holders) => holders.try_into().map_or(Mode::Exclusive, Mode::Semaphore),
            Access::Write => Mode::Write,
            Access::Read => Mode::Read,
        },
        control: settings.control.clone(),
        provisioned: settings.provisioned,
        identity: settings.identity.clone(),
        ask_for_predecessor,
        observer: Some(Arc::new(observer.clone())),
        ..LockOptions::new(&*settings.lock, settings.timing)
    }
}
