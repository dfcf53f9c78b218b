//! What the tests start.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use lockkeeper_sidecar::guard::{
    self, Container, ContainerTarget, ContainmentChoice, GuardOptions, Hold, KeeperLink, TargetKind,
};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags};

/// `pid1 | subreaper | cgroup | pidns | container NAME LEASE  [--socket PATH] [--keeper FILE] -- CMD…`; without a path
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
        "subreaper" => held(ContainmentChoice::Sweep),
        "cgroup" => held(ContainmentChoice::Cgroup),
        "pidns" => held(ContainmentChoice::Pidns),
        _ => {
            let target = ContainerTarget {
                name: text(next()),
                lease_file: next().expect("a path").into(),
            };
            TargetKind::Container(Box::new(Container::new(&target).expect("a container of our pod")))
        }
    };
    let inherited = std::io::stdin().as_fd().try_clone_to_owned().expect("a socket");
    let nothing = rustix::fs::open("/dev/null", OFlags::RDONLY, Mode::empty()).expect("/dev/null");
    rustix::stdio::dup2_stdin(nothing).expect("a new stdin");
    let (mut path, mut pid) = (None, None);
    loop {
        match text(next()).as_str() {
            "--" => break,
            "--socket" => path = Some(next().expect("a path").into()),
            _ => {
                let file = next().expect("a file");
                let child = Command::new("sleep")
                    .arg("1000")
                    .spawn()
                    .expect("a stand-in for the keeper");
                std::fs::write(file, format!("{}\n0\n", child.id())).expect("written");
                pid = Some(Pid::from_child(&child));
            }
        }
    }
    let command = std::iter::from_fn(next).collect();
    let environment = vec![("LOCKKEEPER_LOCK".into(), "/test".into())];
    guard::run(GuardOptions {
        target,
        keeper: match path {
            Some(path) => KeeperLink::Path(path),
            None => KeeperLink::Inherited {
                socket: inherited,
                pid,
            },
        },
        command,
        environment,
        loss_code: guard::EXIT_LOST,
        words: None,
    })
    .into()
}

fn held(by: ContainmentChoice) -> TargetKind {
    TargetKind::Subreaper(Hold::new(by).unwrap_or_else(|error| panic!("{error}")))
}

/// `FILE`: records in a thread, after the main thread has ended.
pub fn headless(arguments: &[OsString]) -> ExitCode {
    let arguments = arguments.to_vec();
    std::thread::spawn(move || record(&arguments));
    crate::sys::end_this_thread()
}

/// `CMD…`: executes it where the kernel has neither pidfds nor `close_range`, and forks into no control group.
pub fn old_kernel(arguments: &[OsString]) -> ExitCode {
    let newer = [
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_send_signal,
        libc::SYS_close_range,
        libc::SYS_clone3,
    ];
    crate::sys::forbid(&newer).expect("a filter");
    let error = Command::new(&arguments[0]).args(&arguments[1..]).exec();
    panic!("not executed: {error}")
}

/// Says what `pidfd_open` answers.
pub fn pidfd() -> ExitCode {
    match rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()) {
        Ok(_) => println!("a descriptor"),
        Err(error) => println!("{}", std::io::Error::from(error)),
    }
    ExitCode::SUCCESS
}

/// `FILE`: one thread writes a quarter of a GiB with each system call, which SIGSTOP does not cut short,
/// while the main thread waits. The size of the file shows how far it is.
pub fn write(arguments: &[OsString]) -> ExitCode {
    let file = std::fs::File::create(&arguments[0]).expect("a file");
    let writer = std::thread::spawn(move || {
        let block = vec![1; 8 << 20];
        let blocks = [std::io::IoSlice::new(&block); 32];
        loop {
            file.set_len(0).expect("made short");
            rustix::io::pwritev(&file, &blocks, 0).expect("written");
        }
    });
    writer.join().expect("it writes for ever");
    ExitCode::SUCCESS
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
