//! What the guard of `run` passes to its keeper for the case that it is killed: the mark of the application's
//! processes, the pipe from it and its anchors, and the application's control group.
//!
//! It is in the keeper's socket, with its descriptors, before the keeper is started.

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
#[cfg(test)]
use std::os::fd::OwnedFd;

use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use super::anchor::word::{self, Speaker, Word, Words};
use super::cgroup::GroupKiller;
use super::containment::Hold;

/// The runs of which a process is a part, from the outermost to the innermost.
pub(crate) const RUNS: &str = "LOCKKEEPER_RUNS";

/// The mark of a run's application, also for runs inside of it: it is in the environment of all processes that its
/// guard starts, and of no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunId(pub(crate) u64);

/// What a guard passes to its keeper.
#[derive(Debug)]
pub(crate) struct Will {
    run: RunId,
    words: Words,
    group: Option<GroupKiller>,
}

/// What is known of what a guard has left below its anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Below {
    /// The anchor lives, or even the guard: something is left, and these are the number of processes and one of them;
    /// zeros for what is not known.
    Left {
        count: u32,
        /// The process id of one.
        pid: u32,
    },
    /// Neither lives.
    Ended {
        /// The anchor had nothing left: it was not killed, and nothing is left that descended from it.
        is_proof: bool,
    },
}

/// The most descriptors that a will has: the pipe for words, and `cgroup.kill` and `cgroup.events` of a group.
const MOST_DESCRIPTORS: usize = 3;

impl RunId {
    /// Draws a mark that no other run has.
    pub(crate) fn draw() -> Self {
        Self(fastrand::u64(..))
    }

    /// Returns the value of [`RUNS`] for the application of a guard whose own value is `outer`.
    pub(crate) fn inside(self, outer: Option<OsString>) -> OsString {
        let mut runs = outer.unwrap_or_default();
        if !runs.is_empty() {
            runs.push(",");
        }
        runs.push(self.name());
        runs
    }

    /// Whether `environment` is that of a process that is a part of the run.
    pub(crate) fn is_in(self, environment: &[u8]) -> bool {
        let name = self.name();
        environment
            .split(|byte| *byte == 0)
            .filter_map(|variable| variable.strip_prefix(RUNS.as_bytes())?.strip_prefix(b"="))
            .any(|runs| runs.split(|byte| *byte == b',').any(|run| run == name.as_bytes()))
    }

    fn name(self) -> String {
        format!("{:016x}", self.0)
    }
}

impl Will {
    /// Makes the will for the keeper of a run that is held together by `hold`. Returns it with the end of the pipe at
    /// which the guard and its anchors speak.
    ///
    /// # Errors
    /// When there is no room for more descriptors.
    pub(crate) fn make(run: RunId, hold: &Hold) -> io::Result<(Self, Speaker)> {
        let (ours, speaker) = word::channel()?;
        let will = Self {
            run,
            words: Words::new(ours),
            group: hold.killer()?,
        };
        Ok((will, speaker))
    }

    /// Puts the will into the keeper's socket.
    ///
    /// # Errors
    /// What `sendmsg(2)` says.
    pub(crate) fn send(&self, keeper: impl AsFd) -> io::Result<()> {
        let mut descriptors = vec![self.words.pipe().as_fd()];
        if let Some(group) = &self.group {
            descriptors.extend([group.kill.as_fd(), group.events.as_fd()]);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let run = self.run.0.to_le_bytes();
        rustix::net::sendmsg(keeper, &[IoSlice::new(&run)], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Takes the will out of the keeper's socket, in which it is before anything else.
    ///
    /// # Errors
    /// When there is no will in the socket.
    pub(crate) fn receive(guard: impl AsFd) -> io::Result<Self> {
        let mut run = [0; size_of::<u64>()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::net::recvmsg(
            guard,
            &mut [IoSliceMut::new(&mut run)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
        )?;
        let mut descriptors = ancillary
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            })
            .flatten();
        let mut next = || descriptors.next();
        match (received.bytes == run.len(), [next(), next(), next()]) {
            (true, [Some(words), kill, events]) if kill.is_some() == events.is_some() => Ok(Self {
                run: RunId(u64::from_le_bytes(run)),
                words: Words::new(words),
                group: kill
                    .zip(events)
                    .map(|(kill, events)| GroupKiller { kill, events }),
            }),
            _ => Err(io::Error::other(
                "the guard has sent something else than its descriptors for the keeper",
            )),
        }
    }

    /// Replaces the files of a control group by these.
    #[cfg(test)]
    pub(crate) fn with_group(mut self, kill: OwnedFd, events: OwnedFd) -> Self {
        self.group = Some(GroupKiller { kill, events });
        self
    }

    /// Returns the mark of the application.
    pub(crate) fn run(&self) -> RunId {
        self.run
    }

    /// Kills all of the application's control group, if it has one.
    pub(crate) fn kill_group(&self) {
        if let Some(group) = &self.group {
            // A failure shows in the state of the group.
            let _ = group.kill();
        }
    }

    /// Whether the control group, if there is one, has nothing in it any more.
    pub(crate) fn group_is_empty(&self) -> bool {
        self.group.as_ref().is_none_or(GroupKiller::is_empty)
    }

    pub(crate) fn below(&mut self) -> Below {
        match self.words.listen() {
            (Some(Word::Left { count, pid }), true) => Below::Left { count, pid },
            (_, true) => Below::Left { count: 0, pid: 0 },
            (word, false) => Below::Ended {
                is_proof: word == Some(Word::Nothing),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::guard::containment::ContainmentChoice;

    fn sweep() -> Hold {
        Hold::new(ContainmentChoice::Sweep).expect("nothing")
    }

    #[test]
    fn a_keeper_is_left_what_its_guard_had_and_sees_the_end_of_the_anchor() {
        let run = RunId::draw();
        let (will, anchor) = Will::make(run, &sweep()).expect("a will");
        let (guards, keepers) = UnixStream::pair().expect("a pair");
        will.send(&guards).expect("sent");
        drop(will);
        let mut will = Will::receive(&keepers).expect("received");
        assert_eq!(will.run(), run);
        assert!(will.group_is_empty(), "there is none");
        assert_eq!(will.below(), Below::Left { count: 0, pid: 0 });
        word::say(anchor.pipe(), Word::Left { count: 2, pid: 7 });
        assert_eq!(will.below(), Below::Left { count: 2, pid: 7 });
        word::say(anchor.pipe(), Word::Nothing);
        assert_eq!(will.below(), Below::Left { count: 0, pid: 0 }, "the anchor lives");
        drop(anchor);
        word::until_over(&will.words);
        assert_eq!(will.below(), Below::Ended { is_proof: true });
    }

    #[test]
    fn a_keeper_whose_guard_left_it_nothing_is_refused() {
        let (guards, keepers) = UnixStream::pair().expect("a pair");
        assert!(Will::receive(&keepers).is_err(), "nothing was sent");
        // A frame of another release.
        rustix::net::send(&guards, &[65; 32], SendFlags::NOSIGNAL).expect("sent");
        assert!(Will::receive(&keepers).is_err());
    }

    #[test]
    fn a_run_is_known_in_the_environments_of_its_application_and_of_runs_inside_of_it_and_in_no_other() {
        let (outer, inner) = (RunId(0x12ab), RunId(7));
        assert_eq!(outer.inside(None), "00000000000012ab");
        let runs = inner.inside(Some(outer.inside(None)));
        assert_eq!(runs, "00000000000012ab,0000000000000007");
        let runs = runs.into_string().expect("text");
        let environment = format!("A=b\0{RUNS}={runs}\0C=d\0").into_bytes();
        for run in [outer, inner] {
            assert!(run.is_in(&environment));
        }
        assert!(!RunId(8).is_in(&environment));
        for other in [
            "",
            "LOCKKEEPER_RUNS=",
            "OTHER=00000000000012ab",
            "LOCKKEEPER_RUNS=00000000000012abc",
        ] {
            assert!(!outer.is_in(other.as_bytes()), "{other}");
        }
    }
}
