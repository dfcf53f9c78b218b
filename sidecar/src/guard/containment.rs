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

use super::cgroup::{Group, GroupKiller};
use super::namespace;
use crate::link::protocol::Containment;

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

/// What an application will be held together by: made and tried before anything is started.
#[derive(Debug)]
pub struct Hold(pub(super) Kind, Option<String>);

#[derive(Debug)]
pub(super) enum Kind {
    Cgroup(Group),
    Pidns,
    Sweep,
}

/// What was wanted cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("--containment {wanted} cannot be had: {why}; take another one, or leave it to auto")]
pub struct ContainmentError {
    wanted: &'static str,
    why: String,
}

impl Hold {
    /// Makes what was chosen, and tries it out: with a process that is put in and ends.
    ///
    /// Call it before the process has a second thread: it forks.
    ///
    /// # Errors
    /// When it cannot be had and nothing else was allowed.
    pub fn new(choice: ContainmentChoice) -> Result<Self, ContainmentError> {
        let refuse = |wanted| move |why| ContainmentError { wanted, why };
        match choice {
            ContainmentChoice::Auto => Ok(match Group::make() {
                Ok(group) => Self(Kind::Cgroup(group), None),
                Err(why) => Self(Kind::Sweep, Some(why)),
            }),
            ContainmentChoice::Cgroup => Group::make()
                .map(|group| Self(Kind::Cgroup(group), None))
                .map_err(refuse("cgroup")),
            ContainmentChoice::Pidns => namespace::try_out()
                .map(|()| Self(Kind::Pidns, None))
                .map_err(refuse("pidns")),
            ContainmentChoice::Sweep => Ok(Self(Kind::Sweep, None)),
        }
    }

    /// Why it is a sweep though a control group would have been taken.
    pub(crate) fn why_no_group(&self) -> Option<&str> {
        self.1.as_deref()
    }

    /// What it is.
    pub fn containment(&self) -> Containment {
        match &self.0 {
            Kind::Cgroup(_) => Containment::Cgroup,
            Kind::Pidns => Containment::Pidns,
            Kind::Sweep => Containment::Sweep,
        }
    }

    /// For a keeper whose guard was killed: the means to kill the whole application, if that is possible from
    /// outside.
    pub(super) fn killer(&self) -> io::Result<Option<GroupKiller>> {
        match &self.0 {
            Kind::Cgroup(group) => group.killer().map(Some),
            Kind::Pidns | Kind::Sweep => Ok(None),
        }
    }
}
