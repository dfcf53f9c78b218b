//! From settings to the ensemble: what can be found out before anything is started.

use std::sync::Arc;

#[cfg(feature = "tls")]
use lockkeeper_lock::zookeeper::InvalidTls;
use lockkeeper_lock::zookeeper::{Credentials, ZooKeeper};
use lockkeeper_lock::{LockOptions, Mode};

use super::PATIENCE_FOR_TICK;
use super::observer::Observer;
use crate::args::{Access, Settings};
use crate::exit::Failure;

/// Refuses an ensemble of which no server has an address, and one whose tick is longer than stated:
/// the lease arithmetic stands on it.
pub(super) async fn check(settings: &Settings) -> Result<(), Failure> {
    let zookeeper = zookeeper(settings)?;
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

pub(super) fn zookeeper(settings: &Settings) -> Result<ZooKeeper, Failure> {
    let zookeeper = ZooKeeper::new(settings.connect.clone(), settings.timing.session_timeout)
        .with_readers(settings.readers.clone());
    let zookeeper = match &settings.credentials {
        None => zookeeper,
        Some(credentials) => {
            let identity = format!("{}:{}", credentials.user, credentials.password);
            zookeeper.with_credentials(Credentials::Digest(identity))
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
