//! What is left of a guard's tree once the guard is gone, in words for the keeper to read.
//!
//! All anchors of a guard write into one pipe, of which the guard and they alone hold the writing end. So the end of
//! the pipe means that neither lives, and the last word is what the last anchor saw. The guard says the first word for
//! each anchor, before it forks it: what an earlier anchor said proves nothing of a later one.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

/// Bytes of one word: shorter than what a pipe takes in one piece (`PIPE_BUF`).
const WORD_LEN: usize = 12;

const LEFT: u32 = 1;
const NOTHING: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::guard) enum Word {
    /// So many processes still descend from the anchor, and one of them is this; zeros for what is not known, as before
    /// there is an anchor.
    Left { count: u32, pid: u32 },
    /// The anchor has no child any more. For a subreaper that is the proof that nothing descends from it.
    Nothing,
}

/// The guard's end of the pipe.
#[derive(Debug)]
pub struct Speaker {
    pipe: OwnedFd,
    /// The other end again: what the keeper has not read yet.
    unread: OwnedFd,
}

/// The keeper's end of the pipe.
#[derive(Debug)]
pub(in crate::guard) struct Words {
    pipe: OwnedFd,
    last: Option<Word>,
    is_over: bool,
}

/// A pipe for words: the keeper's end, and that of the guard and its anchors. Neither blocks.
pub(in crate::guard) fn channel() -> io::Result<(OwnedFd, Speaker)> {
    use rustix::pipe::{PipeFlags, pipe_with};
    let (ours, pipe) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let unread = ours.try_clone()?;
    Ok((ours, Speaker { pipe, unread }))
}

impl Speaker {
    /// Says that an application is about to be started, for which no earlier word counts. Words that no keeper has read
    /// make room for this one: they are older.
    ///
    /// # Errors
    /// When the word cannot be written: then nothing may be started.
    pub(in crate::guard) fn begin(&self) -> io::Result<()> {
        let mut bytes = [0; 32 * WORD_LEN];
        while matches!(rustix::io::read(&self.unread, &mut bytes), Ok(1..)) {}
        let word = Word::Left { count: 0, pid: 0 }.encode();
        match rustix::io::write(&self.pipe, &word)? {
            WORD_LEN => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// The end at which anchors speak.
    pub(in crate::guard) fn pipe(&self) -> &OwnedFd {
        &self.pipe
    }
}

/// Writes a word, if there is room for it: a keeper that does not read does not block the anchor.
pub(in crate::guard) fn say(pipe: &OwnedFd, word: Word) {
    let _ = rustix::io::write(pipe, &word.encode());
}

/// For tests of the reader: says that so many are left, or that nothing is.
#[cfg(test)]
pub(crate) fn says(speaker: &Speaker, count: u32, pid: u32) {
    say(
        speaker.pipe(),
        if count > 0 {
            Word::Left { count, pid }
        } else {
            Word::Nothing
        },
    );
}

/// For tests: waits for the end of the pipe. Children that other tests fork hold it open until they execute something.
#[cfg(test)]
pub(in crate::guard) fn until_over(words: &Words) {
    use rustix::event::{PollFd, PollFlags};
    let mut fds = [PollFd::new(&words.pipe, PollFlags::empty())];
    rustix::event::poll(&mut fds, None).expect("polled");
}

impl Word {
    fn encode(self) -> [u8; WORD_LEN] {
        let numbers = match self {
            Self::Left { count, pid } => [LEFT, count, pid],
            Self::Nothing => [NOTHING, 0, 0],
        };
        let mut bytes = [0; WORD_LEN];
        for (place, number) in bytes.chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; WORD_LEN]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        match [number(0), number(4), number(8)] {
            [LEFT, count, pid] => Some(Self::Left { count, pid }),
            [NOTHING, 0, 0] => Some(Self::Nothing),
            _ => None,
        }
    }
}

impl Words {
    pub(crate) fn new(pipe: OwnedFd) -> Self {
        Self {
            pipe,
            last: None,
            is_over: false,
        }
    }

    pub(crate) fn pipe(&self) -> &OwnedFd {
        &self.pipe
    }

    /// The newest word, and whether there can be another one: whether the guard or an anchor lives.
    pub(crate) fn listen(&mut self) -> (Option<Word>, bool) {
        let mut bytes = [0; WORD_LEN];
        while !self.is_over {
            match rustix::io::read(&self.pipe, &mut bytes) {
                Ok(0) => self.is_over = true,
                // What is no word of ours proves nothing.
                Ok(len) => self.last = (len == WORD_LEN).then(|| Word::decode(&bytes)).flatten(),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        (self.last, !self.is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_word_counts_and_the_end_is_that_of_all_who_could_say_one() {
        let (ours, guards) = channel().expect("a pipe");
        let anchors = guards.pipe().try_clone().expect("a descriptor");
        let mut words = Words::new(ours);
        assert_eq!(words.listen(), (None, true));
        let left = |count| Word::Left { count, pid: 7 };
        say(&anchors, left(2));
        say(&anchors, left(1));
        drop(guards);
        assert_eq!(words.listen(), (Some(left(1)), true));
        say(&anchors, Word::Nothing);
        drop(anchors);
        until_over(&words);
        assert_eq!(words.listen(), (Some(Word::Nothing), false));
        assert_eq!(words.listen(), (Some(Word::Nothing), false));
    }

    #[test]
    fn what_is_no_word_takes_the_place_of_the_proof_before_it() {
        let (ours, theirs) = channel().expect("a pipe");
        let mut words = Words::new(ours);
        for noise in [&[2; WORD_LEN][..], b"2"] {
            say(theirs.pipe(), Word::Nothing);
            rustix::io::write(theirs.pipe(), noise).expect("written");
            assert_eq!(words.listen(), (None, true));
        }
    }

    #[test]
    fn no_word_of_an_earlier_anchor_counts_for_a_later_one_however_often_a_guard_starts_one() {
        let (ours, guards) = channel().expect("a pipe");
        let mut words = Words::new(ours);
        // More than a pipe takes of what nobody reads.
        for _ in 0..10_000 {
            guards.begin().expect("said");
            say(guards.pipe(), Word::Nothing);
        }
        guards.begin().expect("said");
        drop(guards);
        until_over(&words);
        assert_eq!(words.listen(), (Some(Word::Left { count: 0, pid: 0 }), false));
    }

    #[test]
    fn nothing_begins_whose_word_cannot_be_said() {
        let (_ours, guards) = channel().expect("a pipe");
        // A pipe that is full, and that this end cannot empty.
        let (_other, unread) = channel().expect("a pipe");
        while rustix::io::write(&guards.pipe, &[0; WORD_LEN]).is_ok() {}
        let guards = Speaker {
            unread: unread.unread,
            ..guards
        };
        assert!(guards.begin().is_err());
    }
}
