//! Runs tests, starts guards, and plays the keeper.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use lockkeeper_lock::{BootInstant, FencingToken};
use lockkeeper_sidecar::guard::protocol::{FRAME_LEN, FromGuard, Grant, ToGuard};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::Test;

/// The tokens of two turns.
pub const A: FencingToken = FencingToken(4_294_967_331);
pub const B: FencingToken = FencingToken(4_294_967_400);

/// Longer than anything here takes on a loaded machine.
pub const LONG: Duration = Duration::from_secs(20);

/// The fixed part of the margin behind the deadline.
pub const MARGIN: Duration = lockkeeper_lock::KILL_ALLOWANCE;

/// The test program's main: `[--list] [part of a name]`.
pub fn main(groups: &[&[Test]]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let chosen = groups
        .iter()
        .copied()
        .flatten()
        .filter(|(name, _)| filter.is_none_or(|part| name.contains(part)));
    if arguments.iter().any(|argument| argument == "--list") {
        chosen.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in chosen {
        println!("test {name} ...");
        if std::panic::catch_unwind(test).is_ok() {
            passed += 1;
            println!("test {name} ... ok");
        } else {
            failed += 1;
            println!("test {name} ... FAILED");
        }
    }
    println!("test result: {passed} passed; {failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Lets every user into a directory.
pub fn open_for_everybody(dir: &Path) {
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).expect("permissions");
}

/// Prints why a test cannot be made here.
pub fn skip(reason: &str) {
    println!("  skipped: {reason}");
}

/// Whether this program was started with SIGHUP, SIGINT or SIGQUIT ignored, as `nohup` and shells in
/// the background do. Everything below would ignore them, too, and rightly so: not what is tested here.
pub fn ignores_signals() -> bool {
    // Bits of `SigIgn` in proc(5): signal 1 is the lowest.
    const PLAIN: u64 = 0b111;
    let status = std::fs::read_to_string("/proc/self/status").expect("proc(5)");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.expect("a mask") & PLAIN != 0
}

/// Starts over with these signals as they are by default.
pub fn main_with_plain_signals(arguments: &[OsString]) -> ExitCode {
    let error = Command::new("env")
        .arg("--default-signal=HUP,INT,QUIT")
        .arg(own_program())
        .args(arguments)
        .exec();
    panic!("env(1) of coreutils: {error}")
}

/// Whether the tests run as root; says so if they do not.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("needs root");
    }
    root
}

/// Waits until something is so.
pub fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = BootInstant::now() + LONG;
    while BootInstant::now() < end {
        if let Some(found) = probe() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("never happened: {what}")
}

/// Waits until something is so.
pub fn until(what: &str, mut probe: impl FnMut() -> bool) {
    eventually(what, || probe().then_some(()));
}

/// This program in another role.
pub fn own_program() -> OsString {
    std::env::current_exe().expect("own path").into_os_string()
}

/// A shell command in which `record FILE` runs the recorder.
pub fn shell(script: &str) -> Vec<OsString> {
    let program = own_program();
    let function = format!(
        "record() {{ {:?} role:record \"$@\"; }}\nrecorder={:?}\n",
        program, program
    );
    vec!["sh".into(), "-c".into(), (function + script).into()]
}

/// A guard under test, with the test as its keeper.
pub struct Guard {
    pub child: Child,
    socket: Option<UnixStream>,
    /// Of the last grant.
    generation: u32,
    pub dir: TempDir,
}

impl Guard {
    /// A guard with the `role:guard` arguments `kind`, for a shell script in a directory of its own.
    pub fn run(kind: &[&str], script: &str) -> Self {
        Self::start(&[], kind, &shell(script))
    }

    /// The same for any command, started through `prefix` (`unshare …`).
    pub fn start(prefix: &[&str], kind: &[&str], command: &[OsString]) -> Self {
        Self::start_program(&own_program(), prefix, kind, command)
    }

    /// The same from another copy of this program.
    pub fn start_program(program: &OsStr, prefix: &[&str], kind: &[&str], command: &[OsString]) -> Self {
        let (ours, guards) = UnixStream::pair().expect("a socket pair");
        let mut guard = Self::spawn(program, prefix, kind, command, guards.into());
        guard.keeper(ours);
        guard
    }

    /// A guard, started through `prefix`, that connects to the listener at `path`.
    pub fn connecting(
        prefix: &[&str],
        kind: &[&str],
        path: &Path,
        listener: &UnixListener,
        script: &str,
    ) -> Self {
        let path = path.to_str().expect("a plain path");
        let nothing = std::fs::File::open("/dev/null").expect("/dev/null");
        let kind = [kind, &["--socket", path]].concat();
        let mut guard = Self::spawn(&own_program(), prefix, &kind, &shell(script), nothing.into());
        guard.keeper(listener.accept().expect("the guard").0);
        guard
    }

    /// A guard without a command, in this directory, started through `prefix`.
    pub fn start_in(dir: TempDir, prefix: &[&str], kind: &[&str]) -> Self {
        let (ours, guards) = UnixStream::pair().expect("a socket pair");
        let mut guard = Self::spawn_in(dir, &own_program(), prefix, kind, &[], guards.into());
        guard.keeper(ours);
        guard
    }

    fn spawn(program: &OsStr, prefix: &[&str], kind: &[&str], command: &[OsString], stdin: OwnedFd) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        open_for_everybody(dir.path());
        Self::spawn_in(dir, program, prefix, kind, command, stdin)
    }

    fn spawn_in(
        dir: TempDir,
        program: &OsStr,
        prefix: &[&str],
        kind: &[&str],
        command: &[OsString],
        stdin: OwnedFd,
    ) -> Self {
        let mut words: Vec<OsString> = prefix.iter().map(OsString::from).collect();
        words.extend([program.to_owned(), "role:guard".into()]);
        words.extend(kind.iter().map(OsString::from));
        words.push("--".into());
        words.extend_from_slice(command);
        let mut child = Command::new(&words[0]);
        let child = child
            .args(&words[1..])
            .current_dir(dir.path())
            .stdin(stdin)
            .spawn()
            .expect("a guard");
        Self {
            child,
            socket: None,
            generation: 0,
            dir,
        }
    }

    /// Plays the keeper over this socket from now on. Gives the token of which the guard speaks.
    pub fn keeper(&mut self, socket: UnixStream) -> Option<FencingToken> {
        socket.set_read_timeout(Some(LONG)).expect("a timeout");
        self.socket = Some(socket);
        match self.recv() {
            Some(FromGuard::Hello(hello)) => hello.token,
            other => panic!("{other:?} in place of Hello"),
        }
    }

    /// Hangs up, as a keeper does that has crashed.
    pub fn hang_up(&mut self) {
        self.socket = None;
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn send(&mut self, frame: ToGuard) {
        self.send_bytes(&frame.encode());
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.socket
            .as_mut()
            .expect("a keeper")
            .write_all(bytes)
            .expect("sent");
    }

    /// Grants `token` for this long: until SIGTERM and until SIGKILL. Gives the deadline.
    pub fn grant(
        &mut self,
        token: FencingToken,
        start: bool,
        pause: bool,
        term: u64,
        kill: u64,
    ) -> BootInstant {
        let now = BootInstant::now();
        let [term_at, kill_at] = [term, kill].map(|millis| now + Duration::from_millis(millis));
        self.generation += 1;
        self.send(ToGuard::Grant(Grant {
            generation: self.generation,
            token,
            start,
            pause,
            term_at,
            kill_at,
        }));
        kill_at
    }

    /// The same, waiting until the application runs.
    pub fn begin(&mut self, token: FencingToken, term: u64, kill: u64) -> BootInstant {
        let kill_at = self.grant(token, true, false, term, kill);
        self.expect_started(token);
        kill_at
    }

    /// Moves the deadlines of what runs to this long from now, and gives the last one. A test calls it once the
    /// application does what the test needs: a slow machine is then not stopped before it does.
    pub fn shorten(&mut self, token: FencingToken, pause: bool, term: u64, kill: u64) -> BootInstant {
        self.grant(token, false, pause, term, kill)
    }

    /// Waits for what becomes of a tree that is to be paused: whether it is.
    pub fn is_paused(&mut self) -> bool {
        loop {
            match self.recv() {
                Some(FromGuard::Paused { .. }) => return true,
                // A guard that is PID 1 may end with its tree.
                Some(FromGuard::Gone { .. }) | None => return false,
                Some(_) => {}
            }
        }
    }

    pub fn expect_started(&mut self, token: FencingToken) -> u32 {
        self.expect("Started", |frame| match frame {
            FromGuard::Started { token: of, pid } if of == token => Some(pid),
            _ => None,
        })
    }

    pub fn expect_gone(&mut self, token: FencingToken) {
        self.expect("Gone", |frame| {
            matches!(frame, FromGuard::Gone { token: of, .. } if of == token).then_some(())
        });
    }

    pub fn expect_exited(&mut self, token: FencingToken) -> u8 {
        self.expect("Exited", |frame| match frame {
            FromGuard::Exited { token: of, code } if of == token => Some(code),
            _ => None,
        })
    }

    /// Reads frames until one fits.
    pub fn expect<T>(&mut self, what: &str, mut fits: impl FnMut(FromGuard) -> Option<T>) -> T {
        loop {
            let frame = self
                .recv()
                .unwrap_or_else(|| panic!("the connection ended before {what}"));
            if let Some(found) = fits(frame) {
                return found;
            }
        }
    }

    /// The next frame; `None` when the guard has hung up.
    pub fn recv(&mut self) -> Option<FromGuard> {
        let mut bytes = [0; FRAME_LEN];
        let socket = self.socket.as_mut().expect("a keeper");
        match socket.read_exact(&mut bytes) {
            Ok(()) => Some(FromGuard::decode(&bytes).expect("a frame of the guard")),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => None,
            Err(error) => panic!("nothing from the guard: {error}"),
        }
    }

    /// All frames that have come.
    pub fn recv_all(&mut self) -> Vec<FromGuard> {
        let mut bytes = Vec::new();
        let socket = self.socket.as_mut().expect("a keeper");
        socket.set_nonblocking(true).expect("set");
        // It ends with the connection, or with what has come.
        let _ = socket.read_to_end(&mut bytes);
        let frames = bytes.chunks_exact(FRAME_LEN);
        frames
            .map(|bytes| FromGuard::decode(bytes.try_into().expect("as long")).expect("a frame of the guard"))
            .collect()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("signalled");
    }

    pub fn wait(&mut self) -> ExitStatus {
        eventually("the guard's exit", || self.child.try_wait().expect("waited"))
    }

    pub fn exit_code(&mut self) -> Option<i32> {
        self.wait().code()
    }

    /// Process ids that recorders wrote into the files `name*`, once there are `count` of them.
    pub fn recorders(&self, name: &str, count: usize) -> Vec<Pid> {
        eventually(&format!("{count} recorders"), || {
            let files = std::fs::read_dir(self.dir.path()).expect("a directory").flatten();
            let files = files.filter(|file| file.file_name().to_string_lossy().starts_with(name));
            let pids: Vec<_> = files.filter_map(|file| recorder(&file.path())).collect();
            (pids.len() >= count).then_some(pids)
        })
    }
}

/// Whatever a failed test left behind.
impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn recorder(file: &Path) -> Option<Pid> {
    let content = std::fs::read_to_string(file).ok()?;
    // A first stamp shows that it is running and has set itself up.
    let mut lines = content.lines();
    let pid = lines.next()?.parse().ok()?;
    lines.next()?;
    Pid::from_raw(pid)
}

/// When the recorder of a file last ran.
pub fn last_stamp(file: &Path) -> BootInstant {
    let content = std::fs::read_to_string(file).expect("a record");
    let complete = content.rsplit_once('\n').expect("a line").0;
    let stamp = complete.lines().skip(1).last().expect("a stamp");
    BootInstant::from_nanos(stamp.parse().expect("a number"))
}

/// The letter of `/proc/PID/stat`; `None` when there is no such process.
pub fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether a process can still do anything. Who is orphaned by a test may have to wait for the
/// machine's init to be reaped; who is ending may have to wait for a processor to become a zombie.
pub fn is_alive(pid: Pid) -> bool {
    let has_memory = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Field 23 of proc_pid_stat(5); the third comes after the name. The kernel takes a process's memory, and with
        // it all that it could execute, and then its files, long before it calls it a zombie.
        Some(stat.rsplit_once(") ")?.1.split(' ').nth(23 - 3)? != "0")
    };
    state(pid).is_some_and(|state| state != 'Z') && has_memory().unwrap_or(false)
}

/// Asserts that what wrote `file` ended by the end of the margin, and prints how far from it.
pub fn assert_in_time(file: &Path, kill_at: BootInstant) {
    let last = last_stamp(file);
    let (after, before) = (last - kill_at, kill_at - last);
    println!("  last ran {after:?} after / {before:?} before the deadline");
    assert!(last < kill_at + MARGIN, "ran {after:?} beyond its deadline");
}

/// Plays rounds until the tree of one is paused. A machine with too much to do may not stop a tree within half of
/// the margin: then it is killed, and there is nothing to look at.
pub fn until_paused<T>(round: impl FnMut() -> Option<T>) -> T {
    std::iter::repeat_with(round)
        .take(5)
        .flatten()
        .next()
        .expect("it is paused in one of five rounds")
}

/// The children of a process.
pub fn children(of: Pid) -> Vec<Pid> {
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = all.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| parent(*pid) == Some(of)).collect()
}

fn parent(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    Pid::from_raw(fields.split(' ').nth(1)?.parse().ok()?)
}

/// Whether a program is there; says so if it is not.
pub fn has(program: &str) -> bool {
    let found = lockkeeper_sidecar::guard::resolve_command(OsStr::new(program)).is_ok();
    if !found {
        skip(&format!("needs {program}"));
    }
    found
}
