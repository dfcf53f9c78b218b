//! The rows of the table.

use super::{Driver, System};
use crate::lease::Lease;
use crate::servers::Kind;

/// A lock that takes the lease that all get.
const fn system(name: &'static str, title: &'static str, driver: Driver, servers: Kind) -> System {
    System {
        name,
        title,
        driver,
        servers,
        lease: Lease::Given,
        program: None,
        largest_crowd: 500,
    }
}

/// A lock that ends with a connection, or never.
const fn without_lease(name: &'static str, title: &'static str, driver: Driver, servers: Kind) -> System {
    System {
        lease: Lease::Never,
        ..system(name, title, driver, servers)
    }
}

/// A lock with a lease of its own.
const fn with_own(lease: Lease, system: System) -> System {
    System { lease, ..system }
}

/// A lock of which fewer clients than usual fit on one machine, because its library makes dozens of threads for each.
const fn with_threads(system: System) -> System {
    System {
        largest_crowd: 50,
        ..system
    }
}

/// A lock that has no crowd: it takes part as another row does.
const fn without_crowd(system: System) -> System {
    System {
        largest_crowd: 0,
        ..system
    }
}

/// A lock that has no crowd: it is a program.
const fn program(program: &'static str, system: System) -> System {
    System {
        program: Some(program),
        ..without_crowd(system)
    }
}

/// All systems, in the order of the page.
pub const SYSTEMS: &[System] = &[
    with_own(
        // The next one has it within the lease. The session lasts longer, and so do the faults.
        Lease::own(15_000, "8.5 s; session 15 s"),
        system(
            "lockkeeper",
            "Lockkeeper `run`",
            Driver::Own(&[]),
            Kind::ZooKeeper,
        ),
    ),
    with_own(
        Lease::own(4_000, "1.7 s; session 4 s"),
        without_crowd(system(
            "lockkeeper-short",
            "Lockkeeper `run`, session of 4 s",
            Driver::Own(&[
                "--session-timeout",
                "4s",
                "--tick-time",
                "1s",
                "--stop-grace",
                "200ms",
            ]),
            Kind::ZooKeeper,
        )),
    ),
    system(
        "curator-mutex",
        "Curator `InterProcessMutex`",
        Driver::Java,
        Kind::ZooKeeper,
    ),
    without_crowd(system(
        "curator-mutex-session-policy",
        "Curator `InterProcessMutex`, session policy",
        Driver::Java,
        Kind::ZooKeeper,
    )),
    without_crowd(system(
        "curator-mutex-session-policy-33",
        "Curator `InterProcessMutex`, session policy, 33 %",
        Driver::Java,
        Kind::ZooKeeper,
    )),
    system(
        "curator-semaphore-mutex",
        "Curator `InterProcessSemaphoreMutex`",
        Driver::Java,
        Kind::ZooKeeper,
    ),
    system("kazoo", "kazoo `Lock`", Driver::Python, Kind::ZooKeeper),
    without_crowd(system(
        "kazoo-lost",
        "kazoo `Lock`, stopped at LOST only",
        Driver::Python,
        Kind::ZooKeeper,
    )),
    system("zk-naive", "one ephemeral node", Driver::Java, Kind::ZooKeeper),
    without_lease(
        "jdbc-row@postgres",
        "unique row, PostgreSQL",
        Driver::Java,
        Kind::Postgres,
    ),
    without_lease(
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
    without_lease(
        "jdbc-for-update@postgres",
        "`SELECT … FOR UPDATE`, PostgreSQL",
        Driver::Java,
        Kind::Postgres,
    ),
    without_lease(
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
    without_lease(
        "pg-advisory",
        "PostgreSQL advisory lock",
        Driver::Java,
        Kind::Postgres,
    ),
    without_crowd(without_lease(
        "pg-advisory-checked",
        "PostgreSQL advisory lock, asked three times in a lease",
        Driver::Java,
        Kind::Postgres,
    )),
    without_crowd(with_own(
        Lease::own(5_000, "4 s of keepalive"),
        system(
            "pg-advisory-checked-keepalive",
            "PostgreSQL advisory lock, asked, with keepalive",
            Driver::Java,
            Kind::Postgres,
        ),
    )),
    with_own(
        Lease::own(5_000, "5 s, never renewed"),
        system("redis-setnx", "`SETNX` and `GETSET`", Driver::Python, Kind::Redis),
    ),
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
    with_threads(system(
        "redisson-lock",
        "Redisson `RLock`",
        Driver::Java,
        Kind::Redis,
    )),
    without_crowd(system(
        "redisson-lock-checked",
        "Redisson `RLock`, asked three times in a lease",
        Driver::Java,
        Kind::Redis,
    )),
    with_threads(system(
        "redisson-lock@sentinel",
        "Redisson `RLock`, Sentinel",
        Driver::Java,
        Kind::Sentinel,
    )),
    with_threads(system(
        "redisson-fenced",
        "Redisson `RFencedLock`",
        Driver::Java,
        Kind::Redis,
    )),
    system("memcached", "memcached `add`", Driver::Python, Kind::Memcached),
    system("etcd-mutex", "etcd `concurrency.Mutex`", Driver::Go, Kind::Etcd),
    program(
        "etcdctl",
        system("etcdctl-lock", "`etcdctl lock`", Driver::Go, Kind::Etcd),
    ),
    with_threads(system(
        "hazelcast-fenced",
        "Hazelcast `FencedLock`",
        Driver::Java,
        Kind::Hazelcast,
    )),
    without_crowd(system(
        "hazelcast-fenced-checked",
        "Hazelcast `FencedLock`, asked three times in a lease",
        Driver::Java,
        Kind::Hazelcast,
    )),
    with_own(
        Lease::own(30_000, "30 s, the least that its keep-alive takes"),
        with_threads(system(
            "shedlock",
            "ShedLock, PostgreSQL",
            Driver::Java,
            Kind::Postgres,
        )),
    ),
    with_own(
        Lease::own(15_000, "15 s, its default"),
        system(
            "k8s-lease-defaults",
            "client-go leader election",
            Driver::Go,
            Kind::Kubernetes,
        ),
    ),
    with_own(
        Lease::own(15_000, "15 s, its default"),
        system(
            "k8s-lease-release-defaults",
            "client-go, `ReleaseOnCancel`",
            Driver::Go,
            Kind::Kubernetes,
        ),
    ),
    with_own(
        Lease::own(
            35_000,
            "10 s, the least, which ends after up to twice that, or the check of the node, if that fails before; then a delay of 15 s",
        ),
        system("consul-api", "Consul API `Lock`", Driver::Go, Kind::Consul),
    ),
    without_crowd(with_own(
        Lease::own(
            35_000,
            "10 s, the least, which ends after up to twice that; then a delay of 15 s",
        ),
        system(
            "consul-api-ttl",
            "Consul API `Lock`, session without checks",
            Driver::Go,
            Kind::Consul,
        ),
    )),
    program(
        "consul",
        with_own(
            Lease::own(
                45_000,
                "15 s, which cannot be set, and ends after up to twice that, or the check of the node, if that fails before; then a delay \
                 of 15 s",
            ),
            system("consul-lock", "`consul lock`", Driver::Go, Kind::Consul),
        ),
    ),
];

/// Two more, whose costs alone are of interest.
pub const OF_CROWDS: &[System] = &[
    system(
        "zookeeper-client",
        "`lock` of the crate zookeeper-client",
        Driver::Crowd("zookeeper-client"),
        Kind::ZooKeeper,
    ),
    System {
        // Two connections at any size: the size says how long a node is there.
        largest_crowd: 50,
        ..system(
            FLOOR,
            "no recipe: a node is deleted, a watch tells",
            Driver::Crowd("floor"),
            Kind::ZooKeeper,
        )
    },
];

/// The least that a recipe on ZooKeeper does.
pub(crate) const FLOOR: &str = "zookeeper-floor";
