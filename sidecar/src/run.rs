//! `lockkeeper run`: two processes of this binary, and the application between them.
//!
//! The process that the user started becomes the guard; it is small, and its exit code is the
//! application's. The keeper is its child: the same binary with the same arguments, told by a
//! variable that it is the keeper. Its standard input is the socket to the guard.

mod reentrant;

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Pid;

use crate::args::{RunArgs, RunSettings};
use crate::exit::{Exit, Failure};
use crate::guard::{self, GuardOptions, KeeperSocket, TargetKind};
use crate::{keeper, log, socket};

/// Tells a process that it is the keeper, and on which path to serve.
const KEEPER: &str = "LOCKKEEPER_KEEPER_SOCKET";

/// Does what `lockkeeper run` was asked for and returns the exit code.
///
/// # Errors
/// What is wrong with the arguments, before anything is started.
pub fn run(args: RunArgs) -> Result<u8, Failure> {
    let log = args.log.clone();
    let settings = args.check()?;
    match std::env::var_os(KEEPER) {
        None => guard_and_keeper(&settings),
        Some(path) => {
            log::init(log.log_format, log.log)?;
            let guard = inherited_guard()?;
            block_on(keeper::run(settings, guard, Path::new(&path)))
        }
    }
}

fn guard_and_keeper(settings: &RunSettings) -> Result<u8, Failure> {
    if let Some(nested) = reentrant::check(settings)? {
        return Err(nested.exec(&settings.command));
    }
    guard::resolve_command(&settings.command[0])
        .map_err(|error| Failure::new(Exit::of_command(error.exit_code()), error))?;
    let path = settings.socket.clone().unwrap_or_else(socket::private_path);
    let (socket, keeper_pid) = start_keeper(&path)?;
    let code = guard::run(GuardOptions {
        target: TargetKind::Subreaper,
        keeper: KeeperSocket::Inherited(socket),
        command: settings.command.clone(),
        environment: environment(settings, &path),
        keeper_pid: Some(keeper_pid),
    });
    if settings.socket.is_none() {
        // The keeper does it, unless it was killed.
        let _ = std::fs::remove_file(&path);
        let _ = path.parent().map(std::fs::remove_dir);
    }
    Ok(code)
}

/// What the application finds in its environment, beside the token.
fn environment(settings: &RunSettings, socket: &Path) -> Vec<(OsString, OsString)> {
    let connect = settings.lock.connect.to_string();
    vec![
        ("LOCKKEEPER_CONNECT".into(), connect.clone().into()),
        (reentrant::HELD_CONNECT.into(), connect.into()),
        ("LOCKKEEPER_LOCK".into(), settings.lock.lock.clone().into()),
        ("LOCKKEEPER_SOCKET".into(), socket.into()),
    ]
}

/// Starts this binary once more, as the keeper that serves at `socket`.
pub(crate) fn start_keeper(socket: &Path) -> Result<(OwnedFd, Pid), Failure> {
    let cannot = |error| Failure::software(format!("cannot start the keeper: {error}"));
    let (ours, keepers) = UnixStream::pair().map_err(cannot)?;
    let child = Command::new("/proc/self/exe")
        .args(std::env::args_os().skip(1))
        .env(KEEPER, socket)
        .stdin(Stdio::from(OwnedFd::from(keepers)))
        // Whoever reads the application's output waits for its end, not for the keeper's.
        .stdout(Stdio::null())
        // The terminal's signals are for the application; the guard says what they mean for us.
        .process_group(0)
        .spawn()
        .map_err(cannot)?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    Ok((ours.into(), pid.expect("a process has a number")))
}

/// Whether [`start_keeper`] started this process.
pub(crate) fn is_keeper() -> bool {
    std::env::var_os(KEEPER).is_some()
}

/// In a process that [`start_keeper`] started: the socket to its guard.
pub(crate) fn inherited_guard() -> Result<UnixStream, Failure> {
    match std::io::stdin().as_fd().try_clone_to_owned() {
        Ok(socket) => Ok(UnixStream::from(socket)),
        Err(error) => Err(Failure::software(format!(
            "the keeper has no socket to its guard: {error}"
        ))),
    }
}

/// Runs a keeper to its end, on this thread.
pub(crate) fn block_on(keeper: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::software(format!("cannot start the keeper: {error}")))?
        .block_on(keeper)
}
