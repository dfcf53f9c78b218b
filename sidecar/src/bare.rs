//! The guard in a process image of its own.
//!
//! Whatever a process has touched of its binary stays resident: reading the command line alone costs
//! the guard more than all that it does later, for as long as the application runs. So once
//! everything is checked, the process becomes this binary anew, with the same process id, and comes
//! here before anything else is looked at. What the application is to find in its environment is
//! the environment of the new image.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::FdFlags;
use rustix::process::Pid;

use crate::exit::{Exit, Failure};
use crate::guard::{self, GuardOptions, KeeperSocket, TargetKind};
use crate::sys;

/// First argument of such an image. No subcommand of users can have this name.
const BARE: &str = "+guard";

/// How the keeper and its guard of the same process tree know each other.
#[derive(Debug)]
pub(crate) struct Inherited {
    /// The guard's end of the socket.
    pub(crate) socket: OwnedFd,
    /// The keeper.
    pub(crate) keeper: Pid,
}

/// Becomes the guard of `lockkeeper run`. Returns only when that fails. `private` is the keeper's
/// socket if it is in a directory of its own, which ends with the guard.
pub(crate) fn of_run(
    inherited: &Inherited,
    private: Option<&Path>,
    command: &[OsString],
    environment: Vec<(OsString, OsString)>,
) -> Failure {
    let private = private.map_or_else(OsString::new, OsString::from);
    let arguments = [OsString::from("run"), private].into_iter();
    match inherited.pass_on() {
        Ok(passed) => become_guard(
            arguments.chain(passed).chain(command.iter().cloned()),
            environment,
        ),
        Err(failure) => failure,
    }
}

/// Becomes the guard beside a container. Returns only when that fails.
pub(crate) fn of_container(inherited: &Inherited, container: &str, termination_log: &str) -> Failure {
    let arguments = ["container", container, termination_log].map(OsString::from);
    match inherited.pass_on() {
        Ok(passed) => become_guard(arguments.into_iter().chain(passed), Vec::new()),
        Err(failure) => failure,
    }
}

/// Becomes `lockkeeper guard`, which connects to its keeper. Returns only when that fails.
pub(crate) fn of_wrap(
    keeper: &Path,
    command: &[OsString],
    environment: Vec<(OsString, OsString)>,
) -> Failure {
    let arguments = [OsString::from("wrap"), keeper.into()].into_iter();
    become_guard(arguments.chain(command.iter().cloned()), environment)
}

/// To be called first: does the guard's work if this image was made for it, and returns the exit
/// code.
pub fn run_if_asked() -> Option<u8> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != BARE {
        return None;
    }
    let code = run(arguments);
    if code.is_none() {
        eprintln!("lockkeeper: {BARE} is not for users: say `lockkeeper run` or `lockkeeper guard`");
    }
    Some(code.unwrap_or(Exit::Usage.code()))
}

fn run(mut arguments: impl Iterator<Item = OsString>) -> Option<u8> {
    let kind = arguments.next()?;
    match kind.to_str()? {
        "run" => {
            let private = PathBuf::from(arguments.next()?);
            let inherited = Inherited::taken_over(&mut arguments)?;
            let code = guard::run(inherited.options(TargetKind::Subreaper, arguments.collect()));
            if !private.as_os_str().is_empty() {
                // The keeper does it, unless it was killed.
                let _ = std::fs::remove_file(&private);
                let _ = private.parent().map(std::fs::remove_dir);
            }
            Some(code)
        }
        "container" => {
            let target = TargetKind::Container {
                name: arguments.next()?.into_string().ok()?,
                termination_log: arguments.next()?.into_string().ok()?,
            };
            let inherited = Inherited::taken_over(&mut arguments)?;
            let code = guard::run(inherited.options(target, Vec::new()));
            // Without a keeper there is no lock, whatever else was the reason: gate the pod anew.
            let is_lost = [guard::EXIT_LOST, guard::EXIT_SOFTWARE].contains(&code);
            Some(if is_lost { Exit::GateAnew.code() } else { code })
        }
        "wrap" => {
            let keeper = KeeperSocket::Path(arguments.next()?.into());
            let is_first = rustix::process::getpid() == Pid::INIT;
            Some(guard::run(GuardOptions {
                target: if is_first {
                    TargetKind::Pid1
                } else {
                    TargetKind::Subreaper
                },
                keeper,
                command: arguments.collect(),
                environment: Vec::new(),
                keeper_pid: None,
            }))
        }
        _ => None,
    }
}

fn become_guard(
    arguments: impl Iterator<Item = OsString>,
    environment: Vec<(OsString, OsString)>,
) -> Failure {
    let name = std::env::args_os().next();
    let error = Command::new("/proc/self/exe")
        .arg0(name.as_deref().unwrap_or(OsStr::new("lockkeeper")))
        .arg(BARE)
        .args(arguments)
        .envs(environment)
        .exec();
    Failure::software(format!(
        "cannot become the guard: {error} (is /proc mounted?); the lock was not asked for"
    ))
}

impl Inherited {
    /// The arguments by which [`Inherited::taken_over`] finds it in the new image.
    fn pass_on(&self) -> Result<[OsString; 2], Failure> {
        rustix::io::fcntl_setfd(&self.socket, FdFlags::empty())
            .map_err(|error| Failure::software(format!("cannot pass the keeper's socket on: {error}")))?;
        let numbers = [self.socket.as_raw_fd(), self.keeper.as_raw_nonzero().get()];
        Ok(numbers.map(|number| number.to_string().into()))
    }

    fn taken_over(arguments: &mut impl Iterator<Item = OsString>) -> Option<Self> {
        let mut number = || arguments.next()?.to_str()?.parse::<i32>().ok();
        Some(Self {
            socket: sys::inherited(number()?).ok()?,
            keeper: Pid::from_raw(number()?)?,
        })
    }

    fn options(self, target: TargetKind, command: Vec<OsString>) -> GuardOptions {
        GuardOptions {
            target,
            // Close-on-exec again: the guard sees to it.
            keeper: KeeperSocket::Inherited(self.socket),
            command,
            environment: Vec::new(),
            keeper_pid: Some(self.keeper),
        }
    }
}
