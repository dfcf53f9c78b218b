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
use crate::guard::will::{RUNS, RunId, Will};
use crate::guard::{self, GuardOptions, Hold, KeeperSocket, TargetKind};
use crate::sidecar::hide;
use crate::sys::{self, CommandLine};
use crate::{keeper, log, socket};

/// Tells a process that it is the keeper, and on which path to serve.
const KEEPER: &str = "LOCKKEEPER_KEEPER_SOCKET";

/// Tells the keeper, which has a log, why its guard could make no control group.
const NO_GROUP: &str = "LOCKKEEPER_KEEPER_NO_GROUP";

/// What that one is called in a list of processes.
const KEEPER_TITLE: &str = "lockkeeper-keeper";

/// Does what `lockkeeper run` was asked for and returns the exit code.
///
/// # Errors
/// What is wrong with the arguments, before anything is started.
pub fn run(args: RunArgs) -> Result<u8, Failure> {
    hide()?;
    let log = args.log.clone();
    let settings = args.check()?;
    match std::env::var_os(KEEPER) {
        None => guard_and_keeper(&settings),
        Some(path) => {
            // What kills all that has a word of the user's command line must not end the keeper with the guard.
            if let Ok(line) = CommandLine::own() {
                line.replace(KEEPER_TITLE);
            }
            log::init(log.log_format, log.log)?;
            tell_what_is_weaker();
            let guard = inherited_guard()?;
            let will = Will::receive(&guard).map_err(|error| {
                Failure::software(format!(
                    "the keeper does not know what its guard leaves to it: {error}"
                ))
            })?;
            block_on(keeper::run(settings, guard, will, Path::new(&path)))
        }
    }
}

fn guard_and_keeper(settings: &RunSettings) -> Result<u8, Failure> {
    if let Some(nested) = reentrant::check(settings)? {
        return Err(nested.exec(&settings.command));
    }
    guard::resolve_command(&settings.command[0])
        .map_err(|error| Failure::new(Exit::of_command(error.exit_code()), error))?;
    let hold = Hold::new(settings.containment).map_err(Failure::usage)?;
    let path = settings.socket.clone().unwrap_or_else(socket::private_path);
    let run = RunId::draw();
    let (will, words) = Will::make(run, &hold).map_err(cannot_start)?;
    let (socket, keeper_pid) = start_keeper(&path, Some((&will, hold.why_no_group())))?;
    drop(will);
    let code = guard::run(GuardOptions {
        target: TargetKind::Subreaper(hold),
        keeper: KeeperSocket::Inherited(socket),
        command: settings.command.clone(),
        environment: environment(settings, &path, run),
        keeper_pid: Some(keeper_pid),
        words: Some(words),
    });
    if settings.socket.is_none() {
        // The keeper does it, unless it was killed.
        let _ = std::fs::remove_file(&path);
        let _ = path.parent().map(std::fs::remove_dir);
    }
    Ok(code)
}

/// What the application finds in its environment, beside the token.
fn environment(settings: &RunSettings, socket: &Path, run: RunId) -> Vec<(OsString, OsString)> {
    let connect = settings.lock.connect.to_string();
    vec![
        ("LOCKKEEPER_CONNECT".into(), connect.clone().into()),
        (reentrant::HELD_CONNECT.into(), connect.into()),
        ("LOCKKEEPER_LOCK".into(), settings.lock.lock.clone().into()),
        ("LOCKKEEPER_SOCKET".into(), socket.into()),
        (RUNS.into(), run.inside(std::env::var_os(RUNS))),
    ]
}

fn cannot_start(error: std::io::Error) -> Failure {
    Failure::software(format!("cannot start the keeper: {error}"))
}

/// In the keeper of a run: says what the kernel or the user's rights have made weaker.
fn tell_what_is_weaker() {
    if let Ok(why) = std::env::var(NO_GROUP) {
        tracing::warn!(
            why,
            "No control group for the command: it is stopped by a sweep over /proc, which can miss what forks faster than \
             that is read; root, a delegated subtree (systemd: Delegate=yes) or --containment pidns would hold it together"
        );
    }
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    // Our guard has the same limits.
    let is_locked = sys::lock_memory();
    sys::unlock_memory();
    if !is_locked {
        tracing::debug!(
            "The guard may be held up by a disk that hangs: not all of its memory can be locked (RLIMIT_MEMLOCK, \
             CAP_IPC_LOCK)"
        );
    }
}

/// Starts this binary once more, as the keeper that serves at `socket`. In `run` it leaves it this will, and says why there
/// is no control group.
pub(crate) fn start_keeper(
    socket: &Path,
    run: Option<(&Will, Option<&str>)>,
) -> Result<(OwnedFd, Pid), Failure> {
    let (ours, keepers) = UnixStream::pair().map_err(cannot_start)?;
    let mut keeper = Command::new("/proc/self/exe");
    keeper.env_remove(NO_GROUP);
    if let Some((will, why_no_group)) = run {
        will.send(&ours).map_err(cannot_start)?;
        keeper.envs(why_no_group.map(|why| (NO_GROUP, why)));
    }
    let child = keeper
        .args(std::env::args_os().skip(1))
        .env(KEEPER, socket)
        .stdin(Stdio::from(OwnedFd::from(keepers)))
        // Whoever reads the application's output waits for its end, not for the keeper's.
        .stdout(Stdio::null())
        // The terminal's signals are for the application; the guard says what they mean for us.
        .process_group(0)
        .spawn()
        .map_err(cannot_start)?;
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
        .map_err(cannot_start)?
        .block_on(keeper)
}
