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
    /// Set in the application's environment beside what the guard itself has: `LOCKKEEPER_LOCK`,
    /// `LOCKKEEPER_SOCKET`. `LOCKKEEPER_FENCING_TOKEN` comes from each grant.
    pub environment: Vec<(OsString, OsString)>,
    /// The exit code after a loss.
    pub loss_code: u8,
    /// The pipe for words to such a keeper that count after the end of the guard.
    pub words: Option<Speaker>,
}

/// What a guard guards.
#[derive(Debug)]
pub enum TargetKind {
    /// The PID namespace of which it is PID 1 (`wrap`).
    Pid1,
    /// Its descendants, and what holds them together (`run`).
    Subreaper(Hold),
    /// Another container of its pod (`signal`).
    Container(Box<Container>),
}

/// How a guard talks to its keeper.
#[derive(Debug)]
pub enum KeeperLink {
    /// The keeper is a child of the guard, which starts another one when it ends. A guard without a keeper ends, at the
    /// deadline if something is running. The keeper is not part of what is stopped.
    Child(KeeperProgram),
    /// As a child that is there already, at the other end of this socket, and that is not started again.
    Inherited {
        /// Our end.
        socket: OwnedFd,
        pid: Option<Pid>,
    },
    /// Over a socket at this path; the guard connects again whenever the connection is lost.
    Path(PathBuf),
}

/// Set by the guard alone.
const TOKEN: &str = "LOCKKEEPER_FENCING_TOKEN";

impl GuardOptions {
    /// The application, ready to be executed, if there is a command.
    pub(super) fn program(&self) -> io::Result<Option<Program>> {
        let Some(name) = self.command.first() else {
            return Ok(None);
        };
        // The caller has checked the command before. The file may have been deleted since, and may be back at the
        // next start, so `exec` reports the error.
        let path = resolve_command(name).map_or_else(|_| name.clone(), PathBuf::into_os_string);
        Program::new(path, self.command.clone(), self.whole_environment()).map(Some)
    }

    /// What the application finds but for the token, as `NAME=value`.
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
