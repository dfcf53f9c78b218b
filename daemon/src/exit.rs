//! Exit codes, and the error that ends a command: one sentence and a code.

use std::fmt;
use std::io::{self, Write};
use std::process::{ExitCode, Termination};

use crate::table::{cut, plain};

/// How a command ended. A closed set. The application's own code, which is passed on, is not part of it.
///
/// Numbers below 79 are those of BSD's `sysexits.h`, which cron, systemd and mail systems know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Exit {
    /// Bad usage: an argument, a variable or a file named by one is wrong (`EX_USAGE`). A retry would fail too.
    Usage = 64,
    /// Something is missing or does not answer: the ensemble, the keeper (`EX_UNAVAILABLE`).
    Unavailable = 69,
    /// An error inside this program or of the system below it (`EX_SOFTWARE`).
    Software = 70,
    /// A file could not be created (`EX_CANTCREAT`).
    CannotCreate = 73,
    /// The lock was lost and the application was stopped; a retry makes sense (`EX_TEMPFAIL`).
    LockLost = 75,
    /// The ensemble refuses this contender for good: no right, another agreement, too short a session. Or the keeper
    /// refuses this guard: it has another one, or it accepts none of this user (`EX_NOPERM`).
    Refused = 77,
    /// Another contender has the lock, and `--wait-timeout 0` says not to wait. Our own, as are the next two: below 126,
    /// where the codes of shells begin, and above those of `sysexits.h`.
    Busy = 80,
    /// Other contenders have had the lock for as long as `--wait-timeout` says.
    TimedOut = 81,
    /// The pod has to be gated anew: the `RestartAllContainers` rule of the injected sidecar waits for this code.
    GateAnew = 88,
    /// The application was found and could not be executed (POSIX shell, "Exit Status for Commands").
    CannotExecute = 126,
    /// The application was not found (POSIX shell, "Exit Status for Commands").
    NotFound = 127,
}

/// Why a command failed: the error, its place, and the right form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Failure {
    pub exit: Exit,
    /// One sentence for a person, without a full stop.
    pub sentence: String,
}

// === impl Exit ===

impl Exit {
    /// The exit for a command that cannot be executed, from the error of `execve`.
    pub fn of_exec(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound,
            _ => Self::CannotExecute,
        }
    }

    /// The same from its number (`errno(3)`).
    pub fn of_errno(errno: u32) -> Self {
        Self::of_exec(&io::Error::from_raw_os_error(errno.cast_signed()))
    }

    /// The number for the shell.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self.code())
    }
}

/// The number for a process that this signal has ended (POSIX shell, "Exit Status for Commands": above 128).
pub const fn killed_by(signo: u8) -> u8 {
    128 + signo
}

// === impl Failure ===

impl Failure {
    pub fn new(exit: Exit, sentence: impl fmt::Display) -> Self {
        Self {
            exit,
            sentence: sentence.to_string(),
        }
    }

    /// The user asked for something impossible.
    pub fn usage(sentence: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, sentence)
    }

    /// Something does not answer.
    pub fn unavailable(sentence: impl fmt::Display) -> Self {
        Self::new(Exit::Unavailable, sentence)
    }

    /// Something failed that should not have.
    pub fn software(sentence: impl fmt::Display) -> Self {
        Self::new(Exit::Software, sentence)
    }
}

/// Writes the sentence to stderr.
impl Termination for Failure {
    fn report(self) -> ExitCode {
        tell(&self.sentence);
        self.exit.report()
    }
}

/// Most characters of a sentence: it may quote what others have written.
const LONGEST_SENTENCE: usize = 8_000;

/// Writes one sentence to stderr, after the log if this process has one; what a terminal would carry out is escaped. If
/// stderr is closed, the sentence is lost; `eprintln!` would panic and lose the exit code.
pub fn tell(sentence: &str) {
    let line = format!("lockkeeper: {}\n", cut(&plain(sentence), LONGEST_SENTENCE));
    #[cfg(feature = "log")]
    if crate::lines::tell(&line) {
        return;
    }
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_that_scripts_rely_on() {
        let numbers = [
            (Exit::Usage, 64),
            (Exit::Unavailable, 69),
            (Exit::Software, 70),
            (Exit::CannotCreate, 73),
            (Exit::LockLost, 75),
            (Exit::Refused, 77),
            (Exit::Busy, 80),
            (Exit::TimedOut, 81),
            (Exit::GateAnew, 88),
            (Exit::CannotExecute, 126),
            (Exit::NotFound, 127),
        ];
        for (exit, number) in numbers {
            assert_eq!(exit.code(), number, "{exit:?}");
        }
        assert_eq!(killed_by(15), 143);
        assert_eq!(
            [2, 13, 8].map(|errno| Exit::of_errno(errno).code()),
            [127, 126, 126]
        );
    }
}
