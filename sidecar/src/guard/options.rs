//! What the command line tells the guard.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::process::Pid;

use super::anchor::word::Speaker;
use super::command::resolve_command;
use super::container::Container;
use super::containment::Hold;
use super::keeper_program::KeeperProgram;
use crate::sys::Program;

#[derive(Debug)]
pub struct GuardOptions {
    pub target: TargetKind,
    pub keeper: KeeperLink,
    /// Program and arguments of the application; empty beside a container.
    pub command: Vec<OsString>,
    /// Variables that the application gets beside those of the guard itself: `LOCKKEEPER_LOCK` and `LOCKKEEPER_SOCKET`.
    /// Each grant adds `LOCKKEEPER_FENCING_TOKEN`.
    pub environment: Vec<(OsString, OsString)>,
    /// The exit code after a loss.
    pub loss_code: u8,
    /// The pipe through which the guard and its anchors tell the keeper of `run` what is left of the application. The
    /// keeper relies on it when the guard has been killed.
    pub words: Option<Speaker>,
}

/// What a guard guards.
#[derive(Debug)]
pub enum TargetKind {
    /// The PID namespace in which the guard is PID 1 (`wrap`).
    Pid1,
    /// The guard's descendants, and what holds them together (`run`).
    Subreaper(Hold),
    /// Another container of the guard's pod (`signal`).
    Container(Box<Container>),
}

/// How a guard talks to its keeper.
#[derive(Debug)]
pub enum KeeperLink {
    /// The keeper is a child of the guard, which starts another keeper when one ends. If no keeper is left, the guard
    /// ends too, at the deadline if an application is running. The keeper is no part of what the guard stops.
    Child(KeeperProgram),
    /// The keeper runs already, at the other end of this socket. The guard starts no other one when it ends.
    Inherited {
        /// Our end.
        socket: OwnedFd,
        /// The keeper's process, if it descends from the guard: sweeps spare it.
        pid: Option<Pid>,
    },
    /// The keeper serves a socket at this path. The guard connects again whenever the connection is lost.
    Path(PathBuf),
}

/// The variable with the fencing token. Only the guard sets it: the application does not inherit a value of it.
const TOKEN: &str = "LOCKKEEPER_FENCING_TOKEN";

impl GuardOptions {
    /// Returns the application, ready to be executed; `None` without a command.
    pub(super) fn program(&self) -> io::Result<Option<Program>> {
        let Some(name) = self.command.first() else {
            return Ok(None);
        };
        // The caller has checked the command before. The file may have been deleted since, and may be back at the
        // next start, so `exec` reports the error.
        let path = resolve_command(name).map_or_else(|_| name.clone(), PathBuf::into_os_string);
        Program::new(path, self.command.clone(), self.whole_environment()).map(Some)
    }

    /// Returns the environment of the application without the token, as `NAME=value`.
    pub(super) fn whole_environment(&self) -> Vec<OsString> {
        let is_set_here =
            |name: &OsString| name == TOKEN || self.environment.iter().any(|(set, _)| set == name);
        let inherited = std::env::vars_os().filter(|(name, _)| !is_set_here(name));
        inherited
            .chain(self.environment.iter().cloned())
            .map(|(mut name, value)| {
                name.push("=");
                name.push(value);
                name
            })
            .collect()
    }
}
