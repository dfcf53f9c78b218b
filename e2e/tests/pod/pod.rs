//! One pod: a sidecar, a container, and the volume that they share.

use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lockkeeper_judge::record::{Moment, Record, Records};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::DeletionWatch;
use lockkeeper_product::binaries;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Ensemble, Host, Process};
use rustix::process::{Pid, Signal};

pub const BOUND: Duration = Duration::from_secs(60);

/// A sidecar, and a container with the guard in front.
pub struct Pod {
    pub host: Host,
    pub volume: PathBuf,
    pub record: PathBuf,
    pub sidecar: Option<Process>,
    pub container: Option<Process>,
}

impl Pod {
    /// A host and a volume, without processes.
    pub fn empty(ensemble: &Ensemble, name: &str) -> Self {
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

    pub fn start(ensemble: &Ensemble, name: &str, lock: &str) -> Self {
        Self::start_with(ensemble, name, lock, &[], &[])
    }

    /// With more options of the sidecar, and of the recorder.
    pub fn start_with(
        ensemble: &Ensemble,
        name: &str,
        lock: &str,
        sidecar: &[&str],
        recorder: &[&str],
    ) -> Self {
        let mut pod = Self::empty(ensemble, name);
        pod.start_sidecar(ensemble, lock, sidecar);
        pod.start_container(name, recorder);
        pod
    }

    /// A pod whose container knows nothing of locks (`signal` mode): its guard recognises it by the
    /// termination message file that a kubelet mounts.
    pub fn start_with_foreign_container(ensemble: &Ensemble, name: &str, lock: &str, more: &[&str]) -> Self {
        let mut pod = Self::empty(ensemble, name);
        for container in ["app", "lockkeeper"] {
            let last_words = pod.volume.join(pod.last_words(container));
            fs::create_dir_all(&last_words).unwrap();
            for file in [last_words.join("0"), pod.volume.join(format!("{container}-log"))] {
                File::create(file).unwrap();
            }
        }
        let options = [&["--container", "app"], more].concat();
        // The sidecar's container has such a mount as well.
        let own = pod.last_words("lockkeeper");
        let script = format!("mount --bind {own}/0 lockkeeper-log && exec \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh"]);
        command.arg(binaries::lockkeeper().unwrap());
        pod.start_sidecar_by(command, &ensemble.connect_string(), lock, &options);
        pod
    }

    /// The path of a container's termination message file below the kubelet's folder, here in the volume. All
    /// pods here share one machine, so each has a uid of its own.
    fn last_words(&self, container: &str) -> String {
        let uid = self.volume.to_str().unwrap().replace('/', "-");
        format!("pods/{uid}/containers/{container}")
    }

    /// Starts the container once the lease file exists, as a kubelet does for a container that takes its
    /// environment from that file.
    fn start_foreign_container(&mut self, name: &str) {
        let lease = wait_for(BOUND, || self.lease_file()).expect("the lock is held");
        let token = lease.split('\'').nth(1).unwrap().to_owned();
        let script = format!(
            "mount --bind {}/0 app-log && exec {} {} --name {name}",
            self.last_words("app"),
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

    pub fn log(&self) -> File {
        File::options()
            .create(true)
            .append(true)
            .open(self.volume.join("log"))
            .unwrap()
    }

    pub fn start_sidecar(&mut self, ensemble: &Ensemble, lock: &str, more: &[&str]) {
        self.start_sidecar_at(&ensemble.connect_string(), lock, more);
    }

    pub fn start_sidecar_at(&mut self, connect: &str, lock: &str, more: &[&str]) {
        self.start_sidecar_by(Command::new(binaries::lockkeeper().unwrap()), connect, lock, more);
    }

    /// Starts the sidecar with T = 8 s, a stop grace of 0.4 s and a tick of 1 s, unless `more` says otherwise: it tolerates
    /// 3.3 s without an answer, and the next one waits for 4.6 s.
    pub fn start_sidecar_by(&mut self, mut command: Command, connect: &str, lock: &str, more: &[&str]) {
        let defaults = [
            ("--session-timeout", "8s"),
            ("--stop-grace", "400ms"),
            ("--tick-time", "1s"),
        ];
        let defaults = defaults.iter().filter(|(name, _)| !more.contains(name));
        command
            .current_dir(&self.volume)
            .args(["sidecar", "--connect", connect, "--lock", lock])
            .args(defaults.flat_map(|&(name, value)| [name, value]))
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

    /// Starts the container: a PID namespace of its own, whose first process is the guard.
    pub fn start_container(&mut self, name: &str, recorder: &[&str]) {
        self.container = Some(self.another_container(name, recorder));
    }

    /// Another container with a guard of its own.
    pub fn another_container(&self, name: &str, recorder: &[&str]) -> Process {
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
            .arg(binaries::lockkeeper().unwrap())
            .arg("guard")
            .arg("--guard-socket")
            .arg(self.guard_socket())
            .arg("--socket")
            .arg(self.volume.join("lock.sock"))
            .arg("--")
            .arg(binaries::recorder().unwrap())
            .arg(&self.record)
            .args(["--name", name])
            .args(recorder)
            .stderr(self.log());
        self.host.spawn("container", command).unwrap()
    }

    pub fn guard_socket(&self) -> PathBuf {
        self.volume.join("guard.sock")
    }

    /// The keeper of a sidecar that guards by signals, a child of the guard.
    pub fn keeper(&self) -> Pid {
        first_child(self.sidecar.as_ref().expect("a sidecar").pid())
    }

    /// The first process of the container, which gets a kubelet's SIGTERM.
    pub fn guard(&self) -> Pid {
        first_child(self.container.as_ref().expect("a container").pid())
    }

    /// Exit code of the container once it has ended.
    pub fn container_ends(&mut self) -> Option<i32> {
        let container = self.container.as_mut().expect("a container");
        container.wait(BOUND).unwrap().expect("the container ends").code()
    }

    /// Sends SIGTERM, as a kubelet does when the containers of the application have ended, and returns the
    /// exit code.
    pub fn end_sidecar(&mut self) -> Option<i32> {
        let sidecar = self.sidecar.as_mut().expect("a sidecar");
        sidecar.signal(Signal::TERM);
        sidecar.wait(BOUND).unwrap().expect("the sidecar ends").code()
    }

    /// The output of both.
    pub fn said(&self) -> String {
        fs::read_to_string(self.volume.join("log")).unwrap_or_default()
    }

    /// Runs `lockkeeper COMMAND` in the pod, and returns its exit code.
    pub fn lockkeeper(&self, words: &[&str]) -> Option<i32> {
        let mut command = Command::new(binaries::lockkeeper().unwrap());
        command
            .args(words)
            .env("LOCKKEEPER_SOCKET", self.volume.join("lock.sock"))
            .env("LOCKKEEPER_GUARD_SOCKET", self.volume.join("guard.sock"));
        command.output().unwrap().status.code()
    }

    /// The same in the container, as a kubelet executes it.
    pub fn executed(&self, words: &[&str]) -> Option<i32> {
        // A guard that is accepted would run on for ever; timeout(1) then ends it, with 124.
        let mut command = Command::new("timeout");
        command
            .args(["10", "nsenter"])
            .args(["--target", &self.guard().to_string(), "--pid", "--mount"])
            .arg(binaries::lockkeeper().unwrap())
            .args(words)
            .env("LOCKKEEPER_SOCKET", self.volume.join("lock.sock"))
            .env("LOCKKEEPER_GUARD_SOCKET", self.volume.join("guard.sock"));
        command.output().unwrap().status.code()
    }

    /// Status and body of a path of the port for probes.
    pub fn probe(&self, path: &str) -> Option<(u16, String)> {
        let port = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9808);
        let mut stream = self.host.connect(port, BOUND).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let answer = std::io::read_to_string(stream).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    pub fn records(&self) -> Vec<Record> {
        if self.record.exists() {
            Records::read(&self.record).unwrap().records
        } else {
            Vec::new()
        }
    }

    /// Waits until its application has written for this long.
    pub fn goes_on_for(&self, time: Duration) {
        let end = BootInstant::now() + time;
        // It cannot be so before, and reading all records again and again takes a core.
        std::thread::sleep(time);
        wait_for(BOUND, || (self.records().last()?.at > end).then_some(()))
            .unwrap_or_else(|| panic!("{}", self.said()));
    }

    pub fn wait_until_it_runs(&self, than: i64) -> i64 {
        let began = || {
            let records = self.records();
            let begins = records
                .iter()
                .filter(|record| matches!(record.moment, Moment::Begin { .. }));
            begins.map(|record| record.token).find(|token| *token > than)
        };
        wait_for(BOUND, began).unwrap_or_else(|| panic!("{}", self.said()))
    }

    /// Starts the container as often as a kubelet would, until the application has begun this often in all,
    /// and has run for long enough that the guard, which looks every 50 ms, has seen it.
    pub fn keep_foreign_container(&mut self, name: &str, begins: usize) {
        let end = BootInstant::now() + BOUND;
        while BootInstant::now() < end {
            if !self.container.as_mut().is_some_and(Process::is_running) {
                self.start_foreign_container(name);
            }
            let records = self.records();
            let mut found = records
                .iter()
                .filter(|record| matches!(record.moment, Moment::Begin { .. }));
            if let (Some(begin), Some(last)) = (found.nth(begins - 1), records.last())
                && last.at - found.next_back().unwrap_or(begin).at > Duration::from_millis(500)
            {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{}", self.said());
    }

    pub fn lease_file(&self) -> Option<String> {
        fs::read_to_string(self.volume.join("lease.env")).ok()
    }
}

fn first_child(parent: Pid) -> Pid {
    let children = format!("/proc/{parent}/task/{parent}/children");
    let child = || fs::read_to_string(&children).ok()?.trim().parse().ok();
    wait_for(BOUND, || child().and_then(Pid::from_raw)).expect("a child")
}

/// Asserts that nothing ran under `token` any more when the leader deleted its node.
pub fn assert_gone_before_the_deletion(pod: &Pod, token: i64, deletions: &DeletionWatch) {
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

pub fn is_root() -> bool {
    let is_root = rustix::process::getuid().is_root();
    if !is_root {
        lockkeeper_skip::skip("a PID namespace for the container needs root");
    }
    is_root
}

pub fn all(pods: &[&Pod]) -> Vec<Record> {
    pods.iter().flat_map(|pod| pod.records()).collect()
}
