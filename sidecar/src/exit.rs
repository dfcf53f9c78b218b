//! Exit codes, and the error that ends a command: one sentence and a code.

use std::fmt;
use std::io::{self, Write};
use std::process::{ExitCode, Termination};

/// How a command ended. A closed set; the application's own code is passed on beside it.
///
/// Numbers below 79 are those of BSD's `sysexits.h`, which cron, systemd and mail systems know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Exit {
    /// Bad usage: an argument, a variable or a file named by one is wrong (`EX_USAGE`). Trying again is useless.
    Usage = 64,
    /// Something is not there or does not answer: the ensemble, the keeper, the lock within
    /// `--wait-timeout` (`EX_UNAVAILABLE`).
    Unavailable = 69,
    /// An error inside this program or of the system below it (`EX_SOFTWARE`).
    Software = 70,
    /// A file could not be made (`EX_CANTCREAT`).
    CannotCreate = 73,
    /// The lock was lost and the application was stopped; trying again makes sense (`EX_TEMPFAIL`).
    LockLost = 75,
    /// The keeper does not take this guard: it has another, or it takes none of this user (`EX_NOPERM`).
    Refused = 77,
    /// The pod has to be gated anew: what the `RestartAllContainers` rule of the injected sidecar
    /// waits for. Our own; below 126, where shells begin, and above `sysexits.h`.
    GateAnew = 88,
    /// The application was found and could not be executed (POSIX shell, "Exit Status for Commands").
    CannotExecute = 126,
    /// The application was not found (POSIX shell, "Exit Status for Commands").
    NotFound = 127,
}

/// Why a command ended without doing what it was asked for: what is wrong, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Failure {
    /// How the process is to end.
    pub exit: Exit,
    /// One sentence for a person, without a full stop.
    pub sentence: String,
}

// === impl Exit ===

impl Exit {
    /// What a command that cannot be executed ends with, by the code of a shell.
    pub(crate) fn of_command(code: u8) -> Self {
        if code == Self::NotFound.code() {
            Self::NotFound
        } else {
            Self::CannotExecute
        }
    }

    /// The number that the shell sees.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self.code())
    }
}

// === impl Failure ===

impl Failure {
    /// A failure with any exit code.
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

/// Writes one sentence to stderr, for whoever reads it: nobody may be left, for which `eprintln!`
/// would panic and lose the exit code.
pub fn tell(sentence: &str) {
    let _ = writeln!(io::stderr().lock(), "lockkeeper: {sentence}");
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
            (Exit::GateAnew, 88),
            (Exit::CannotExecute, 126),
            (Exit::NotFound, 127),
        ];
        for (exit, number) in numbers {
            assert_eq!(exit.code(), number, "{exit:?}");
        }
    }
}
