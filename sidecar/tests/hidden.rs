//! What another process of the same user sees of keeper and guard of a sidecar, as an application does in a pod that
//! shares its process namespace.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use eventually::{eventually, until};

#[path = "support/eventually.rs"]
mod eventually;

/// A command of a user that is not root: root sees everything.
fn plain(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(program);
    command
}

fn succeeds(words: &[&str]) -> bool {
    let mut command = plain(Path::new(words[0]));
    command
        .args(&words[1..])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().unwrap().success()
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first process of a namespace, and all others there with it. (A process that becomes another user does not end
/// with its parent.)
struct Namespace(u32);

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Some(first) = rustix::process::Pid::from_raw(self.0.cast_signed()) {
            let _ = rustix::process::kill_process(first, rustix::process::Signal::KILL);
        }
    }
}

#[test]
fn the_identity_of_a_sidecar_is_hidden_from_other_processes_of_its_user() {
    if !rustix::process::geteuid().is_root() {
        return lockkeeper_skip::skip("the mount of a container needs root");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let open = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    open(directory.path(), 0o777);
    let program = path("lockkeeper");
    std::fs::copy(env!("CARGO_BIN_EXE_lockkeeper"), &program).unwrap();
    open(&program, 0o755);
    // As a kubelet mounts it into each container, so that the sidecar knows its own.
    let last_words = path("pods/uid/containers/lockkeeper");
    std::fs::create_dir_all(&last_words).unwrap();
    let files = [last_words.join("0123"), path("termination-log")];
    files.iter().for_each(|file| std::fs::write(file, "").unwrap());
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-c",
        "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"",
        "sh",
    ]);
    command.args(files);
    let sidecar = plain(&program);
    command.arg(sidecar.get_program()).args(sidecar.get_args());
    command.args([
        "sidecar",
        "--container",
        "app",
        "--connect",
        "127.0.0.1:1",
        "--lock",
        "/l",
    ]);
    command.args(["--admin-listen", "127.0.0.1:0"]);
    command.arg("--socket").arg(path("lock.sock"));
    command.arg("--lease-file").arg(path("lease.env"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let sidecar = Running(command.spawn().unwrap());
    let guard = sidecar.0.id();
    // It listens, so that it is past what it does first.
    until("the keeper's socket", || path("lock.sock").exists());
    let keeper = eventually("the keeper", || child_of(guard));
    assert_hidden(&[("the keeper", keeper), ("the guard", guard)]);
}

#[test]
fn an_application_cannot_look_into_its_guard_nor_stop_it_as_a_debugger_does() {
    if !rustix::process::geteuid().is_root() {
        return lockkeeper_skip::skip("another user takes root");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let open = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    open(directory.path(), 0o777);
    let program = path("lockkeeper");
    std::fs::copy(env!("CARGO_BIN_EXE_lockkeeper"), &program).unwrap();
    open(&program, 0o755);
    let start = |command: &mut Command| {
        let quiet = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Running(quiet.spawn().unwrap())
    };

    // As the first process of a container.
    let guard = plain(&program);
    let mut first = Command::new("unshare");
    first.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    first.arg(guard.get_program()).args(guard.get_args());
    first.arg("guard").arg("--guard-socket").arg(path("guard.sock"));
    let first = start(first.args(["--", "sleep", "60"]));
    let guard = eventually("the guard", || {
        let pid = child_of(first.0.id())?;
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name == "lockkeeper\n").then_some(pid)
    });
    let _guard = Namespace(guard);

    // And in `run`, with its keeper.
    let socket = path("lock.sock");
    let mut run = plain(&program);
    run.args(["run", "--connect", "127.0.0.1:1", "--lock", "/l", "--socket"]);
    let run = start(run.arg(&socket).args(["--", "sleep", "60"]));
    until("the keeper's socket", || socket.exists());
    let keeper = eventually("the keeper", || child_of(run.0.id()));
    assert_hidden(&[
        ("the first process", guard),
        ("the guard of run", run.0.id()),
        ("the keeper of run", keeper),
    ]);
}

/// The only child of a process.
fn child_of(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.trim().parse().ok()
}

/// Processes of the same user see nothing of these.
fn assert_hidden(processes: &[(&str, u32)]) {
    // So that a failure means what it says: any other process of that user is an open book.
    let mut sleep = plain(Path::new("sleep"));
    let other = Running(sleep.arg("60").stdin(Stdio::null()).spawn().unwrap());
    let readable = |pid: u32| {
        let environment = succeeds(&["cat", &format!("/proc/{pid}/environ")]);
        let files = succeeds(&["ls", &format!("/proc/{pid}/fd/")]);
        let root = succeeds(&["ls", &format!("/proc/{pid}/root/")]);
        [environment, files, root]
    };
    until("another process", || readable(other.0.id()) == [true; 3]);
    for (name, pid) in processes {
        // What it does first takes a moment. It is not done for any other process.
        until(name, || readable(*pid) == [false; 3]);
    }
}
