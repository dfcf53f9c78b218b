//! What the tests start.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, ExitCode};
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use lockkeeper_sidecar::guard::{self, GuardOptions, KeeperSocket, TargetKind};
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;

/// `pid1 | subreaper | container NAME LOG LEASE  [--socket PATH] [--keeper FILE] -- CMD…`; without a path
/// the socket to the keeper is stdin.
#[expect(
    clippy::zombie_processes,
    reason = "the guard reaps all children of its process"
)]
pub fn guard(arguments: &[OsString]) -> ExitCode {
    let mut arguments = arguments.iter().cloned();
    let mut next = move || arguments.next();
    let text = |word: Option<OsString>| {
        word.and_then(|word| word.into_string().ok())
            .expect("an argument")
    };
    let target = match text(next()).as_str() {
        "pid1" => TargetKind::Pid1,
        "subreaper" => TargetKind::Subreaper,
        _ => TargetKind::Container {
            name: text(next()),
            termination_log: text(next()),
            lease_file: next().expect("a path").into(),
        },
    };
    let inherited = std::io::stdin().as_fd().try_clone_to_owned().expect("a socket");
    let nothing = rustix::fs::open("/dev/null", OFlags::RDONLY, Mode::empty()).expect("/dev/null");
    rustix::stdio::dup2_stdin(nothing).expect("a new stdin");
    let mut keeper = KeeperSocket::Inherited(inherited);
    let mut keeper_pid = None;
    loop {
        match text(next()).as_str() {
            "--" => break,
            "--socket" => keeper = KeeperSocket::Path(next().expect("a path").into()),
            _ => {
                let file = next().expect("a file");
                let child = Command::new("sleep")
                    .arg("1000")
                    .spawn()
                    .expect("a stand-in for the keeper");
                std::fs::write(file, format!("{}\n0\n", child.id())).expect("written");
                keeper_pid = Some(Pid::from_child(&child));
            }
        }
    }
    let command = std::iter::from_fn(next).collect();
    let environment = vec![("LOCKKEEPER_LOCK".into(), "/test".into())];
    guard::run(GuardOptions {
        target,
        keeper,
        command,
        environment,
        keeper_pid,
    })
    .into()
}

/// `FILE`: writes its process id and then, every millisecond, the moment.
pub fn record(arguments: &[OsString]) -> ExitCode {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&arguments[0])
        .expect("a file");
    writeln!(file, "{}", rustix::process::getpid()).expect("written");
    loop {
        // One write for each line, so that SIGKILL leaves no half of one.
        let line = format!("{}\n", BootInstant::now().as_nanos());
        file.write_all(line.as_bytes()).expect("written");
        std::thread::sleep(Duration::from_millis(1));
    }
}
