//! The table of all systems: which driver, which servers, and what can be done to them.

use std::time::Duration;

use crate::servers::Kind;

/// The program that drives a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// `lockkeeper run` with these further options.
    Own(&'static [&'static str]),
    /// The project below `java/`.
    Java,
    /// The module below `go/`.
    Go,
    /// The programs below `python/`.
    Python,
    /// This recipe of `lockkeeper-crowd`: it is in no fault, only in the costs.
    Crowd(&'static str),
}

/// A lock of the field.
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// Its name on the command line, and for its driver.
    pub name: &'static str,
    /// Its name in the page.
    pub title: &'static str,
    pub driver: Driver,
    pub servers: Kind,
    /// In seconds: the lease that it has whatever the others have, or at least.
    pub own_lease: u64,
}

const fn system(name: &'static str, title: &'static str, driver: Driver, servers: Kind) -> System {
    System {
        name,
        title,
        driver,
        servers,
        own_lease: 0,
    }
}

/// All systems, in the order of the page.
pub const SYSTEMS: &[System] = &[
    system(
        "lockkeeper",
        "Lockkeeper `run`",
        Driver::Own(&[]),
        Kind::ZooKeeper,
    ),
    system(
        "lockkeeper-short",
        "Lockkeeper `run`, lease of 2 s",
        Driver::Own(&["--lease-duration", "2s"]),
        Kind::ZooKeeper,
    ),
    system(
        "curator-mutex",
        "Curator `InterProcessMutex`",
        Driver::Java,
        Kind::ZooKeeper,
    ),
    system(
        "curator-mutex-session-policy",
        "Curator `InterProcessMutex`, session policy",
        Driver::Java,
        Kind::ZooKeeper,
    ),
    system(
        "curator-semaphore-mutex",
        "Curator `InterProcessSemaphoreMutex`",
        Driver::Java,
        Kind::ZooKeeper,
    ),
    system("kazoo", "kazoo `Lock`", Driver::Python, Kind::ZooKeeper),
    system(
        "kazoo-lost",
        "kazoo `Lock`, stopped at LOST only",
        Driver::Python,
        Kind::ZooKeeper,
    ),
    system("zk-naive", "one ephemeral node", Driver::Java, Kind::ZooKeeper),
    system(
        "jdbc-row@postgres",
        "unique row, PostgreSQL",
        Driver::Java,
        Kind::Postgres,
    ),
    system(
        "jdbc-row@mariadb",
        "unique row, MariaDB",
        Driver::Java,
        Kind::MariaDb,
    ),
    system(
        "jdbc-row-expiry@postgres",
        "unique row with expiry, PostgreSQL",
        Driver::Java,
        Kind::Postgres,
    ),
    system(
        "jdbc-row-expiry@mariadb",
        "unique row with expiry, MariaDB",
        Driver::Java,
        Kind::MariaDb,
    ),
    system(
        "jdbc-for-update@postgres",
        "`SELECT … FOR UPDATE`, PostgreSQL",
        Driver::Java,
        Kind::Postgres,
    ),
    system(
        "jdbc-for-update@mariadb",
        "`SELECT … FOR UPDATE`, MariaDB",
        Driver::Java,
        Kind::MariaDb,
    ),
    system(
        "jdbc-version@postgres",
        "version column, PostgreSQL",
        Driver::Java,
        Kind::Postgres,
    ),
    system(
        "jdbc-version@mariadb",
        "version column, MariaDB",
        Driver::Java,
        Kind::MariaDb,
    ),
    system(
        "pg-advisory",
        "PostgreSQL advisory lock",
        Driver::Java,
        Kind::Postgres,
    ),
    system("redis-setnx", "`SETNX` and `GETSET`", Driver::Python, Kind::Redis),
    system("redis-lock", "redis-py `Lock`", Driver::Python, Kind::Redis),
    system(
        "redis-lock@sentinel",
        "redis-py `Lock`, Sentinel",
        Driver::Python,
        Kind::Sentinel,
    ),
    system(
        "redlock",
        "Redlock (redsync), five servers",
        Driver::Go,
        Kind::FiveRedis,
    ),
    system("redisson-lock", "Redisson `RLock`", Driver::Java, Kind::Redis),
    system(
        "redisson-lock@sentinel",
        "Redisson `RLock`, Sentinel",
        Driver::Java,
        Kind::Sentinel,
    ),
    system(
        "redisson-fenced",
        "Redisson `RFencedLock`",
        Driver::Java,
        Kind::Redis,
    ),
    system("memcached", "memcached `add`", Driver::Python, Kind::Memcached),
    system("etcd-mutex", "etcd `concurrency.Mutex`", Driver::Go, Kind::Etcd),
    system("etcdctl-lock", "`etcdctl lock`", Driver::Go, Kind::Etcd),
    system(
        "hazelcast-fenced",
        "Hazelcast `FencedLock`",
        Driver::Java,
        Kind::Hazelcast,
    ),
    system(
        "hazelcast-fenced-checked",
        "Hazelcast `FencedLock`, asked three times in a lease",
        Driver::Java,
        Kind::Hazelcast,
    ),
    System {
        // `KeepAliveLockProvider` demands this of `lockAtMostFor`.
        own_lease: 30,
        ..system("shedlock", "ShedLock, PostgreSQL", Driver::Java, Kind::Postgres)
    },
    System {
        own_lease: 15,
        ..system(
            "k8s-lease-defaults",
            "client-go leader election",
            Driver::Go,
            Kind::Kubernetes,
        )
    },
    System {
        own_lease: 15,
        ..system(
            "k8s-lease-release-defaults",
            "client-go, `ReleaseOnCancel`",
            Driver::Go,
            Kind::Kubernetes,
        )
    },
    System {
        // Its session's least time to live is 10 s, and a lock that was not released is kept from others for 15 s more.
        own_lease: 25,
        ..system("consul-api", "Consul API `Lock`", Driver::Go, Kind::Consul)
    },
    System {
        own_lease: 30,
        ..system("consul-lock", "`consul lock`", Driver::Go, Kind::Consul)
    },
];

/// Two more, whose costs alone are of interest.
pub const OF_CROWDS: &[System] = &[
    system(
        "zookeeper-client",
        "`lock` of the crate zookeeper-client",
        Driver::Crowd("zookeeper-client"),
        Kind::ZooKeeper,
    ),
    system(
        FLOOR,
        "no recipe: a node is deleted, a watch tells",
        Driver::Crowd("floor"),
        Kind::ZooKeeper,
    ),
];

/// What every recipe on ZooKeeper needs at least.
pub(crate) const FLOOR: &str = "zookeeper-floor";

impl System {
    /// The largest crowd of it on one machine; 0 if it is a program, takes part as another row does, or its library makes
    /// dozens of threads for each client.
    pub(crate) fn largest_crowd(&self) -> u32 {
        match self.name {
            FLOOR => 2,
            "lockkeeper-short"
            | "curator-mutex-session-policy"
            | "kazoo-lost"
            | "hazelcast-fenced-checked" => 0,
            "etcdctl-lock" | "consul-lock" => 0,
            "redisson-lock"
            | "redisson-lock@sentinel"
            | "redisson-fenced"
            | "hazelcast-fenced"
            | "shedlock" => 50,
            _ => 500,
        }
    }

    /// The lease that it has where the others have this one.
    pub fn lease(&self, of_others: Duration) -> Duration {
        of_others.max(Duration::from_secs(self.own_lease))
    }

    pub fn named(name: &str) -> Option<&'static Self> {
        SYSTEMS.iter().chain(OF_CROWDS).find(|system| system.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = SYSTEMS.iter().map(|system| system.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SYSTEMS.len());
    }
}
