//! `lockkeeper probe --kind … -- CMD`: probes and hooks that are commands in the application's container.
//!
//! The keeper says whether the application is there to be asked. It lives in another container, so
//! that only this process can execute the command.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Kind;
use super::health::{StartupOrder, Verdict};
use crate::client;
use crate::exit::{Exit, Failure};
use crate::guard::{self, post_start};

/// Asks the keeper at `socket` and does what it says; returns the exit code where there is one.
///
/// A keeper that does not answer knows of no application, and the guard sees to one that runs. So that
/// restarts nothing; and is not ready.
///
/// # Errors
/// When the probe fails, or its command cannot be executed.
pub fn probe(kind: Kind, socket: &Path, guard_socket: &Path, command: &[OsString]) -> Result<u8, Failure> {
    if kind == Kind::PostStart {
        // The guard executes it after each start from now on. One that has started the application
        // already did not know of it, which is what is asked below.
        post_start::keep(guard_socket, command)?;
    }
    let order = match client::probe(socket, kind) {
        Ok(order) => order,
        Err(failure) if kind == Kind::Readiness => return Err(failure),
        Err(failure) => {
            crate::exit::tell(&format!("{failure}; nothing is known of the application"));
            return Ok(0);
        }
    };
    if let Some(startup) = &order.startup
        && !starts(startup, socket)?
    {
        return match (kind, startup.is_over) {
            (Kind::Liveness | Kind::Startup, false) => Ok(0),
            (_, true) => Err(Failure::unavailable(
                "the application has not started within its budget",
            )),
            (_, false) => Err(Failure::unavailable("the application is being started")),
        };
    }
    let has_just_started = order.startup.is_some();
    match (order.verdict, kind) {
        (Verdict::Pass, _) => Ok(0),
        (Verdict::Fail, _) => Err(Failure::unavailable(order.reason)),
        // A kubelet asks for life only in the next round.
        (Verdict::Run, Kind::Liveness | Kind::Startup) if has_just_started => Ok(0),
        (Verdict::Run, _) => Err(execute(command)),
    }
}

/// Executes the startup check, and tells the keeper when it passes.
fn starts(startup: &StartupOrder, socket: &Path) -> Result<bool, Failure> {
    let Some((program, arguments)) = startup.command.split_first() else {
        return Ok(true);
    };
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .status()
        .map_err(|error| cannot(program.as_ref(), &error))?;
    if status.success() {
        client::tell_started(socket, startup.start)?;
    }
    Ok(status.success())
}

/// Becomes the command; returns only if that fails.
fn execute(command: &[OsString]) -> Failure {
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    cannot(&command[0], &error)
}

fn cannot(program: &std::ffi::OsStr, error: &std::io::Error) -> Failure {
    let errno = error.raw_os_error().unwrap_or_default().unsigned_abs();
    Failure::new(
        Exit::of_command(guard::exit_code_of_errno(errno)),
        format!("cannot run {program:?}: {error}"),
    )
}
