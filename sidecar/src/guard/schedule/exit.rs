//! Exit codes of the guard.

/// Exit code when the lock was lost and the application was stopped (`EX_TEMPFAIL`).
pub const EXIT_LOST: u8 = 75;

/// Exit code when the guard cannot go on and nothing was running (`EX_SOFTWARE`).
pub const EXIT_SOFTWARE: u8 = 70;

/// Exit code when the keeper does not take this guard (`EX_NOPERM`).
pub const EXIT_REFUSED: u8 = 77;

/// What a shell says for a command that it could not execute: 127 when it is not there, else 126.
pub fn exit_code_of_errno(errno: u32) -> u8 {
    if errno == rustix::io::Errno::NOENT.raw_os_error().unsigned_abs() {
        127
    } else {
        126
    }
}
