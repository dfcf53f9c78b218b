//! The processes of a pod, without a cluster: `lockkeeper sidecar` beside `lockkeeper guard` as PID 1
//! of a PID namespace, which share a directory as the containers of a pod share a volume.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lockkeeper_e2e::checker::{Rule, check};
use lockkeeper_e2e::ensemble::DeletionWatch;
use lockkeeper_e2e::process::wait_for;
use lockkeeper_e2e::record::{Moment, Record, Records};
use lockkeeper_e2e::{Config, Ensemble, Host, Process, binaries, faults};

const BOUND: Duration = Duration::from_secs(60);

/// A sidecar, and a container with the guard in front.
struct Pod {
    host: Host,
    volume: PathBuf,
    record: PathBuf,
    sidecar: Option<Process>,
    container: Option<Process>,
}

impl Pod {
    /// A host and a volume; nothing runs yet.
    fn empty(ensemble: &Ensemble, name: &str) -> Self {
        let volume = ensemble.directory().join(name);
        fs::create_dir(&volume).unwrap();
        Self {
            host: ensemble.client(name).unwrap(),
            record: volume.join("record"),
            volume,
            sidecar: None,
            container: None,
        }
    }

    fn start(ensemble: &Ensemble, name: &str, lock: &str) -> Self {
        let mut pod = Self::empty(ensemble, name);
        pod.start_sidecar(ensemble, lock, &[]);
        pod.start_container(name);
        pod
    }

    /// A pod whose container knows nothing of locks (`signal` mode): it is told from other processes by
    /// the file that a kubelet mounts for its last words.
    fn start_with_foreign_container(ensemble: &Ensemble, name: &str, lock: &str) -> Self {
        let mut pod = Self::empty(ensemble, name);
        let last_words = pod.volume.join("pods/uid/containers/app");
        fs::create_dir_all(&last_words).unwrap();
        for file in [last_words.join("0123"), pod.volume.join("termination-log")] {
            File::create(file).unwrap();
        }
        let termination_log = pod.volume.join("termination-log");
        let termination_log = termination_log.to_str().unwrap();
        pod.start_sidecar(
            ensemble,
            lock,
            &["--container", "app", "--termination-log", termination_log],
        );
        pod
    }

    /// What a kubelet does for a container that takes its environment from the lease file: it starts
    /// it once that is there.
    fn start_foreign_container(&mut self, name: &str) {
        let lease = wait_for(BOUND, || self.lease_file()).expect("the lock is held");
        let token = lease.split('\'').nth(1).unwrap().to_owned();
        let script = format!(
            "mount --bind pods/uid/containers/app/0123 termination-log && exec {} {} --name {name}",
            binaries::recorder().unwrap().display(),
            self.record.display()
        );
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", &script])
            .current_dir(&self.volume)
            .env("LOCKKEEPER_FENCING_TOKEN", token)
            .stderr(self.log());
        self.container = Some(self.host.spawn("container", command).unwrap());
    }

    fn log(&self) -> File {
        File::options()
            .create(true)
            .append(true)
            .open(self.volume.join("log"))
            .unwrap()
    }

    fn start_sidecar(&mut self, ensemble: &Ensemble, lock: &str, more: &[&str]) {
        let mut command = Command::new(binaries::lockkeeper().unwrap());
        command
            .args(["sidecar", "--connect", &ensemble.connect_string(), "--lock", lock])
            .args([
                "--session-timeout",
                "4s",
                "--stop-grace",
                "400ms",
                "--tick-time",
                "1s",
            ])
            .args(["--admin-listen", "127.0.0.1:9808"])
            .arg("--socket")
            .arg(self.volume.join("lock.sock"))
            .arg("--guard-socket")
            .arg(self.volume.join("guard.sock"))
            .arg("--lease-file")
            .arg(self.volume.join("lease.env"))
            .args(more)
            .stderr(self.log());
        self.sidecar = Some(self.host.spawn("sidecar", command).unwrap());
    }

    /// A container has a PID namespace of its own, whose first process is the guard.
    fn start_container(&mut self, name: &str) {
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
            .arg(binaries::lockkeeper().unwrap())
            .arg("guard")
            .arg("--guard-socket")
            .arg(self.volume.join("guard.sock"))
            .arg("--socket")
            .arg(self.volume.join("lock.sock"))
            .arg("--")
            .arg(binaries::recorder().unwrap())
            .arg(&self.record)
            .args(["--name", name])
            .stderr(self.log());
        self.container = Some(self.host.spawn("container", command).unwrap());
    }

    fn records(&self) -> Vec<Record> {
        if self.record.exists() {
            Records::read(&self.record).unwrap().records
        } else {
            Vec::new()
        }
    }

    fn wait_until_it_runs(&self, than: i64) -> i64 {
        let began = || {
            let records = self.records();
            let begins = records
                .iter()
                .filter(|record| matches!(record.moment, Moment::Begin { .. }));
            begins.map(|record| record.token).find(|token| *token > than)
        };
        wait_for(BOUND, began)
            .unwrap_or_else(|| panic!("{}", fs::read_to_string(self.volume.join("log")).unwrap()))
    }

    fn lease_file(&self) -> Option<String> {
        fs::read_to_string(self.volume.join("lease.env")).ok()
    }
}

fn answers(command: &str, pod: &Pod, arguments: &[&str]) -> bool {
    let mut client = Command::new(binaries::lockkeeper().unwrap());
    client
        .arg(command)
        .arg("--socket")
        .arg(pod.volume.join("lock.sock"))
        .args(arguments);
    client.output().unwrap().status.success()
}

/// Nothing ran under `token` any more when the leader deleted its node.
fn assert_gone_before_the_deletion(pod: &Pod, token: i64, deletions: &DeletionWatch) {
    let deleted = deletions
        .wait_for_deletion(token, BOUND)
        .expect("the session expires");
    let last = pod
        .records()
        .iter()
        .filter(|record| record.token == token)
        .map(|record| record.at)
        .max();
    let last = last.unwrap();
    println!("gone {:?} before the leader deleted the node", deleted - last);
    assert!(last < deleted);
}

fn is_root() -> bool {
    let is_root = rustix::process::getuid().is_root();
    if !is_root {
        println!("SKIPPED: a PID namespace for the container needs root");
    }
    is_root
}

fn all(pods: &[&Pod]) -> Vec<Record> {
    pods.iter().flat_map(|pod| pod.records()).collect()
}

#[test]
fn of_two_pods_one_runs_and_a_release_hands_over_without_a_restart_of_a_container() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let first = Pod::start(&ensemble, "first", "/locks/pod");
    let token = first.wait_until_it_runs(0);
    assert_eq!(
        first.lease_file(),
        Some(format!("LOCKKEEPER_FENCING_TOKEN='{token}'\n"))
    );
    let second = Pod::start(&ensemble, "second", "/locks/pod");
    assert!(answers("wait", &second, &["--for", "queued", "--timeout", "30s"]));
    assert_eq!(second.lease_file(), None);

    assert!(answers("release", &first, &[]));
    let next = second.wait_until_it_runs(token);
    assert_eq!(first.lease_file(), None);
    assert!(answers("release", &second, &[]));
    // The same guard starts it once more.
    first.wait_until_it_runs(next);
    let report = check(&all(&[&first, &second]), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 3, "{report}");
}

#[test]
fn a_killed_sidecar_costs_its_application_the_lock_in_time_and_a_new_one_queues_again() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let lock = "/locks/pod";
    let deletions = ensemble.watch_deletions(lock).unwrap();
    let mut first = Pod::start(&ensemble, "first", lock);
    let token = first.wait_until_it_runs(0);
    let second = Pod::start(&ensemble, "second", lock);
    assert!(answers("wait", &second, &["--for", "queued", "--timeout", "30s"]));

    faults::kill(first.sidecar.take().unwrap().pid()).unwrap();
    first.start_sidecar(&ensemble, lock, &[]);
    let next = second.wait_until_it_runs(token);
    assert_gone_before_the_deletion(&first, token, &deletions);
    assert!(answers("release", &second, &[]));
    first.wait_until_it_runs(next);
    let report = check(&all(&[&first, &second]), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 3, "{report}");
}

#[test]
fn a_container_that_knows_nothing_of_locks_is_killed_in_time_and_the_pod_gated_anew() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let lock = "/locks/foreign";
    let deletions = ensemble.watch_deletions(lock).unwrap();
    let mut first = Pod::start_with_foreign_container(&ensemble, "first", lock);
    first.start_foreign_container("first");
    let token = first.wait_until_it_runs(0);
    let mut second = Pod::start_with_foreign_container(&ensemble, "second", lock);
    assert!(answers("wait", &second, &["--for", "queued", "--timeout", "30s"]));

    for server in 0..ensemble.len() {
        ensemble.cut(&first.host, ensemble.server(server)).unwrap();
    }
    second.start_foreign_container("second");
    second.wait_until_it_runs(token);
    assert_gone_before_the_deletion(&first, token, &deletions);
    assert_eq!(first.lease_file(), None);
    let report = check(&all(&[&first, &second]), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 2, "{report}");

    // The code that the pod's rule waits for: all containers are stopped, and gated by the lock again.
    let status = first
        .sidecar
        .as_mut()
        .unwrap()
        .wait(BOUND)
        .unwrap()
        .expect("the sidecar ends");
    assert_eq!(
        status.code(),
        Some(88),
        "{}",
        fs::read_to_string(first.volume.join("log")).unwrap()
    );
}
