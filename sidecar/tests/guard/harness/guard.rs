//! A guard that a test has started, and the keeper that the test plays.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use lockkeeper_lock::{BootInstant, FencingToken};
use lockkeeper_sidecar::link::protocol::{FRAME_LEN, FromGuard, Grant, ToGuard};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use super::processes::recorder;
use super::{LONG, eventually, open_for_everybody, own_program, shell};

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
        let mut guard = Self::unconnected(prefix, kind, path, script);
        guard.keeper(listener.accept().expect("the guard").0);
        guard
    }

    /// The same without waiting for it.
    pub fn unconnected(prefix: &[&str], kind: &[&str], path: &Path, script: &str) -> Self {
        let path = path.to_str().expect("a plain path");
        let nothing = std::fs::File::open("/dev/null").expect("/dev/null");
        let kind = [kind, &["--socket", path]].concat();
        Self::spawn(&own_program(), prefix, &kind, &shell(script), nothing.into())
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
            Some(FromGuard::Hello(hello)) => hello.tree.map(|tree| tree.token),
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

    /// Reads frames until one fits: a guard that kills says so again and again.
    pub fn expect<T>(&mut self, what: &str, mut fits: impl FnMut(FromGuard) -> Option<T>) -> T {
        let end = BootInstant::now() + LONG;
        loop {
            assert!(BootInstant::now() < end, "not within {LONG:?}: {what}");
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
