//! `lockkeeper run` inside an application that already runs under the same lock.
//!
//! It would wait for itself. So it starts its command at once, under the token that is held, and
//! leaves the lock to the outer one. (Curator's `InterProcessMutex` is reentrant per thread; here the
//! environment says who is inside.)

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::args::{Access, RunSettings};
use crate::client;
use crate::exit::{Exit, Failure};
use crate::guard;

/// Which ensemble the lock is held in: what `LOCKKEEPER_CONNECT` was for the outer run. Not that
/// variable itself, which users set for the inner one.
pub(super) const HELD_CONNECT: &str = "LOCKKEEPER_HELD_CONNECT";

/// The outer run is there and holds: the command may run as it is.
pub(super) struct Nested(());

/// Whether an outer run of this lock is above us. Its socket says whether it holds; what a variable
/// says may be left over from somewhere else.
///
/// # Errors
/// When the outer run has lost the lock, or holds it for reading and we want to write.
pub(super) fn check(settings: &RunSettings) -> Result<Option<Nested>, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let is_same = variable(HELD_CONNECT).as_deref() == Some(&settings.lock.connect.to_string());
    let (true, Some(token), Some(socket)) = (
        is_same,
        variable("LOCKKEEPER_FENCING_TOKEN"),
        std::env::var_os("LOCKKEEPER_SOCKET").map(PathBuf::from),
    ) else {
        return Ok(None);
    };
    let Ok(outer) = client::snapshot(&socket) else {
        return Ok(None);
    };
    if outer.lock != settings.lock.lock {
        return Ok(None);
    }
    if outer.fencing_token.is_none_or(|held| held.to_string() != token) {
        return Err(Failure::new(
            Exit::LockLost,
            format!(
                "the lock {} was held by the outer `lockkeeper run` and is not any more",
                outer.lock
            ),
        ));
    }
    if outer.access == Access::Read.name() && settings.lock.access != Access::Read {
        return Err(Failure::usage(format!(
            "the outer `lockkeeper run` holds {} for reading, and writing would wait for its end: take --access write \
             outside or --access read inside",
            outer.lock
        )));
    }
    Ok(Some(Nested(())))
}

impl Nested {
    /// Becomes the command. Returns only when that fails.
    pub(super) fn exec(self, command: &[OsString]) -> Failure {
        let error = Command::new(&command[0]).args(&command[1..]).exec();
        let code = guard::exit_code_of_errno(error.raw_os_error().unwrap_or_default().unsigned_abs());
        Failure::new(
            Exit::of_command(code),
            format!("cannot run {:?}: {error}", command[0]),
        )
    }
}
