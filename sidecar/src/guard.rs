//! The guard: a small synchronous process that starts and stops the application by deadline.
//!
//! It knows nothing but deadlines on `CLOCK_BOOTTIME`, which the keeper sends it over a socket. A frozen, dead or
//! starved keeper sends no new ones, and the application is stopped in time all the same. It has one thread from its
//! start on, and allocates no memory on the way to a kill.
//!
//! The pure state machine [`schedule`] makes its decisions, and the [event loop](event_loop) carries them out. The
//! targets find and signal processes: PID 1 of a container or a subreaper with an [`anchor`] ([`child`]), or a
//! [`container`] beside it.

mod alone;
mod anchor;
mod cgroup;
mod child;
mod command;
mod container;
mod containment;
mod event_loop;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub(crate) mod handed_to_keeper;
mod keeper_program;
mod keepers;
mod kill;
mod lines;
mod mounts;
mod namespace;
mod options;
pub(crate) mod post_start;
mod processes;
mod reaping;
pub(crate) mod schedule;
mod signals;
mod stderr_lines;
mod target;
mod timer;
mod unconnected;

use std::io;

pub(crate) use self::alone::check as is_alone;
#[cfg(test)]
pub(crate) use self::anchor::word::{Speaker, says as anchor_says};
use self::child::{Pid1, Subreaper};
pub use self::command::{CommandError, resolve_command};
pub(crate) use self::container::ContainerKiller;
pub use self::container::{Container, ContainerTarget};
pub use self::containment::{ContainmentChoice, ContainmentError, Hold};
use self::event_loop::EventLoop;
pub(crate) use self::keeper_program::KeeperProgram;
use self::keepers::Keepers;
pub use self::options::{GuardOptions, KeeperLink, TargetKind};
use self::post_start::PostStart;
pub use self::schedule::EXIT_LOST;
pub(crate) use self::schedule::EXIT_SOFTWARE;
use self::stderr_lines::Voice;
use crate::link::guard_end::GuardEnd;
use crate::sys;

/// Runs the guard until it is done, and returns the exit code of the process.
///
/// Call it before the process has a second thread: it forks. From here on it handles all signals of the process and
/// reaps all its children, including the keeper.
///
/// The code is the one that the keeper sent with `Finish`; the application's own if there is no keeper any more; 75
/// when the lock was lost and the application was stopped; 128 and the signal's number when a user ended an idle
/// guard; 77 after a sentence when the keeper does not take this guard; 70 after a sentence on stderr when it cannot
/// work at all, or lost its keeper with nothing to guard.
pub fn run(options: GuardOptions) -> u8 {
    let code = match guard(options) {
        Ok(code) => code,
        Err(error) => {
            let mut voice = Voice::new();
            voice.say(format_args!("{error}"));
            // Nothing was started.
            voice.say_what_was_kept();
            EXIT_SOFTWARE
        }
    };
    // A PID 1 with survivors must not lose another moment on the way out.
    if is_first() {
        sys::exit_now(code);
    }
    code
}

/// Whether this is the first process of its container.
fn is_first() -> bool {
    rustix::process::getpid() == rustix::process::Pid::INIT
}

fn guard(options: GuardOptions) -> io::Result<u8> {
    // Before the first child: the end of a child is a signal that must not get lost.
    let signals = sys::take_signals(signals::taken())?;
    let program = options.program()?;
    let post_start = match (&options.keeper, &options.target) {
        (KeeperLink::Path(path), TargetKind::Pid1) if is_first() => {
            Some(PostStart::new(path, options.whole_environment())?)
        }
        _ => None,
    };
    let (keeper, keepers) = match options.keeper {
        KeeperLink::Child(program) => Keepers::start(program)?,
        KeeperLink::Inherited { socket, pid } => (GuardEnd::inherited(socket)?, Keepers::only(pid)),
        KeeperLink::Path(path) => (GuardEnd::at(&path)?, Keepers::only(None)),
    };
    let loss_code = options.loss_code;
    match (options.target, program) {
        (TargetKind::Pid1, Some(program)) => {
            let target = Pid1::new(program, post_start)?;
            Ok(EventLoop::new(target, keeper, keepers, signals, loss_code)?.run())
        }
        (TargetKind::Subreaper(hold), Some(program)) => {
            let subreaper = Subreaper::new(program, hold, options.words)?;
            Ok(EventLoop::new(subreaper, keeper, keepers, signals, loss_code)?.run())
        }
        (TargetKind::Container(container), None) => {
            Ok(EventLoop::new(*container, keeper, keepers, signals, loss_code)?.run())
        }
        (TargetKind::Container(_), Some(_)) => Err(io::Error::other(
            "a command was given, but a guard beside a container starts none",
        )),
        (_, None) => Err(io::Error::other(
            "no command was given: say what to run after `--`",
        )),
    }
}
