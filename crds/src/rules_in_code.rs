//! The rules of the schema in code: for objects that were stored under an older schema, and for the tick of the
//! operator's ensemble, which the schema does not contain.

use std::time::Duration;

use lockkeeper_lock::zookeeper::{ConnectString, InvalidConnectString};
use lockkeeper_lock::{LeaseDuration, Timing, UnsafeTiming};

use crate::duration::ApiDuration;
use crate::lease::ApiLease;
use crate::lock::{
    DistributedLockSpec, LockMode, MAX_HOLDERS, MAX_LEASE_DURATION, MAX_LOCK_DELAY, MAX_RENEW_INTERVAL,
    MAX_SESSION_TIMEOUT, MAX_TICK_TIME, MIN_LEASE_DURATION, MIN_RENEW_INTERVAL, MIN_SESSION_TIMEOUT,
    MIN_TICK_TIME,
};
use crate::times::{DEFAULT_TICK_TIME, KILL_ALLOWANCE, SLACK};

const _: () = assert!(
    SLACK.get().as_nanos() == lockkeeper_lock::SLACK.as_nanos()
        && MAX_LEASE_DURATION.get().as_nanos() == lockkeeper_lock::LONGEST_LEASE.as_nanos()
        && KILL_ALLOWANCE.get().as_nanos() == lockkeeper_lock::KILL_ALLOWANCE.as_nanos(),
    "the schema has other numbers than the lock"
);

/// Why settings do not fit together, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSpec {
    /// A duration outside its limits.
    #[error(
        "{field} must be a whole number and one unit of ms, s, m and h, between {least} and {most}, such as 5s or \
         500ms; not {value}"
    )]
    Duration {
        /// Name of the field in the resource.
        field: &'static str,
        /// What the field is set to.
        value: ApiDuration,
        /// The shortest that the schema allows.
        least: ApiDuration,
        /// The longest that the schema allows.
        most: ApiDuration,
    },
    /// A lease duration outside its limits.
    #[error(
        "leaseDuration must be auto, off, or a whole number and one unit of ms, s, m and h, between \
         {MIN_LEASE_DURATION} and {MAX_LEASE_DURATION}, such as 8s or 8500ms; not {0}"
    )]
    Lease(ApiDuration),
    /// A count outside its limits.
    #[error("maxHolders must be between 1 and {MAX_HOLDERS}, not {0}")]
    MaxHolders(i32),
    /// Mode `ReadWrite` together with a number of holders.
    #[error(
        "mode ReadWrite and maxHolders above 1 exclude each other: a read/write lock has one writer or any number of \
         readers; leave maxHolders out or set mode to Exclusive"
    )]
    HoldersOfMode,
    /// `zookeeper.connect` is not a connect string, for this reason.
    #[error("zookeeper.connect: {0}")]
    Connect(String),
    /// Authorities without a TLS server, or a TLS server without authorities.
    #[error(
        "tlsSecret and servers that speak TLS belong together: write tcp+tls://HOST:PORT in connect and name the \
         Secret with ca.crt in tlsSecret, or neither"
    )]
    Tls,
    /// Too little time to stop the application.
    #[error(transparent)]
    Timing(#[from] UnsafeTiming),
}

impl DistributedLockSpec {
    /// The tick of the lock's ensemble: `tick_time` for the operator's ensemble, and the one in the settings for an
    /// ensemble that they name.
    fn tick_time(&self, tick_time: Duration) -> Duration {
        match &self.zookeeper {
            None => tick_time,
            Some(named) => named.tick_time.unwrap_or(DEFAULT_TICK_TIME).get(),
        }
    }

    /// The times of the lock, with `tick_time` as the `tickTime` of the operator's ensemble.
    pub fn timing(&self, tick_time: Duration) -> Timing {
        let session_timeout = self.session_timeout.get();
        Timing {
            session_timeout,
            tick_time: self.tick_time(tick_time),
            renew_interval: self.renew_interval.map_or(session_timeout / 8, ApiDuration::get),
            stop_grace: self.stop_grace.get(),
            lease_duration: match self.lease_duration {
                ApiLease::Off => LeaseDuration::Off,
                ApiLease::Auto => LeaseDuration::Auto,
                ApiLease::Of(lease) => LeaseDuration::Of(lease.get()),
            },
        }
    }

    /// Checks everything that the schema checks, with `tick_time` as in [`Self::timing`].
    ///
    /// # Errors
    /// The first error.
    pub fn validate(&self, tick_time: Duration) -> Result<Timing, InvalidSpec> {
        let zero = ApiDuration::default();
        let limits = [
            (
                "sessionTimeout",
                Some(self.session_timeout),
                MIN_SESSION_TIMEOUT,
                MAX_SESSION_TIMEOUT,
            ),
            ("stopGrace", Some(self.stop_grace), zero, MAX_SESSION_TIMEOUT),
            (
                "renewInterval",
                self.renew_interval,
                MIN_RENEW_INTERVAL,
                MAX_RENEW_INTERVAL,
            ),
            ("lockDelay", Some(self.lock_delay), zero, MAX_LOCK_DELAY),
            ("tickTime", self.stated_tick_time(), MIN_TICK_TIME, MAX_TICK_TIME),
        ];
        for (field, value, least, most) in limits {
            if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
                return Err(InvalidSpec::Duration {
                    field,
                    value,
                    least,
                    most,
                });
            }
        }
        if let ApiLease::Of(value) = self.lease_duration
            && !(MIN_LEASE_DURATION..=MAX_LEASE_DURATION).contains(&value)
        {
            return Err(InvalidSpec::Lease(value));
        }
        if !(1..=MAX_HOLDERS).contains(&self.max_holders) {
            return Err(InvalidSpec::MaxHolders(self.max_holders));
        }
        if self.mode == LockMode::ReadWrite && self.max_holders > 1 {
            return Err(InvalidSpec::HoldersOfMode);
        }
        if let Some(zookeeper) = &self.zookeeper {
            let connect: ConnectString = zookeeper
                .connect
                .parse()
                .map_err(|error: InvalidConnectString| InvalidSpec::Connect(error.to_string()))?;
            if connect.servers().iter().any(|server| server.tls) != zookeeper.tls_secret.is_some() {
                return Err(InvalidSpec::Tls);
            }
        }
        let timing = self.timing(tick_time);
        timing.check()?;
        Ok(timing)
    }

    fn stated_tick_time(&self) -> Option<ApiDuration> {
        self.zookeeper.as_ref()?.tick_time
    }
}
