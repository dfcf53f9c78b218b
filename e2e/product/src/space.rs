//! A Kubernetes namespace of one test, and the records of the guarded programs in it.
//!
//! This is for tests and benchmarks: if a condition is not met within a generous bound, the functions panic,
//! with the state of the pods.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use lockkeeper_judge::checker::{Report, Rule, check};
use lockkeeper_judge::record::{Moment, Record, Records};
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::cluster::{self, Namespace};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::shared::{Stay, Stays};
use lockkeeper_testbed::{Cluster, Config};
use rustix::process::Pid;
use serde_json::Value;

use crate::Installation;
use crate::installation::Source;

mod lock;
mod manifests;
mod pair;

pub use manifests::{UNTIL_TOLD, calm, recorder, short};
pub use pair::Pair;

/// Generous: the machine may be busy.
pub const BOUND: Duration = Duration::from_secs(180);

/// Tests that break shared parts run alone.
static STAYS: Stays = Stays::new();

/// What the tests of this program install first; the checkout that is tested if they do not say.
static FIRST: OnceLock<Source> = OnceLock::new();

/// Has the tests of this program begin with an installation from another checkout. The first call counts; call it before there
/// is a [`Space`].
pub fn begin_with(source: Source) {
    FIRST.get_or_init(|| source);
}

/// The installation of all tests of this program; `None` where no cluster can run.
pub fn installation() -> Option<&'static Installation<'static>> {
    static SHARED: OnceLock<Option<Installation<'static>>> = OnceLock::new();
    SHARED
        .get_or_init(|| {
            let cluster = Cluster::shared()?;
            // A session that outlives whatever a test does to its node.
            let extra = vec![("maxSessionTimeout".to_owned(), "120000".to_owned())];
            let config = Config {
                extra,
                ..Config::default()
            };
            match Installation::start_from(cluster, config, FIRST.get_or_init(Source::own)) {
                Ok(installation) => Some(installation),
                Err(error) if error.is::<lockkeeper_testbed::Unsupported>() => {
                    lockkeeper_skip::skip(format_args!("{error:#}"));
                    None
                }
                Err(error) => panic!("{error:#}"),
            }
        })
        .as_ref()
}

/// A namespace, with all that is in it.
pub struct Space {
    namespace: Namespace,
    /// Lockkeeper, and its ensemble.
    pub installation: &'static Installation<'static>,
    pub cluster: &'static Cluster,
    /// Name of the namespace.
    pub name: String,
    records: PathBuf,
    /// `None` for a second space of the same test, whose first space has the stay.
    _stay: Option<Stay>,
}

impl Space {
    /// A new space; `None` where no cluster can run.
    pub fn new(name: &str) -> Option<Self> {
        Self::staying(name, Some(STAYS.blocking_together()))
    }

    /// The same without other tests: for tests that break nodes, servers or the operator.
    pub fn alone(name: &str) -> Option<Self> {
        Self::staying(name, Some(STAYS.blocking_alone()))
    }

    /// A second space for the same test.
    pub fn beside(&self, name: &str) -> Self {
        Self::staying(name, None).expect("there is a cluster")
    }

    fn staying(name: &str, stay: Option<Stay>) -> Option<Self> {
        let installation = installation()?;
        let cluster = installation.cluster();
        let namespace = Namespace::new(cluster, name).unwrap_or_else(|error| panic!("{error:#}"));
        Some(Self {
            namespace,
            installation,
            cluster,
            name: name.to_owned(),
            records: make_records_directory(name).unwrap(),
            _stay: stay,
        })
    }

    /// Runs `kubectl` in this namespace, and returns its output.
    pub fn kubectl(&self, words: &[&str]) -> anyhow::Result<String> {
        self.namespace.kubectl(words)
    }

    /// Runs `kubectl` in this namespace until its output satisfies a condition.
    pub fn wait_for(&self, words: &[&str], pleases: impl Fn(&str) -> bool) -> String {
        self.namespace
            .wait_for(BOUND, words, pleases)
            .unwrap_or_else(|error| panic!("{error:#}\n{}", self.story()))
    }

    /// Waits until a controller was told these words in place of a pod.
    pub fn wait_until_refused(&self, words: &str) {
        let events = [
            "get",
            "events",
            "--field-selector=reason=FailedCreate",
            "--output=jsonpath={.items[*].message}",
        ];
        self.wait_for(&events, |said| said.contains(words));
    }

    /// Creates or changes objects.
    ///
    /// It tries again while the webhook cannot be reached, as users do: a crashed node leaves connections of
    /// the API server without an answer, each of which costs the timeout of one call.
    pub fn apply(&self, objects: &[Value]) {
        for object in objects {
            let mut last = String::new();
            let applied = || match self.cluster.apply(&object.to_string()) {
                Err(error) if error.to_string().contains("failed calling webhook") => {
                    last = format!("{error:#}");
                    println!("once more: {last}");
                    None
                }
                applied => Some(applied),
            };
            wait_for(BOUND, applied)
                .unwrap_or_else(|| panic!("{last}\n{}", self.installation.story()))
                .unwrap_or_else(|error| panic!("{error:#}"));
        }
    }

    /// Scales a Deployment to zero, and waits until no pod is left and its controller reports that.
    pub fn scale_to_zero(&self, deployment: &str) {
        self.kubectl(&["scale", "deployment", deployment, "--replicas=0"])
            .unwrap();
        let pods = ["get", "pods", "--selector=app=worker", "--output=name"];
        self.wait_for(&pods, |names| names.trim().is_empty());
        let count = "--output=jsonpath={.status.replicas}{.status.terminatingReplicas}";
        self.wait_for(&["get", "deployment", deployment, count], |count| {
            count.chars().all(|digit| digit == '0')
        });
    }

    /// Waits until all nodes are usable again after faults.
    ///
    /// # Errors
    /// When one cannot for long.
    pub fn wait_for_nodes(&self) -> anyhow::Result<()> {
        // The API server notices late that a node is down: only the nodes that have renewed their lease since
        // count.
        let leases = [
            "get",
            "leases",
            "--namespace=kube-node-lease",
            "--output=jsonpath={.items[*].spec.renewTime}",
        ];
        let before = self.cluster.wait_for(BOUND, &leases, |times| !times.is_empty())?;
        let before: Vec<_> = before.split_whitespace().collect();
        self.cluster.wait_for(BOUND, &leases, |times| {
            let now: Vec<_> = times.split_whitespace().collect();
            now.len() == before.len() && now.iter().zip(&before).all(|(now, before)| now != before)
        })?;
        let ready = [
            "wait",
            "--for=condition=Ready",
            "nodes",
            "--all",
            "--timeout=180s",
        ];
        self.cluster.kubectl(&ready)?;
        let taints = ["get", "nodes", "--output=jsonpath={.items[*].spec.taints}"];
        self.cluster
            .wait_for(BOUND, &taints, |taints| taints.trim().is_empty())
            .map(drop)
    }

    /// Asserts that the holder of `pair`, or another pod, runs now, and that no two ran at the same time.
    pub fn assert_somebody_runs(&self) {
        let since = BootInstant::now();
        let runs = || {
            self.records()
                .iter()
                .any(|record| record.at > since)
                .then_some(())
        };
        wait_for(BOUND, runs).unwrap_or_else(|| panic!("nobody runs\n{}", self.story()));
        self.assert_exclusive();
    }

    /// The node of a pod, counted from 1.
    pub fn node_of(&self, pod: &str) -> u8 {
        let node = self.kubectl(&["get", "pod", pod, "--output=jsonpath={.spec.nodeName}"]);
        node.unwrap().trim_start_matches('n').parse().unwrap()
    }

    /// A process of a pod, by the beginning of its command line.
    pub fn process(&self, pod: &str, command: &str) -> Pid {
        let uid = self
            .kubectl(&["get", "pod", pod, "--output=jsonpath={.metadata.uid}"])
            .unwrap();
        let found = || processes(command, &uid).first().copied();
        wait_for(BOUND, found).unwrap_or_else(|| panic!("no {command} in {pod}\n{}", self.story()))
    }

    pub fn records(&self) -> Vec<Record> {
        self.records_of("record")
    }

    /// Where they are on this machine, and on each node.
    pub fn records_directory(&self) -> &Path {
        &self.records
    }

    /// The records of guarded programs that write to another file.
    pub fn records_of(&self, file: &str) -> Vec<Record> {
        let file = self.records.join(file);
        if file.exists() {
            Records::read(&file).unwrap().records
        } else {
            Vec::new()
        }
    }

    /// Waits until a pod runs under a token above `than`. Returns the token, the name and the moment.
    pub fn wait_until_it_runs(&self, than: i64) -> (i64, String, BootInstant) {
        let began = || {
            self.records().into_iter().find_map(|record| match record.moment {
                Moment::Begin { name, .. } if record.token > than => Some((record.token, name, record.at)),
                _ => None,
            })
        };
        wait_for(BOUND, began).unwrap_or_else(|| panic!("nobody runs\n{}", self.story()))
    }

    /// Token and name of each run, in the order of their begin.
    pub fn begins(&self) -> Vec<(i64, String)> {
        let begin = |record: Record| match record.moment {
            Moment::Begin { name, .. } => Some((record.token, name)),
            _ => None,
        };
        self.records().into_iter().filter_map(begin).collect()
    }

    /// Asserts that no two ran at the same moment, and that tokens grew.
    pub fn assert_exclusive(&self) -> Report {
        let report = check(&self.records(), Rule::Exclusive);
        assert!(report.is_clean(), "{:#?}", report.violations);
        report
    }

    /// The state of the pods, for a failing test.
    pub fn story(&self) -> String {
        let ask = |words: &[&str]| self.kubectl(words).unwrap_or_else(|error| format!("{error:#}"));
        [
            ask(&["get", "pods,distributedlocks", "--output=wide"]),
            ask(&["get", "events", "--sort-by=.lastTimestamp"]),
            ask(&[
                "logs",
                "--selector=app=worker",
                "--container=lockkeeper",
                "--prefix",
                "--tail=30",
            ]),
            ask(&[
                "logs",
                "--selector=app=worker",
                "--container=app",
                "--prefix",
                "--tail=30",
            ]),
        ]
        .join("\n")
    }
}

/// A new directory, on this machine and on each node, for the records of programs of any user.
///
/// # Errors
/// When it cannot be made.
pub fn make_records_directory(name: &str) -> io::Result<PathBuf> {
    let records = cluster::directory().join("records").join(name);
    // Left by a run that was killed.
    let _ = fs::remove_dir_all(&records);
    fs::create_dir_all(&records)?;
    fs::set_permissions(&records, Permissions::from_mode(0o777))?;
    Ok(records)
}

/// The processes of this machine in control groups whose path has `group` in it, and whose command line
/// begins with `command`.
pub fn processes(command: &str, group: &str) -> Vec<Pid> {
    let found = |entry: fs::DirEntry| {
        let groups = fs::read_to_string(entry.path().join("cgroup")).ok()?;
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let is_it = groups.contains(group) && words.starts_with(command);
        let pid = entry.file_name().to_str()?.parse().ok()?;
        is_it.then(|| Pid::from_raw(pid)).flatten()
    };
    let entries = fs::read_dir("/proc").expect("the list of processes can be read");
    entries.flatten().filter_map(found).collect()
}

/// Repairs what a test has broken when the test ends, also when it fails: other tests need it.
pub struct Mend<F: Fn() -> anyhow::Result<()>>(pub F);

impl<F: Fn() -> anyhow::Result<()>> Drop for Mend<F> {
    fn drop(&mut self) {
        match (self.0)() {
            Ok(()) => {}
            Err(error) if std::thread::panicking() => eprintln!("{error:#}"),
            Err(error) => panic!("{error:#}"),
        }
    }
}

/// The beginning of the keeper's command line in a wrapped pod.
pub const KEEPER: &str = "/lockkeeper sidecar";
pub const GUARD: &str = "/lockkeeper/lockkeeper guard";
pub const APPLICATION: &str = "/program /records";
