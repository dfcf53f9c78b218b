//! `lockkeeper run` inside an application that already runs under the same lock.
//!
//! It would wait for itself. So it starts its command at once, under the token that is held, and
//! leaves the lock to the outer one. (Curator's `InterProcessMutex` is reentrant per thread; here the
//! environment says whom to ask, and the outer keeper who is inside.)

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockkeeper_lock::Agreement;

use crate::args::{Access, RunSettings};
use crate::client;
use crate::exit::{Exit, Failure};
use crate::guard;
use crate::view::Snapshot;

/// Which ensemble the lock is held in: what `LOCKKEEPER_CONNECT` was for the outer run. Not that
/// variable itself, which users set for the inner one.
pub(super) const HELD_CONNECT: &str = "LOCKKEEPER_HELD_CONNECT";

/// The outer run is there and holds: the command may run as it is.
pub(super) struct Nested(());

/// Whether an outer run of this lock is above us. Its keeper says whether it holds, and whether we descend from it;
/// what a variable says may be left over from somewhere else.
///
/// # Errors
/// When the outer run does not know whether we descend from it, has lost the lock, takes it for another kind of lock, or
/// holds it for reading and we want to write; and when it holds another lock and may pause us.
pub(super) fn check(settings: &RunSettings) -> Result<Option<Nested>, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(socket) = std::env::var_os("LOCKKEEPER_SOCKET").map(PathBuf::from) else {
        return Ok(None);
    };
    let Ok(outer) = client::snapshot(&socket) else {
        return Ok(None);
    };
    let is_same = variable(HELD_CONNECT).as_deref() == Some(&settings.lock.connect.to_string())
        && outer.lock == settings.lock.lock;
    if !is_same && outer.pauses {
        refuse_to_be_paused(&outer, &socket)?;
    }
    let (true, Some(token)) = (is_same, variable("LOCKKEEPER_FENCING_TOKEN")) else {
        return Ok(None);
    };
    // The environment outlives the application: `at`, cron and servers of terminals keep it for processes that nobody
    // stops with the lock. They wait like everybody else.
    if !client::is_inside(&socket)? {
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
    let asked = Agreement::of(settings.lock.access.mode());
    if outer.agreement() != Some(asked) {
        let agreed = outer
            .agreement()
            .map_or_else(|| outer.access.clone(), |agreed| agreed.to_string());
        return Err(Failure::usage(format!(
            "the outer `lockkeeper run` holds {} of {agreed}, and this one is set to {asked}: give both the same \
             --access and --max-holders",
            outer.lock
        )));
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

/// Who stops us stops our guard: that wakes together with the application that it should have ended meanwhile.
fn refuse_to_be_paused(outer: &Snapshot, socket: &Path) -> Result<(), Failure> {
    // A keeper that cannot tell is that of a pod, whose variables are in this container alone.
    if client::is_inside(socket).is_ok_and(|is_inside| !is_inside) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the lock {} is held around this run and may pause it, with the guard that has to stop the command in time: take \
         --on-loss kill and --on-suspect continue there",
        outer.lock
    )))
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
