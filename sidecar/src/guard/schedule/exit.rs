//! Exit codes of the guard.

use lockkeeper_daemon::exit::Exit;

/// Exit code when the lock was lost and the application was stopped (`EX_TEMPFAIL`).
pub const EXIT_LOST: u8 = Exit::LockLost.code();

/// Exit code when the guard cannot go on and nothing was running (`EX_SOFTWARE`).
pub(crate) const EXIT_SOFTWARE: u8 = Exit::Software.code();

/// Exit code when the keeper does not take this guard (`EX_NOPERM`).
pub(crate) const EXIT_REFUSED: u8 = Exit::Refused.code();
