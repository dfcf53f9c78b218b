//! How a guard starts its keeper.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use lockkeeper_daemon::exit::{Exit, Failure};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions};

use super::handed_to_keeper::Will;
use crate::process::{ELDERS, KEEPER, NO_GROUP, cannot_start};
use crate::sys::{self, Program};

/// The binary of the process that opens this.
const THIS_BINARY: &str = "/proc/self/exe";

/// This binary once more, as the keeper of a guard. It can be started again after its end.
#[derive(Debug)]
pub struct KeeperProgram {
    program: Program,
    /// Its standard output. A reader of the application's output waits for the application's end, not for the keeper's.
    nowhere: OwnedFd,
    /// What each keeper of a `run` gets.
    will: Option<Will>,
}

impl KeeperProgram {
    /// A keeper that serves at `socket`. In `run` it gets this will, and the reason if there is no control group.
    ///
    /// # Errors
    /// When there is no `/dev/null`.
    pub(crate) fn new(socket: &Path, run: Option<(Will, Option<&str>)>) -> Result<Self, Failure> {
        let (will, why_no_group) = run.unzip();
        let is_ours = |name: &OsString| name == KEEPER || name == NO_GROUP || name == ELDERS;
        let mut environment: Vec<OsString> = std::env::vars_os()
            .filter(|(name, _)| !is_ours(name))
            .map(|(name, value)| variable(name, value))
            .collect();
        environment.push(variable(KEEPER.into(), socket.into()));
        let why_no_group = why_no_group.flatten();
        environment.extend(why_no_group.map(|why| variable(NO_GROUP.into(), why.into())));
        if has_children() {
            environment.push(variable(ELDERS.into(), "1".into()));
        }
        // Under this name people and tools tell it from its guard in a list of processes.
        let arguments = [OsString::from(THIS_BINARY)].into_iter();
        let arguments = arguments.chain(std::env::args_os().skip(1)).collect();
        let nowhere = OFlags::WRONLY | OFlags::CLOEXEC;
        let nowhere = rustix::fs::open("/dev/null", nowhere, Mode::empty());
        Ok(Self {
            program: Program::new(THIS_BINARY.into(), arguments, environment).map_err(cannot_start)?,
            nowhere: nowhere.map_err(|error| cannot_start(error.into()))?,
            will,
        })
    }

    /// Starts one. Returns the socket to it, and its number. If it cannot be executed, it ends at once.
    ///
    /// # Errors
    /// When it cannot be forked, or has no room for its will.
    pub(crate) fn start(&self) -> io::Result<(OwnedFd, Pid)> {
        let (ours, keepers) = UnixStream::pair()?;
        if let Some(will) = &self.will {
            will.send(&ours)?;
        }
        match sys::fork()? {
            Some(pid) => Ok((ours.into(), pid)),
            None => self.become_it(&keepers),
        }
    }

    fn become_it(&self, socket: &UnixStream) -> ! {
        // The terminal's signals are for the application; the guard tells the keeper what they mean.
        let is_ready = rustix::process::setpgid(None, None)
            .and_then(|()| rustix::stdio::dup2_stdin(socket))
            .and_then(|()| rustix::stdio::dup2_stdout(&self.nowhere));
        if is_ready.is_ok() {
            // The anchor takes the guard for alive as long as anybody has the other end of its pipe, and the disk may keep
            // this process from executing anything for long.
            sys::close_all_but(&mut []);
            sys::release_signals();
            // It logs from a process group of its own.
            sys::write_from_the_background();
            self.program.exec();
        }
        sys::exit_now(Exit::Software.code())
    }
}

/// Whether this process has a child, such as a background job of the script that has executed it.
fn has_children() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(rustix::process::waitid(WaitId::All, look), Err(Errno::CHILD))
}

/// `NAME=value`.
fn variable(mut name: OsString, value: OsString) -> OsString {
    name.push("=");
    name.push(value);
    name
}
