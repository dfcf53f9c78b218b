//! `lockkeeper run`: two processes of this binary, and the application between them.
//!
//! The process that the user started becomes the guard; it is small, and its exit code is the
//! application's. The keeper is its child: the same binary with the same arguments, told by a
//! variable that it is the keeper. Its standard input is the socket to the guard.

mod reentrant;

use std::ffi::OsString;
use std::path::Path;

use lockkeeper_daemon::exit::{self, Exit, Failure};
use lockkeeper_daemon::log;

use crate::args::{RunArgs, RunSettings};
use crate::guard::handed_to_keeper::{RUNS, RunId, Will};
use crate::guard::{self, GuardOptions, Hold, KeeperLink, KeeperProgram, TargetKind};
use crate::process::{self, block_on, cannot_start, hide, inherited_guard};
use crate::sys::{self, CommandLine};
use crate::{keeper, socket};

/// What the keeper is called in a list of processes.
const KEEPER_TITLE: &str = "lockkeeper-keeper";

/// Does what `lockkeeper run` was asked for and returns the exit code.
///
/// # Errors
/// What is wrong with the arguments, before anything is started.
pub fn run(args: RunArgs) -> Result<u8, Failure> {
    hide()?;
    let log = args.log.clone();
    let settings = args.check()?;
    match process::keeper_socket() {
        None => guard_and_keeper(&settings),
        Some(path) => {
            // A `pkill -f` with a word of the user's command line must not end the keeper together with the guard.
            if let Ok(line) = CommandLine::own() {
                line.replace(KEEPER_TITLE);
            }
            let _log = log::init(log.log_format, log.log)?;
            tell_what_is_weaker();
            let guard = inherited_guard()?;
            let will = Will::receive(&guard).map_err(|error| {
                Failure::software(format!(
                    "the keeper cannot read what its guard has passed to it: {error}"
                ))
            })?;
            block_on(keeper::run(settings, guard, will, Path::new(&path)))
        }
    }
}

fn guard_and_keeper(settings: &RunSettings) -> Result<u8, Failure> {
    match reentrant::check(settings) {
        Ok(None) => {}
        Ok(Some(nested)) => return Err(nested.exec(&settings.command)),
        Err(failure) if failure.exit == Exit::LockLost => {
            exit::tell(&failure.sentence);
            return Ok(settings.loss_code);
        }
        Err(failure) => return Err(failure),
    }
    guard::resolve_command(&settings.command[0]).map_err(|error| Failure::new(error.exit(), error))?;
    let hold = Hold::new(settings.containment).map_err(Failure::usage)?;
    let path = settings.socket.clone().unwrap_or_else(socket::private_path);
    let run = RunId::draw();
    let (will, words) = Will::make(run, &hold).map_err(cannot_start)?;
    let keeper = KeeperProgram::new(&path, Some((will, hold.why_no_group())))?;
    let code = guard::run(GuardOptions {
        target: TargetKind::Subreaper(hold),
        keeper: KeeperLink::Child(keeper),
        command: settings.command.clone(),
        environment: environment(settings, &path, run),
        loss_code: settings.loss_code,
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

/// In the keeper of a run: warns of guarantees that are weaker because of the kernel or the user's rights.
fn tell_what_is_weaker() {
    if let Some(why) = process::why_no_group() {
        tracing::warn!(
            why,
            "No control group for the command. It is stopped by a sweep of /proc, which can miss processes that fork \
             faster than /proc is read. To avoid this, run as root, delegate a subtree (systemd: Delegate=yes), or use \
             --containment pidns"
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
