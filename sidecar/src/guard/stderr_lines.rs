//! Sentences of the guard, for a reader that may be frozen and a disk that may hang.

use std::fmt;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use lockkeeper_lock::BootInstant;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::net::SendFlags;

use crate::link::protocol::Refusal;

/// The longest sentence; what is beyond that is cut off.
const LONGEST: usize = 512;
/// How many sentences are kept. What is more is not said.
const MOST: usize = 4;
/// A sentence that was kept for this many seconds says so.
const WORTH_TELLING: u64 = 1;

/// Writes to stderr without waiting: a guard that waits for a reader of its output, or for a disk, would miss its
/// deadline. It allocates nothing after it was made.
///
/// A pipe, a socket or a terminal takes a sentence at once, or the sentence is lost. A write to a file can always hang
/// (`poll(2)` and `O_NONBLOCK` say nothing of files), so such a sentence is kept until nothing runs.
pub(super) struct Voice {
    outlet: Outlet,
    kept: [Sentence; MOST],
    count: usize,
}

/// Where stderr leads to.
enum Outlet {
    /// Opened once more, since the flag `O_NONBLOCK` would hold for all processes that share the descriptor.
    AtOnce(OwnedFd),
    Socket,
    File,
}

#[derive(Clone, Copy)]
struct Sentence {
    at: BootInstant,
    text: [u8; LONGEST],
    len: usize,
}

impl Voice {
    pub(super) fn new() -> Self {
        Self {
            outlet: Outlet::of_stderr(),
            kept: [Sentence::empty(); MOST],
            count: 0,
        }
    }

    /// Says a sentence now if that cannot take any time; otherwise it is said by [`Voice::say_what_was_kept`].
    pub(super) fn say(&mut self, sentence: fmt::Arguments<'_>) {
        let sentence = Sentence::new(sentence, BootInstant::now());
        // What goes wrong here has nobody to be told to.
        match &self.outlet {
            Outlet::AtOnce(stderr) => {
                let _ = rustix::io::write(stderr, sentence.line(None).bytes());
            }
            Outlet::Socket => {
                let at_once = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let stderr = rustix::stdio::stderr();
                let _ = rustix::net::send(stderr, sentence.line(None).bytes(), at_once);
            }
            Outlet::File => {
                if let Some(free) = self.kept.get_mut(self.count) {
                    *free = sentence;
                    self.count += 1;
                }
            }
        }
    }

    /// To be called while nothing runs that would have to be stopped: it may take as long as a disk does.
    pub(super) fn say_what_was_kept(&mut self) {
        let now = BootInstant::now();
        for sentence in &self.kept[..std::mem::take(&mut self.count)] {
            let _ = io::stderr().write_all(sentence.line(Some(now)).bytes());
        }
    }
}

impl Outlet {
    fn of_stderr() -> Self {
        let stderr = rustix::stdio::stderr();
        let kind = rustix::fs::fstat(stderr).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            Ok(FileType::Socket) => Self::Socket,
            Ok(FileType::Fifo | FileType::CharacterDevice) => {
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                rustix::fs::open("/proc/self/fd/2", flags, Mode::empty()).map_or(Self::File, Self::AtOnce)
            }
            _ => Self::File,
        }
    }
}

impl Sentence {
    const fn empty() -> Self {
        Self {
            at: BootInstant::from_nanos(0),
            text: [0; LONGEST],
            len: 0,
        }
    }

    fn new(sentence: fmt::Arguments<'_>, at: BootInstant) -> Self {
        let mut made = Self { at, ..Self::empty() };
        let mut rest = made.text.as_mut_slice();
        // It is cut off where there is no more room.
        let _ = rest.write_fmt(sentence);
        made.len = LONGEST - rest.len();
        made
    }

    /// The line with this sentence, which may have waited until `now`.
    fn line(&self, now: Option<BootInstant>) -> Line {
        let mut line = Line {
            bytes: [0; LONGEST + Line::FRAME],
            len: 0,
        };
        let room = line.bytes.len();
        let mut rest = line.bytes.as_mut_slice();
        let age = now.map_or(0, |now| now.saturating_since(self.at).as_secs());
        let _ = rest.write_all(b"lockkeeper guard: ");
        if age >= WORTH_TELLING {
            let _ = write!(rest, "{age} s ago: ");
        }
        let _ = rest.write_all(&self.text[..self.len]);
        let _ = rest.write_all(b"\n");
        line.len = room - rest.len();
        line
    }
}

struct Line {
    bytes: [u8; LONGEST + Self::FRAME],
    len: usize,
}

impl Line {
    /// What is around a sentence.
    const FRAME: usize = 64;

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The sentence of a guard that the keeper does not take.
pub(super) fn refusal(why: Refusal) -> &'static str {
    match why {
        Refusal::Another => {
            "the keeper has another guard already, whose process has not ended: only the first process of the \
             application's container runs `lockkeeper guard`, and nothing was started here"
        }
        Refusal::User => {
            "the keeper takes no guard of this user: name it with --guard-user of `lockkeeper sidecar`; nothing was \
             started here"
        }
        Refusal::Version => {
            "the keeper is of another release, which speaks another version of the protocol: replace the pod, so that \
             `lockkeeper sidecar` and `lockkeeper guard` come from one image; nothing was started here"
        }
        Refusal::Clock => {
            "the keeper is in another time namespace (time_namespaces(7)), so its deadlines mean nothing here: run \
             `lockkeeper sidecar` and `lockkeeper guard` in the same one, and `lockkeeper run` by `unshare --time --fork`; \
             nothing was started here"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_sentence_that_waited_says_how_long_ago_it_was_true() {
        let at = BootInstant::from_nanos(0);
        let sentence = Sentence::new(format_args!("the keeper has gone"), at);
        assert_eq!(
            sentence.line(None).bytes(),
            b"lockkeeper guard: the keeper has gone\n"
        );
        assert_eq!(
            sentence.line(Some(at + Duration::from_secs(12))).bytes(),
            b"lockkeeper guard: 12 s ago: the keeper has gone\n"
        );
    }

    #[test]
    fn a_sentence_that_is_too_long_is_cut_and_still_ends_its_line() {
        let sentence = Sentence::new(
            format_args!("{}", "x".repeat(2 * LONGEST)),
            BootInstant::from_nanos(0),
        );
        let line = sentence.line(Some(BootInstant::from_nanos(u64::MAX)));
        assert!(line.bytes().ends_with(b"xxx\n"));
    }
}
