//! A Kubernetes namespace of one test, and the records of the guarded programs in it.
//!
//! What does not happen within a generous bound panics, with the story of the pods: this is for tests,
//! and for what measures.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use rustix::process::Pid;
use serde_json::Value;

use crate::checker::{Report, Rule, check};
use crate::cluster::DIRECTORY;
use crate::process::wait_for;
use crate::record::{Moment, Record, Records};
use crate::{Cluster, Config, Installation};

mod manifests;
mod pair;

pub use manifests::{calm, recorder};
pub use pair::Pair;

/// Generous: the machine may have other work to do.
pub const BOUND: Duration = Duration::from_secs(180);

static STAYS: RwLock<()> = RwLock::new(());

/// Tests that break what all share do it alone.
enum Stay {
    Together {
        _guard: RwLockReadGuard<'static, ()>,
    },
    Alone {
        _guard: RwLockWriteGuard<'static, ()>,
    },
    /// With a space of the same test, which stays.
    Guest,
}

/// The installation of all tests of this program; `None` where there can be none.
pub fn installation() -> Option<&'static Installation<'static>> {
    static SHARED: OnceLock<Option<Installation<'static>>> = OnceLock::new();
    SHARED
        .get_or_init(|| {
            let cluster = Cluster::shared()?;
            match Installation::start(cluster, Config::default()) {
                Ok(installation) => Some(installation),
                Err(error) if error.is::<crate::Unsupported>() => {
                    println!("SKIPPED: {error:#}");
                    None
                }
                Err(error) => panic!("{error:#}"),
            }
        })
        .as_ref()
}

/// A namespace, with all that is in it.
pub struct Space {
    /// Lockkeeper, and its ensemble.
    pub installation: &'static Installation<'static>,
    /// Where the namespace is.
    pub cluster: &'static Cluster,
    /// Of the namespace.
    pub name: String,
    records: PathBuf,
    _stay: Stay,
}

impl Space {
    /// A new one; `None` where there can be no cluster.
    pub fn new(name: &str) -> Option<Self> {
        let _guard = STAYS.read().unwrap_or_else(PoisonError::into_inner);
        Self::staying(name, Stay::Together { _guard })
    }

    /// The same without other tests: for what breaks nodes, servers, or the operator.
    pub fn alone(name: &str) -> Option<Self> {
        let _guard = STAYS.write().unwrap_or_else(PoisonError::into_inner);
        Self::staying(name, Stay::Alone { _guard })
    }

    /// A second one for the same test.
    pub fn beside(&self, name: &str) -> Self {
        Self::staying(name, Stay::Guest).expect("there is a cluster")
    }

    fn staying(name: &str, stay: Stay) -> Option<Self> {
        let installation = installation()?;
        let cluster = installation.cluster();
        let records = PathBuf::from(DIRECTORY).join("records").join(name);
        // Of a run that was killed.
        let _ = cluster.kubectl(&["delete", "namespace", name, "--ignore-not-found"]);
        let _ = fs::remove_dir_all(&records);
        fs::create_dir_all(&records).unwrap();
        // Programs of any user write there.
        fs::set_permissions(&records, Permissions::from_mode(0o777)).unwrap();
        cluster.kubectl(&["create", "namespace", name]).unwrap();
        Some(Self {
            installation,
            cluster,
            name: name.to_owned(),
            records,
            _stay: stay,
        })
    }

    /// Runs `kubectl` in this namespace; tells what it has printed.
    pub fn kubectl(&self, words: &[&str]) -> anyhow::Result<String> {
        self.cluster.kubectl(&self.inside(words))
    }

    /// Asks `kubectl` in this namespace until the answer pleases.
    pub fn eventually(&self, words: &[&str], pleases: impl Fn(&str) -> bool) -> String {
        self.cluster
            .wait_for(BOUND, &self.inside(words), pleases)
            .unwrap_or_else(|error| panic!("{error:#}\n{}", self.story()))
    }

    fn inside<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        [&["--namespace", &self.name], words].concat()
    }

    /// Creates or changes objects.
    ///
    /// Users try again, too, while the webhook cannot be reached: a node that has crashed leaves connections
    /// of the API server to it behind that nobody answers, each of which costs the timeout of one call.
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

    /// Scales a Deployment to zero, and waits until no pod is left and its controller has said so.
    pub fn scale_to_zero(&self, deployment: &str) {
        self.kubectl(&["scale", "deployment", deployment, "--replicas=0"])
            .unwrap();
        let pods = ["get", "pods", "--selector=app=worker", "--output=name"];
        self.eventually(&pods, |names| names.trim().is_empty());
        let count = "--output=jsonpath={.status.replicas}{.status.terminatingReplicas}";
        self.eventually(&["get", "deployment", deployment, count], |count| {
            count.chars().all(|digit| digit == '0')
        });
    }

    /// Waits until so many pods stand in the queue of a lock that is held.
    pub fn wait_until_waiting(&self, lock: &str, count: usize) {
        let state = "--output=jsonpath={.status.waiting} {.status.holders[*].pod}";
        let wanted = format!("{count} ");
        self.eventually(&["get", "distributedlock", lock, state], |answer| {
            answer.starts_with(&wanted) && answer.len() > wanted.len()
        });
    }

    /// The same behind this holder: the status may still tell what was before it.
    pub fn wait_until_waiting_behind(&self, holder: &str, lock: &str, count: usize) {
        let state = "--output=jsonpath={.status.waiting} {.status.holders[*].pod}";
        let wanted = format!("{count} {holder}");
        self.eventually(&["get", "distributedlock", lock, state], |answer| {
            answer == wanted
        });
    }

    /// The pods that hold a lock, as its status says.
    pub fn holders(&self, lock: &str) -> Vec<String> {
        let names = "--output=jsonpath={.status.holders[*].pod}";
        let names = self.kubectl(&["get", "distributedlock", lock, names]).unwrap();
        names.split_whitespace().map(str::to_owned).collect()
    }

    /// Asks a pod that holds to step down.
    pub fn release(&self, pod: &str) {
        let release = [
            "exec",
            pod,
            "--container=lockkeeper",
            "--",
            "/lockkeeper",
            "release",
        ];
        self.kubectl(&release).unwrap();
    }

    /// Waits until all nodes can be used, after some were broken.
    ///
    /// # Errors
    /// When one cannot for long.
    pub fn wait_for_nodes(&self) -> anyhow::Result<()> {
        // The API server learns late who is away: what counts is who has spoken with it since.
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

    /// The holder of `pair`, or another one, runs now, and nobody ran beside it.
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

    /// A process of a pod, by what its command line begins with.
    pub fn process(&self, pod: &str, command: &str) -> Pid {
        let uid = self
            .kubectl(&["get", "pod", pod, "--output=jsonpath={.metadata.uid}"])
            .unwrap();
        let found = || processes(command, &uid).first().copied();
        wait_for(BOUND, found).unwrap_or_else(|| panic!("no {command} in {pod}\n{}", self.story()))
    }

    /// What the guarded programs have written.
    pub fn records(&self) -> Vec<Record> {
        self.records_of("record")
    }

    /// What programs have written that were told another file.
    pub fn records_of(&self, file: &str) -> Vec<Record> {
        let file = self.records.join(file);
        if file.exists() {
            Records::read(&file).unwrap().records
        } else {
            Vec::new()
        }
    }

    /// Waits until somebody runs under a token above `than`; tells the token, the name and when.
    pub fn wait_until_it_runs(&self, than: i64) -> (i64, String, BootInstant) {
        let began = || {
            self.records().into_iter().find_map(|record| match record.moment {
                Moment::Begin { name, .. } if record.token > than => Some((record.token, name, record.at)),
                _ => None,
            })
        };
        wait_for(BOUND, began).unwrap_or_else(|| panic!("nobody runs\n{}", self.story()))
    }

    /// Who began to run, under which token, in this order.
    pub fn begins(&self) -> Vec<(i64, String)> {
        let begin = |record: Record| match record.moment {
            Moment::Begin { name, .. } => Some((record.token, name)),
            _ => None,
        };
        self.records().into_iter().filter_map(begin).collect()
    }

    /// No two ran at one moment, and tokens grew.
    pub fn assert_exclusive(&self) -> Report {
        let report = check(&self.records(), Rule::Exclusive);
        assert!(report.is_clean(), "{:#?}", report.violations);
        report
    }

    /// What there is to know when something does not happen.
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

impl Drop for Space {
    fn drop(&mut self) {
        let delete = ["delete", "namespace", &self.name, "--wait=false"];
        if let Err(error) = self.cluster.kubectl(&delete) {
            eprintln!("{error:#}");
        }
    }
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

/// What is done when a test is over, also when it fails: others need what it has broken.
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

/// How the command lines of processes begin in a wrapped pod.
pub const KEEPER: &str = "/lockkeeper sidecar";
/// The guard.
pub const GUARD: &str = "/lockkeeper/lockkeeper guard";
/// The application.
pub const APPLICATION: &str = "/program /records";
