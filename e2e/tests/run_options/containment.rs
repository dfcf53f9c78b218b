//! What holds the application together: the log, `lockkeeper status` and the metrics name what is really in force.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Command;

use lockkeeper_product::binaries;
use lockkeeper_product::nobody::{AS_NOBODY, USER, room};
use lockkeeper_product::worker::program_of;
use lockkeeper_testbed::Ensemble;
use lockkeeper_testbed::process::wait_for;
use rustix::process::{Pid, Signal};

use crate::harness::{BOUND, Run, client, ensemble};

/// Where the run of a case is executed.
#[derive(Clone, Copy)]
enum By {
    Root,
    /// A user without any right, in a control group of root.
    Nobody,
    /// The same in a control group that was delegated to it, as by `Delegate=yes` of systemd.
    Delegate,
}

/// A control group that was delegated to a user. Its end removes it.
struct Delegated(PathBuf);

impl Delegated {
    /// `None` where this machine has no control groups of version 2 that can be made.
    fn make() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        let name = format!("lockkeeper-test-{}", std::process::id());
        let group = PathBuf::from(mount.split(' ').nth(4)?).join(name);
        fs::create_dir(&group).ok()?;
        // What systemd gives away (cgroups(7), "Delegation").
        for file in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
            chown(group.join(file), Some(USER), Some(USER)).unwrap();
        }
        Some(Self(group))
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        // What was killed leaves it a moment later. Groups of runs that were killed are in it.
        let removed = || {
            for group in fs::read_dir(&self.0).ok()?.flatten() {
                let _ = fs::remove_dir(group.path());
            }
            fs::remove_dir(&self.0).ok()
        };
        wait_for(BOUND, removed);
    }
}

/// What the kernel says of the application: which of the means it really is.
fn in_force(guard: Pid, application: Pid) -> &'static str {
    let namespace = |pid: Pid| fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap();
    if namespace(guard) != namespace(application) {
        return "pidns";
    }
    let group = |pid: Pid| {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let own = groups.lines().find_map(|line| line.strip_prefix("0::"));
        own.unwrap_or_default().to_owned()
    };
    let (guards, own) = (group(guard), group(application));
    let below = own.strip_prefix(&guards).unwrap_or_default();
    if below.trim_start_matches('/').starts_with("lockkeeper-") {
        "cgroup"
    } else {
        assert_eq!(guards, own);
        "sweep"
    }
}

/// What its port for probes answers to `/metrics`.
fn metrics(run: &Run) -> String {
    let port = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9808);
    let mut stream = run.host.connect(port, BOUND).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    std::io::read_to_string(stream).unwrap()
}

/// What the metric says of one containment: its name, and whether it is in force.
fn labelled(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix("lockkeeper_containment{")?;
    rest.split_once("by=\"")?.1.split_once("\"} ")
}

fn start(ensemble: &Ensemble, name: &str, by: By, choice: &str, delegated: &Delegated) -> (Run, String) {
    let (directory, program) = room(ensemble.directory(), name).unwrap();
    let socket = directory.join("lock.sock").to_str().unwrap().to_owned();
    let mut command = match by {
        By::Root => Command::new(binaries::lockkeeper().unwrap()),
        By::Nobody => {
            let mut command = Command::new(AS_NOBODY[0]);
            command.args(&AS_NOBODY[1..]).arg(program);
            command
        }
        By::Delegate => {
            // As a service manager does: it puts the process into the group, and then lets it become the user.
            let procs = delegated.0.join("cgroup.procs");
            let script = format!(
                "echo 0 >{} && exec {} \"$@\"",
                procs.display(),
                AS_NOBODY.join(" ")
            );
            let mut command = Command::new("sh");
            command.args(["-c", &script, "sh"]).arg(program);
            command
        }
    };
    command
        .args(["run", "--connect", &ensemble.connect_string()])
        .args(["--lock", &format!("/containment/{name}")])
        .args(["--session-timeout", "15s", "--tick-time", "1s"])
        .args(["--admin-listen", "127.0.0.1:9808", "--socket", &socket])
        .args(["--containment", choice])
        .args(["--", "sh", "-c", "echo runs; exec sleep 600"]);
    let run = Run::spawn(ensemble, name, command);
    assert_eq!(run.first_line(), "runs");
    (run, socket)
}

#[test]
fn log_status_and_metrics_each_name_the_containment_that_is_really_in_force() {
    let ensemble = ensemble();
    if !rustix::process::getuid().is_root() {
        return lockkeeper_skip::skip("needs root for a PID namespace, and to become another user");
    }
    let Some(delegated) = Delegated::make() else {
        return lockkeeper_skip::skip("no control group of version 2 can be made");
    };
    for (name, by, choice, expected) in [
        ("held-cgroup", By::Root, "cgroup", "cgroup"),
        ("held-auto", By::Root, "auto", "cgroup"),
        ("held-delegated", By::Delegate, "cgroup", "cgroup"),
        ("held-delegated-auto", By::Delegate, "auto", "cgroup"),
        ("held-nobody-auto", By::Nobody, "auto", "sweep"),
        ("held-pidns", By::Root, "pidns", "pidns"),
        ("held-sweep", By::Root, "sweep", "sweep"),
    ] {
        let (mut run, socket) = start(&ensemble, name, by, choice, &delegated);
        let guard = run.process.pid();
        let application = program_of(guard).expect("its application runs");
        assert_eq!(in_force(guard, application), expected, "{name}");

        let sentence = "The application is held together";
        wait_for(BOUND, || run.stderr().contains(sentence).then_some(())).expect("it is said");
        let log = run.stderr();
        let said: Vec<_> = log.lines().filter(|line| line.contains(sentence)).collect();
        let word = format!("by=\"{expected}\"");
        assert!(said.len() == 1 && said[0].contains(&word), "{name}: {log}");

        let (code, status) = client(&["status", "--socket", &socket, "--output", "json"]);
        assert_eq!(code, 0, "{name}: {status}");
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        assert_eq!(status["containment"], expected, "{name}");
        let (_, text) = client(&["status", "--socket", &socket]);
        let line = format!("contained  by {expected}");
        assert!(text.lines().any(|said| said == line), "{name}: {text}");

        let metrics = metrics(&run);
        let told: Vec<_> = metrics.lines().filter_map(labelled).collect();
        let set: Vec<_> = told.iter().filter(|(_, value)| *value != "0").collect();
        assert_eq!(set, [&(expected, "1")], "{name}: {metrics}");
        assert_eq!(told.len(), 4, "{name}: {metrics}");

        run.signal(Signal::TERM);
        run.wait();
    }
}
