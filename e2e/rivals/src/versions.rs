//! Which version of each library and server is measured: libraries by the manifests that pin them, servers by what they
//! answer.

use crate::servers::Version;
use crate::systems::{Driver, System};

const POM: &str = include_str!("../drivers/java/pom.xml");
const GO: &str = include_str!("../drivers/go/go.mod");
const CONSUL: &str = include_str!("../drivers/go/consul/go.mod");
const PYTHON: &str = include_str!("../drivers/python/requirements.txt");
const CARGO: &str = include_str!("../../../Cargo.lock");

/// Where a version is written.
#[derive(Clone, Copy, Debug)]
enum Pin {
    /// A property of the project in Java.
    Java(&'static str),
    /// A module of the drivers in Go.
    Go(&'static str),
    /// A module of Consul's own program.
    Consul(&'static str),
    Python(&'static str),
    /// A crate.
    Rust(&'static str),
}

impl Pin {
    fn version(self) -> Option<&'static str> {
        match self {
            Self::Java(property) => {
                let (_, rest) = POM.split_once(&format!("<{property}.version>"))?;
                Some(rest.split_once('<')?.0)
            }
            Self::Go(module) => of_module(GO, module),
            Self::Consul(module) => of_module(CONSUL, module),
            Self::Python(package) => PYTHON
                .lines()
                .find_map(|line| line.strip_prefix(package)?.strip_prefix("=="))
                .map(|rest| rest.trim_end_matches([' ', '\\'])),
            Self::Rust(name) => {
                let (_, rest) = CARGO.split_once(&format!("\nname = \"{name}\"\nversion = \""))?;
                Some(rest.split_once('"')?.0)
            }
        }
    }
}

/// The version of a module in a `go.mod`.
fn of_module(manifest: &'static str, module: &str) -> Option<&'static str> {
    let mut requirements = manifest.lines().filter_map(|line| {
        let (name, rest) = line.trim().split_once(' ')?;
        (name == module).then(|| rest.split(' ').next())?
    });
    Some(requirements.next()?.trim_start_matches('v'))
}

/// The libraries of a lock and its servers, as its servers answer.
pub(crate) fn of(system: &System, servers: &[Version]) -> Vec<Version> {
    let mut versions = libraries(system);
    versions.extend_from_slice(servers);
    versions
}

/// The libraries of a lock.
fn libraries(system: &System) -> Vec<Version> {
    let pins = pins(system).iter();
    // A test looks for each of them.
    pins.map(|(title, pin)| (*title, pin.version().unwrap_or("unknown").to_owned()))
        .collect()
}

fn pins(system: &System) -> &'static [(&'static str, Pin)] {
    const ZOOKEEPER: (&str, Pin) = ("ZooKeeper's client", Pin::Java("zookeeper"));
    const POSTGRES: (&str, Pin) = ("pgJDBC", Pin::Java("postgresql"));
    const REDIS_PY: &[(&str, Pin)] = &[("redis-py", Pin::Python("redis"))];
    if matches!(system.driver, Driver::Own(_)) {
        return &[("Lockkeeper", Pin::Rust("lockkeeper-sidecar"))];
    }
    let (base, database) = system.name.split_once('@').unwrap_or((system.name, ""));
    // How often a driver asks its library, or the server its client, changes nothing.
    match base.trim_end_matches("-keepalive").trim_end_matches("-checked") {
        "curator-mutex"
        | "curator-mutex-session-policy"
        | "curator-mutex-session-policy-33"
        | "curator-semaphore-mutex" => &[("Curator", Pin::Java("curator")), ZOOKEEPER],
        "zk-naive" => &[ZOOKEEPER],
        "kazoo" | "kazoo-lost" => &[("kazoo", Pin::Python("kazoo"))],
        "zookeeper-client" | "zookeeper-floor" => &[("zookeeper-client", Pin::Rust("zookeeper-client"))],
        "shedlock" => &[("ShedLock", Pin::Java("shedlock")), POSTGRES],
        "redis-setnx" | "redis-lock" => REDIS_PY,
        "redlock" => &[
            ("redsync", Pin::Go("github.com/go-redsync/redsync/v4")),
            ("go-redis", Pin::Go("github.com/redis/go-redis/v9")),
        ],
        "redisson-lock" | "redisson-fenced" => &[("Redisson", Pin::Java("redisson"))],
        "memcached" => &[("pymemcache", Pin::Python("pymemcache"))],
        "etcd-mutex" => &[("etcd's client", Pin::Go("go.etcd.io/etcd/client/v3"))],
        "etcdctl-lock" => &[("etcdctl", Pin::Go("go.etcd.io/etcd/etcdctl/v3"))],
        "hazelcast-fenced" => &[("Hazelcast's client", Pin::Java("hazelcast"))],
        "k8s-lease-defaults" | "k8s-lease-release-defaults" => &[("client-go", Pin::Go("k8s.io/client-go"))],
        "consul-api" | "consul-api-ttl" => &[("Consul's API", Pin::Go("github.com/hashicorp/consul/api"))],
        "consul-lock" => &[("consul", Pin::Consul("github.com/hashicorp/consul"))],
        "jdbc-row" | "jdbc-row-expiry" | "jdbc-for-update" | "jdbc-version" if database == "mariadb" => {
            &[("MariaDB's JDBC driver", Pin::Java("mariadb"))]
        }
        "jdbc-row" | "jdbc-row-expiry" | "jdbc-for-update" | "jdbc-version" | "pg-advisory" => &[POSTGRES],
        // A test wants a line here for each lock.
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::{OF_CROWDS, SYSTEMS};

    #[test]
    fn the_manifests_tell_the_version_of_each_library() {
        for system in SYSTEMS.iter().chain(OF_CROWDS) {
            let libraries = libraries(system);
            assert!(!libraries.is_empty(), "{}", system.name);
            for (title, version) in libraries {
                let is_version = version.starts_with(|first: char| first.is_ascii_digit())
                    && version.contains('.')
                    && !version.contains(' ');
                assert!(is_version, "{}: {title} {version:?}", system.name);
            }
        }
        let kazoo = System::named("kazoo").unwrap();
        assert!(PYTHON.contains(&format!("kazoo=={} ", libraries(kazoo)[0].1)));
    }

    #[test]
    fn a_module_is_found_by_its_whole_name() {
        let manifest = "require (\n\texample.org/a/b v1.2.3\n\texample.org/a v4.5.6 // indirect\n)\n";
        assert_eq!(of_module(manifest, "example.org/a"), Some("4.5.6"));
        assert_eq!(of_module(manifest, "example.org/a/b"), Some("1.2.3"));
        assert_eq!(of_module(manifest, "example.org"), None);
    }
}
