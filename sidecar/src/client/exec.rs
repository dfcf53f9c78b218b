//! `lockkeeper probe --kind … -- CMD`: probes and hooks that are commands in the application's container.
//!
//! The keeper decides whether the application is to be asked. The keeper is in another container, so only this
//! process can execute the command.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockkeeper_daemon::exit::{Exit, Failure};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

use crate::client;
use crate::guard::post_start;
use crate::probes::Kind;
use crate::probes::health::{StartupOrder, Verdict};

/// Asks the keeper at `socket` and does what it says; returns the exit code where there is one. Without a
/// command, the keeper asks the application by itself, and only the startup check is executed here.
///
/// If the keeper does not answer, liveness and startup probes pass, because the guard takes care of an application
/// that runs; the readiness probe fails.
///
/// # Errors
/// When the probe fails, or its command cannot be executed or is missing.
pub fn probe(kind: Kind, socket: &Path, guard_socket: &Path, command: &[OsString]) -> Result<u8, Failure> {
    if command.is_empty() && !matches!(kind, Kind::Liveness | Kind::Readiness) {
        return Err(missing(kind, "write it after --"));
    }
    if kind == Kind::PostStart {
        // The guard executes it after each start from now on. A guard that has already started the application did
        // not know of it: the question to the keeper below covers that.
        post_start::keep(guard_socket, command)?;
    }
    let mut order = match client::probe(socket, kind) {
        Ok(order) => order,
        Err(failure) if kind == Kind::Readiness => return Err(failure),
        Err(failure) => {
            lockkeeper_daemon::exit::tell(&format!("{failure}; nothing is known of the application"));
            return Ok(0);
        }
    };
    if let Some(startup) = &order.startup {
        let is_alive = matches!(kind, Kind::Liveness | Kind::Startup);
        match (starts(startup, socket)?, startup.is_over) {
            // The application's own liveness is asked only in the next round.
            (true, _) | (false, false) if is_alive => return Ok(0),
            (true, _) => order = client::probe(socket, kind)?,
            (false, true) => {
                let problem = "the application has not started within its budget";
                return Err(Failure::unavailable(problem));
            }
            (false, false) => return Err(Failure::unavailable("the application is being started")),
        }
    }
    match order.verdict {
        Verdict::Pass => Ok(0),
        Verdict::Fail => Err(Failure::unavailable(order.reason)),
        Verdict::Run if command.is_empty() => Err(missing(
            kind,
            "write it after --, or describe the probe in the keeper's --app-probes",
        )),
        Verdict::Run => Err(execute(command)),
    }
}

fn missing(kind: Kind, remedy: &str) -> Failure {
    Failure::usage(format!("there is no command for {}: {remedy}", kind.name()))
}

/// Executes the startup check, and tells the keeper when it passes.
fn starts(startup: &StartupOrder, socket: &Path) -> Result<bool, Failure> {
    let Some((program, arguments)) = startup.command.split_first() else {
        return Ok(true);
    };
    let failed = |error: io::Error| cannot(program.as_ref(), &error);
    let mut check = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let timeout = Duration::from_secs(startup.timeout_seconds);
    if !ends_within(&check, timeout).map_err(failed)? {
        check.kill().map_err(failed)?;
    }
    let is_success = check.wait().map_err(failed)?.success();
    if is_success {
        client::tell_started(socket, startup.start)?;
    }
    Ok(is_success)
}

/// If the command took longer, the kubelet would kill this process and count a failure of its probe.
fn ends_within(child: &Child, timeout: Duration) -> io::Result<bool> {
    let pidfd = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    let mut ended = [PollFd::new(&pidfd, PollFlags::IN)];
    Ok(rustix::event::poll(&mut ended, Some(&timeout))? > 0)
}

/// Becomes the command; returns only if that fails.
fn execute(command: &[OsString]) -> Failure {
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    cannot(&command[0], &error)
}

fn cannot(program: &std::ffi::OsStr, error: &io::Error) -> Failure {
    Failure::new(Exit::of_exec(error), format!("cannot run {program:?}: {error}"))
}
