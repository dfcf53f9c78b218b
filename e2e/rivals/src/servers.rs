//! The servers of a system, each on a host of its own, and what can happen to them.

use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Host, Network};

mod consul;
mod etcd;
mod farm;
mod hazelcast;
mod kubernetes;
mod mariadb;
mod memcached;
mod postgres;
mod redis;
mod zookeeper;

/// Longer than servers need to start on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Which servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Three of ZooKeeper.
    ZooKeeper,
    /// One PostgreSQL.
    Postgres,
    /// One MariaDB.
    MariaDb,
    /// One Redis.
    Redis,
    /// A Redis with a replica, and three Sentinels.
    Sentinel,
    /// Five independent Redis.
    FiveRedis,
    /// One memcached.
    Memcached,
    /// Three of etcd.
    Etcd,
    /// Three members of Hazelcast's CP subsystem.
    Hazelcast,
    /// An API server.
    Kubernetes,
    /// Three of Consul, and its agent on each contender's machine.
    Consul,
}

/// A library or server, and its version.
pub(crate) type Version = (&'static str, String);

/// Running servers. Dropping them ends them and everything on their network.
pub trait Servers {
    /// The network between servers and contenders.
    fn network(&self) -> &Network;

    fn directory(&self) -> &std::path::Path;

    /// The file with the names of all hosts, for Java.
    fn names(&self) -> &std::path::Path;

    /// `--servers` of the drivers.
    fn addresses(&self) -> String;

    /// Further options of the drivers.
    fn options(&self) -> Vec<String> {
        Vec::new()
    }

    /// The command of what has to run on each machine that uses the lock, with a folder for its files.
    ///
    /// # Errors
    /// When it cannot be built.
    fn agent(&self, _: &Host, _: &std::path::Path) -> anyhow::Result<Option<Command>> {
        Ok(None)
    }

    /// Whether that serves on this machine.
    fn agent_serves(&self, _: &Host) -> bool {
        true
    }

    /// The hosts of all servers, the running ones and the others.
    fn hosts(&self) -> Vec<Host>;

    /// The server that all writes depend on just now: the leader, the primary, or the only one. `None` if there is none,
    /// or all are alike.
    fn leader(&self) -> Option<usize>;

    fn kill(&mut self, server: usize);

    /// Starts a server that was killed. It may not serve yet.
    fn launch(&mut self, server: usize) -> anyhow::Result<()>;

    fn all_serve(&self) -> bool;

    /// What they say that they are. `None` if they do not answer just now.
    fn versions(&self) -> Option<Vec<Version>>;

    /// How many requests the servers have had, where they count them.
    fn requests(&self) -> Option<f64> {
        None
    }

    /// Throws away what [`Servers::fill_memory`] has written, and everything else.
    ///
    /// # Errors
    /// When it does not work.
    fn empty_memory(&mut self) -> anyhow::Result<()> {
        anyhow::bail!("these servers throw nothing away")
    }

    /// Fills the memory of the servers with other data, where they throw away the old in that case.
    ///
    /// # Errors
    /// When it does not work.
    fn fill_memory(&mut self) -> anyhow::Result<()> {
        anyhow::bail!("these servers throw nothing away")
    }
}

/// The sum of the samples of a metric in Prometheus' text format, with whatever labels.
fn sum_of(metrics: &str, name: &str) -> Option<f64> {
    let samples = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.strip_prefix('{') {
            Some(labels) => labels.rsplit_once("} ")?.1,
            None => rest.strip_prefix(' ')?,
        };
        value.parse::<f64>().ok()
    });
    let samples: Vec<_> = samples.collect();
    (!samples.is_empty()).then(|| samples.iter().sum())
}

impl Kind {
    /// What it is, for the page.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::ZooKeeper => "3 ZooKeeper",
            Self::Postgres => "PostgreSQL",
            Self::MariaDb => "MariaDB",
            Self::Redis => "Redis",
            Self::Sentinel => "Redis, a replica, 3 Sentinels",
            Self::FiveRedis => "5 Redis",
            Self::Memcached => "memcached",
            Self::Etcd => "3 etcd",
            Self::Hazelcast => "3 Hazelcast",
            Self::Kubernetes => "an API server and its etcd",
            Self::Consul => "3 Consul, and an agent on each machine",
        }
    }

    /// Starts them.
    ///
    /// # Errors
    /// When a program is missing, or they do not serve in time.
    pub fn start(self) -> anyhow::Result<Box<dyn Servers>> {
        let servers: Box<dyn Servers> = match self {
            Self::ZooKeeper => Box::new(zookeeper::start()?),
            Self::Redis => Box::new(redis::start(redis::Layout::Single)?),
            Self::FiveRedis => Box::new(redis::start(redis::Layout::Five)?),
            Self::Sentinel => Box::new(redis::start(redis::Layout::Sentinel)?),
            Self::Memcached => Box::new(memcached::start()?),
            Self::Postgres => Box::new(postgres::start()?),
            Self::Etcd => Box::new(etcd::start()?),
            Self::MariaDb => Box::new(mariadb::start()?),
            Self::Hazelcast => Box::new(hazelcast::start()?),
            Self::Consul => Box::new(consul::start()?),
            Self::Kubernetes => Box::new(kubernetes::start()?),
        };
        wait_for(PATIENCE, || servers.all_serve().then_some(()))
            .with_context(|| format!("the servers ({self:?}) do not serve after {PATIENCE:?}"))?;
        Ok(servers)
    }

    /// Whether there is a leader that can change.
    pub(crate) fn has_cluster(self) -> bool {
        matches!(
            self,
            Self::ZooKeeper | Self::Sentinel | Self::Etcd | Self::Hazelcast | Self::Consul
        )
    }

    /// Whether a server that was killed does not come back as what it was.
    pub fn loses_what_was_killed(self) -> bool {
        // The open version keeps nothing on a disk: a killed member is no part of its CP group any more.
        self == Self::Hazelcast
    }

    /// Whether they throw data away when their memory is full.
    pub(crate) fn evicts(self) -> bool {
        matches!(
            self,
            Self::Redis | Self::FiveRedis | Self::Sentinel | Self::Memcached
        )
    }

    /// Whether they do that without being told to.
    pub(crate) fn throws_away_by_default(self) -> bool {
        self == Self::Memcached
    }
}

/// The text of a field in an answer in JSON, named by its path: `outer.inner`.
fn json_field(answer: &str, name: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(answer).ok()?;
    let mut fields = name.split('.');
    let found = fields.try_fold(&value, |value, field| value.get(field))?;
    Some(found.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{json_field, sum_of};

    #[test]
    fn a_field_of_an_answer_is_found_by_its_path() {
        let answer = "{\"Config\":{\"Version\":\"1.19.2\",\"Server\":true}}";
        assert_eq!(json_field(answer, "Config.Version").as_deref(), Some("1.19.2"));
        assert_eq!(json_field(answer, "Config.Server"), None);
        assert_eq!(json_field("none", "Config"), None);
    }

    #[test]
    fn samples_of_one_metric_are_added_up_and_those_of_longer_names_are_not() {
        let metrics = "# TYPE asked counter\nasked{verb=\"get {} \"} 2\nasked{verb=\"put\"} 1e+01\nasked_total 5\nall 7\n";
        assert_eq!(sum_of(metrics, "asked"), Some(12.0));
        assert_eq!(sum_of(metrics, "all"), Some(7.0));
        assert_eq!(sum_of(metrics, "none"), None);
    }
}
