//! A Kubernetes namespace of one test, and the records of the guarded programs in it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use lockkeeper_e2e::checker::{Report, Rule, check};
use lockkeeper_e2e::cluster::DIRECTORY;
use lockkeeper_e2e::ensemble::DeletionWatch;
use lockkeeper_e2e::process::wait_for;
use lockkeeper_e2e::record::{Moment, Record, Records};
use lockkeeper_e2e::{Cluster, Config, Installation};
use lockkeeper_lock::BootInstant;
use rustix::process::Pid;
use serde_json::Value;

// Said because the benchmark has this file from here, too.
#[path = "space/manifests.rs"]
mod manifests;

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
                Err(error) if error.is::<lockkeeper_e2e::Unsupported>() => {
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
    pub installation: &'static Installation<'static>,
    pub cluster: &'static Cluster,
    pub name: &'static str,
    records: PathBuf,
    _stay: Stay,
}

impl Space {
    /// A new one; `None` where there can be no cluster.
    pub fn new(name: &'static str) -> Option<Self> {
        let _guard = STAYS.read().unwrap_or_else(PoisonError::into_inner);
        Self::staying(name, Stay::Together { _guard })
    }

    /// The same without other tests: for what breaks nodes, servers, or the operator.
    pub fn alone(name: &'static str) -> Option<Self> {
        let _guard = STAYS.write().unwrap_or_else(PoisonError::into_inner);
        Self::staying(name, Stay::Alone { _guard })
    }

    /// A second one for the same test.
    pub fn beside(&self, name: &'static str) -> Self {
        Self::staying(name, Stay::Guest).expect("there is a cluster")
    }

    fn staying(name: &'static str, stay: Stay) -> Option<Self> {
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
            name,
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
        [&["--namespace", self.name], words].concat()
    }

    /// Creates or changes objects.
    pub fn apply(&self, objects: &[Value]) {
        for object in objects {
            self.cluster
                .apply(&object.to_string())
                .unwrap_or_else(|error| panic!("{error:#}"));
        }
    }

    /// Waits until so many pods stand in the queue of a lock that is held.
    pub fn wait_until_waiting(&self, lock: &str, count: usize) {
        let state = "--output=jsonpath={.status.waiting} {.status.holders[*].pod}";
        let wanted = format!("{count} ");
        self.eventually(&["get", "distributedlock", lock, state], |answer| {
            answer.starts_with(&wanted) && answer.len() > wanted.len()
        });
    }

    /// The pods that hold a lock, as its status says.
    pub fn holders(&self, lock: &str) -> Vec<String> {
        let names = "--output=jsonpath={.status.holders[*].pod}";
        let names = self.kubectl(&["get", "distributedlock", lock, names]).unwrap();
        names.split_whitespace().map(str::to_owned).collect()
    }

    /// A Deployment of two pods, one on each node, behind the lock `report` with these settings; what
    /// is there when one runs and the other one waits.
    pub fn pair(&self, lock: &Value, recorder: &[&str]) -> Pair {
        let pod = self.pod(&[self.recording(recorder)]);
        self.apply(&[
            self.lock("report", lock),
            self.workload("Deployment", "report", Some(2), pod),
        ]);
        self.started()
    }

    /// Waits until one of two pods behind the lock `report` runs, and the other one waits.
    pub fn started(&self) -> Pair {
        let path = format!("/lockkeeper/locks/{}/report", self.name);
        self.kubectl(&["wait", "--for=condition=Ready", "dlock/report", "--timeout=60s"])
            .unwrap_or_else(|error| panic!("{error:#}"));
        let deletions = self.installation.ensemble().watch_deletions(&path).unwrap();
        self.wait_until_waiting("report", 1);
        let (token, holder, _) = self.wait_until_it_runs(0);
        Pair {
            token,
            holder,
            deletions,
        }
    }

    /// [`Self::assert_handed_over`], to the other pod. Tells who that is.
    pub fn assert_other_runs(&self, pair: &Pair) -> (i64, String) {
        let (token, next) = self.assert_handed_over(pair);
        assert_ne!(next, pair.holder);
        (token, next)
    }

    /// Somebody runs after the holder of `pair`; it and all others ran alone, and whoever was stopped
    /// was gone before the leader deleted its node. Tells who runs now.
    pub fn assert_handed_over(&self, pair: &Pair) -> (i64, String) {
        let (token, next, _) = self.wait_until_it_runs(pair.token);
        let deleted = pair.deletions.wait_for_deletion(pair.token, BOUND);
        assert!(deleted.is_some(), "{}", self.story());
        let report = self.assert_exclusive();
        if pair.deletions.interrupted().is_none() {
            for spare in report.spares(&pair.deletions.lives()) {
                assert_eq!(spare.late, None, "{spare:?}");
            }
        }
        (token, next)
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

    /// Waits until all nodes can be used.
    pub fn wait_for_nodes(&self) -> anyhow::Result<()> {
        let ready = [
            "wait",
            "--for=condition=Ready",
            "nodes",
            "--all",
            "--timeout=180s",
        ];
        self.cluster.kubectl(&ready).map(drop)
    }

    /// The holder of `pair` still runs, now.
    pub fn assert_undisturbed(&self, pair: &Pair) {
        let since = BootInstant::now();
        let runs = || {
            let records = self.records();
            let last = records.iter().max_by_key(|record| record.at)?;
            (last.at > since).then_some(last.token)
        };
        let token = wait_for(BOUND, runs).unwrap_or_else(|| panic!("nobody runs\n{}", self.story()));
        assert_eq!(token, pair.token, "{}", self.story());
        assert_eq!(self.begins(), [(pair.token, pair.holder.clone())]);
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
        let found = || {
            fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
                let groups = fs::read_to_string(entry.path().join("cgroup")).ok()?;
                let words = fs::read(entry.path().join("cmdline")).ok()?;
                let words = String::from_utf8_lossy(&words).replace('\0', " ");
                let is_it = groups.contains(&uid) && words.starts_with(command);
                let pid = entry.file_name().to_str()?.parse().ok()?;
                is_it.then(|| Pid::from_raw(pid)).flatten()
            })
        };
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
        let delete = ["delete", "namespace", self.name, "--wait=false"];
        if let Err(error) = self.cluster.kubectl(&delete) {
            eprintln!("{error:#}");
        }
    }
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

/// Two pods, of which one runs.
pub struct Pair {
    /// Under this token.
    pub token: i64,
    /// The pod that runs.
    pub holder: String,
    /// What the leader deletes.
    pub deletions: DeletionWatch,
}
