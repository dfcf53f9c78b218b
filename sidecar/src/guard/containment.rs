//! What holds the application together, so that stopping it misses no process of it.
//!
//! | | all at once, also against `fork` | what can escape |
//! |---|---|---|
//! | a control group of its own | `cgroup.kill`, `cgroup.freeze` | a process that may write to the control groups
//! above |
//! | a PID namespace of its own | the end of its first process; SIGSTOP from there | nothing |
//! | a sweep over `/proc` | no | a process that forks faster than the table is read |
//!
//! With each of them the guard also looks for descendants: a process that has escaped is found by its descent.

use std::io;

use clap::ValueEnum;
use rustix::process::{DumpableBehavior, WaitOptions};

use super::cgroup::{Group, GroupKiller};
use super::namespace;
use super::processes::Processes;
use crate::link::protocol::Containment;
use crate::sys;

/// What a user wants the application to be held together by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ContainmentChoice {
    /// A control group of its own where that can be had, else a sweep.
    #[default]
    Auto,
    /// A control group of its own (version 2, Linux 5.14).
    Cgroup,
    /// A PID namespace of its own, and a mount namespace for its `/proc`.
    Pidns,
    /// Nothing: what descends from the application is looked for in `/proc`.
    Sweep,
}

/// What will hold an application together: made and tried out before anything is started.
#[derive(Debug)]
pub struct Hold(pub(super) Kind, Option<String>);

#[derive(Debug)]
pub(super) enum Kind {
    Cgroup(Group),
    Pidns,
    Sweep,
}

/// The containment that the user wants is not available.
#[derive(Debug, thiserror::Error)]
#[error("--containment {wanted} is not available: {why}; choose another value, or auto")]
pub struct ContainmentError {
    wanted: &'static str,
    why: String,
}

/// Checks that a sweep would see all processes. With the option `hidepid` of `/proc`, a user does not see the processes
/// that it may not trace (proc(5)). Some of its own are among them: those whose program has file capabilities, or may
/// not be read. So the check forks a child that nobody may trace, and looks for it.
///
/// # Errors
/// The reason why a sweep could miss processes.
fn sees_all() -> Result<(), String> {
    let cannot = |error: io::Error| format!("it cannot be told whether /proc shows all processes: {error}");
    let (waits, lifeline) = rustix::pipe::pipe().map_err(|error| cannot(error.into()))?;
    let (ready, tells) = rustix::pipe::pipe().map_err(|error| cannot(error.into()))?;
    let Some(child) = sys::fork().map_err(cannot)? else {
        drop((lifeline, ready));
        let hidden = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let told = hidden.and_then(|()| rustix::io::write(&tells, b"1"));
        // Until the end of the parent's look.
        let _ = told.and_then(|_| rustix::io::read(&waits, &mut [0; 1]));
        sys::exit_now(0);
    };
    drop((waits, tells));
    let is_ready = rustix::io::read(&ready, &mut [0; 1]).is_ok_and(|length| length == 1);
    let is_seen = Processes::open().map(|processes| processes.started(child).is_some());
    drop(lifeline);
    let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
    match is_seen {
        Ok(true) if is_ready => Ok(()),
        Ok(_) => Err(
            "a sweep would miss processes that /proc hides from this user (hidepid): mount it without that option, or \
             for this user's group (gid=)"
                .to_owned(),
        ),
        Err(error) => Err(cannot(error)),
    }
}

impl Hold {
    /// Makes the containment that was chosen, and tries it out with a process that it puts in and that ends.
    ///
    /// Call it before the process has a second thread: it forks.
    ///
    /// # Errors
    /// When that containment is not available, and the choice allows no other.
    pub fn new(choice: ContainmentChoice) -> Result<Self, ContainmentError> {
        sys::keep_exit_codes();
        let refuse = |wanted| move |why| ContainmentError { wanted, why };
        match choice {
            ContainmentChoice::Auto => Ok(match Group::make() {
                Ok(group) => Self(Kind::Cgroup(group), None),
                Err(why) => {
                    sees_all().map_err(|blind| refuse("auto")(format!("{why}; and {blind}")))?;
                    Self(Kind::Sweep, Some(why))
                }
            }),
            ContainmentChoice::Cgroup => Group::make()
                .map(|group| Self(Kind::Cgroup(group), None))
                .map_err(refuse("cgroup")),
            ContainmentChoice::Pidns => namespace::try_out()
                .map(|()| Self(Kind::Pidns, None))
                .map_err(refuse("pidns")),
            ContainmentChoice::Sweep => sees_all()
                .map(|()| Self(Kind::Sweep, None))
                .map_err(refuse("sweep")),
        }
    }

    /// Returns why this is a sweep, if a control group would have been taken.
    pub(crate) fn why_no_group(&self) -> Option<&str> {
        self.1.as_deref()
    }

    pub(crate) fn containment(&self) -> Containment {
        match &self.0 {
            Kind::Cgroup(_) => Containment::Cgroup,
            Kind::Pidns => Containment::Pidns,
            Kind::Sweep => Containment::Sweep,
        }
    }

    /// Returns what a keeper whose guard was killed needs to kill the whole application, if that is possible from
    /// outside.
    pub(super) fn killer(&self) -> io::Result<Option<GroupKiller>> {
        match &self.0 {
            Kind::Cgroup(group) => group.killer().map(Some),
            Kind::Pidns | Kind::Sweep => Ok(None),
        }
    }
}
