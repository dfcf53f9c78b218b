//! A pod without a cluster: `lockkeeper sidecar` beside `lockkeeper guard` as PID 1 of a PID namespace, and the
//! directory that they share, as the containers of a pod share a volume.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lockkeeper_judge::record::{Moment, Record, Records};
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Ensemble, Host, Process};
use rustix::process::{Pid, Signal};

use crate::binaries;

/// Bound for what takes seconds on an idle machine.
pub const BOUND: Duration = Duration::from_secs(60);

/// A sidecar, and a container with the guard in front. Needs root.
///
/// Its methods panic when a program cannot be built or started, or does not do in [`BOUND`] what they wait for.
#[derive(Debug)]
pub struct Pod {
    pub host: Host,
    /// The directory that its containers share.
    pub volume: PathBuf,
    pub record: PathBuf,
    /// The words that start `lockkeeper` as the keeper and as the first process of the container, if it is not
    /// [`binaries::lockkeeper`].
    pub started_by: Vec<OsString>,
    /// The keeper; in `signal` mode the guard, whose child the keeper is.
    pub sidecar: Option<Process>,
    /// The parent of the container's first process; in `signal` mode that process itself.
    pub container: Option<Process>,
    /// In `signal` mode the parent of the first process of the PID namespace that all containers share.
    sandbox: Option<Process>,
}

impl Pod {
    /// A host and a volume, without processes.
    pub fn empty(ensemble: &Ensemble, name: &str) -> Self {
        Self::on(ensemble.client(name).unwrap(), ensemble, name)
    }

    /// The same on a given host, which has no other pod.
    pub fn on(host: Host, ensemble: &Ensemble, name: &str) -> Self {
        let volume = ensemble.directory().join(name);
        fs::create_dir(&volume).unwrap();
        Self {
            host,
            record: volume.join("record"),
            volume,
            started_by: Vec::new(),
            sidecar: None,
            container: None,
            sandbox: None,
        }
    }

    /// A pod with a sidecar and a container.
    pub fn start(ensemble: &Ensemble, name: &str, lock: &str) -> Self {
        Self::start_with(ensemble, name, lock, &[], &[])
    }

    /// The same with more options of the sidecar, and of the recorder.
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
    /// termination message file that a kubelet mounts. The containers share a PID namespace (`shareProcessNamespace`),
    /// in which the first process does nothing but wait for others.
    pub fn start_with_foreign_container(ensemble: &Ensemble, name: &str, lock: &str, more: &[&str]) -> Self {
        let mut pod = Self::empty(ensemble, name);
        let mut sandbox = Command::new("unshare");
        sandbox.args([
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            "sleep infinity & wait",
        ]);
        pod.sandbox = Some(pod.host.spawn("sandbox", sandbox).unwrap());
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
        command.args(["--mount-proc", "sh", "-c", &script, "sh"]);
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
        let lease =
            wait_for(BOUND, || self.lease_file()).unwrap_or_else(|| panic!("not held:\n{}", self.said()));
        let token = lease.split('\'').nth(1).unwrap().to_owned();
        let script = format!(
            "mount --bind {}/0 app-log && exec {} {} --name {name}",
            self.last_words("app"),
            binaries::recorder().unwrap().display(),
            self.record.display()
        );
        let mut command = Command::new("unshare");
        command
            .args(["--mount-proc", "sh", "-c", &script])
            .current_dir(&self.volume)
            .env("LOCKKEEPER_FENCING_TOKEN", token)
            .stderr(self.log());
        self.container = Some(self.spawn("container", command));
    }

    fn spawn(&self, name: &str, command: Command) -> Process {
        let spawned = match &self.sandbox {
            Some(sandbox) => self.host.spawn_beside(first_child(sandbox.pid()), name, command),
            None => self.host.spawn(name, command),
        };
        spawned.unwrap()
    }

    /// The file to which both write their output.
    pub fn log(&self) -> File {
        File::options()
            .create(true)
            .append(true)
            .open(self.volume.join("log"))
            .unwrap()
    }

    /// Starts the sidecar, with more options.
    pub fn start_sidecar(&mut self, ensemble: &Ensemble, lock: &str, more: &[&str]) {
        self.start_sidecar_at(&ensemble.connect_string(), lock, more);
    }

    /// The same for other servers.
    pub fn start_sidecar_at(&mut self, connect: &str, lock: &str, more: &[&str]) {
        let mut words = self.words().into_iter();
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words);
        self.start_sidecar_by(command, connect, lock, more);
    }

    /// Starts the sidecar by a command that ends with `lockkeeper`, with T = 8 s, a stop grace of 0.4 s and a tick of 1 s,
    /// unless `more` says otherwise: it tolerates 3.3 s without an answer, and the next one waits for 4.6 s.
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
        self.sidecar = Some(self.spawn("sidecar", command));
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
            .args(self.words())
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

    /// The socket at which the keeper expects the guard.
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

    /// All processes of the container, the first one last.
    pub fn container_processes(&self) -> Vec<Pid> {
        let guard = self.guard();
        let namespace = |pid: Pid| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let own = namespace(guard);
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
        let others = pids.filter(|&pid| pid != guard && own.is_some() && namespace(pid) == own);
        others.chain([guard]).collect()
    }

    /// Exit code of the container once it has ended.
    pub fn container_ends(&mut self) -> Option<i32> {
        let container = self.container.as_mut().expect("a container");
        container.wait(BOUND).unwrap().expect("the container ends").code()
    }

    fn words(&self) -> Vec<OsString> {
        if self.started_by.is_empty() {
            vec![binaries::lockkeeper().unwrap().into()]
        } else {
            self.started_by.clone()
        }
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

    /// Waits until one of them has said this, so many times: a keeper's log may come a moment after what it tells of.
    pub fn says_times(&self, times: usize, sentence: &str) {
        wait_for(BOUND, || {
            (self.said().matches(sentence).count() >= times).then_some(())
        });
        let said = self.said();
        assert_eq!(said.matches(sentence).count(), times, "{said}");
    }

    /// Waits until one of them has said this.
    pub fn says(&self, sentence: &str) {
        wait_for(BOUND, || self.said().contains(sentence).then_some(()))
            .unwrap_or_else(|| panic!("not said: {sentence}\n{}", self.said()));
    }

    /// Runs `lockkeeper COMMAND` in the pod, and returns its exit code.
    pub fn lockkeeper(&self, words: &[&str]) -> Option<i32> {
        let mut command = Command::new(binaries::lockkeeper().unwrap());
        command
            .args(words)
            .env("LOCKKEEPER_SOCKET", self.volume.join("lock.sock"));
        command.output().unwrap().status.code()
    }

    /// Runs `lockkeeper COMMAND --guard-socket … WORDS` in the container, as a kubelet executes it.
    pub fn executed(&self, subcommand: &str, words: &[&str]) -> Option<i32> {
        // A guard that is accepted would run on for ever; timeout(1) then ends it, with 124.
        let mut command = Command::new("timeout");
        command
            .args(["10", "nsenter"])
            .args(["--target", &self.guard().to_string(), "--pid", "--mount"])
            .arg(binaries::lockkeeper().unwrap())
            .args([subcommand, "--guard-socket"])
            .arg(self.guard_socket())
            .args(words)
            .env("LOCKKEEPER_SOCKET", self.volume.join("lock.sock"));
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

    /// Waits until its application has begun under a token that is greater than `than`, and returns the token.
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
        let runs = || {
            if !self.container.as_mut().is_some_and(Process::is_running) {
                self.start_foreign_container(name);
            }
            let records = self.records();
            let mut found = records
                .iter()
                .filter(|record| matches!(record.moment, Moment::Begin { .. }));
            let begin = found.nth(begins - 1)?;
            let newest = found.next_back().unwrap_or(begin);
            (records.last()?.at - newest.at > Duration::from_millis(500)).then_some(())
        };
        wait_for(BOUND, runs).unwrap_or_else(|| panic!("{}", self.said()));
    }

    /// The lease file, while it is there.
    pub fn lease_file(&self) -> Option<String> {
        fs::read_to_string(self.volume.join("lease.env")).ok()
    }
}

fn first_child(parent: Pid) -> Pid {
    let children = format!("/proc/{parent}/task/{parent}/children");
    let child = || fs::read_to_string(&children).ok()?.trim().parse().ok();
    wait_for(BOUND, || child().and_then(Pid::from_raw)).expect("a child")
}
