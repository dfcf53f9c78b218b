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
use lockkeeper_lock::zookeeper::ConnectString;

use crate::args::{Access, RunSettings};
use crate::client::{self, Word};
use crate::exit::{self, Exit, Failure};
use crate::guard;
use crate::view::Snapshot;

/// Which ensemble the lock is held in: what `LOCKKEEPER_CONNECT` was for the outer run. Not that
/// variable itself, which users set for the inner one.
pub(super) const HELD_CONNECT: &str = "LOCKKEEPER_HELD_CONNECT";

/// The outer run is there and holds: the command may run as it is.
pub(super) struct Nested(());

/// Which lock the outer run has, as seen from the inner one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OuterLock {
    /// The same one.
    Same,
    Another,
    /// One of the same path, at servers that are written in another way. They may be the same servers.
    Unclear,
}

/// Whether an outer run of this lock is above us. Its keeper says whether it holds, and whether we descend from it;
/// what a variable says may be left over from somewhere else. A keeper of another user than our own and root is not
/// believed: it may have made the path anew, to have us run beside a holder.
///
/// # Errors
/// When the outer run does not know whether we descend from it, has lost the lock, takes it for another kind of lock, or
/// holds it for reading and we want to write; when it holds another lock and may pause us; and when it cannot be told
/// whether its lock is the same one.
pub(super) fn check(settings: &RunSettings) -> Result<Option<Nested>, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(socket) = std::env::var_os("LOCKKEEPER_SOCKET").map(PathBuf::from) else {
        return Ok(None);
    };
    let outer = match client::snapshot(&socket, Word::Own) {
        Ok(outer) => outer,
        Err(failure) => {
            // The keeper of a pod is often of another user. Who only keeps us from running need not be believed.
            if let Ok(outer) = client::snapshot(&socket, Word::Anybodys)
                && outer.pauses
            {
                refuse_to_be_paused(&outer, &socket)?;
            }
            // Mostly the outer run has ended, and its socket with it.
            if socket.exists() && variable(HELD_CONNECT).is_some() {
                exit::tell(&format!("going on as outside of any run: {failure}"));
            }
            return Ok(None);
        }
    };
    let held = variable(HELD_CONNECT).and_then(|connect| connect.parse().ok());
    let ours = (&settings.lock.connect, &*settings.lock.lock);
    let which = held.as_ref().map_or(OuterLock::Another, |connect| {
        OuterLock::of((connect, &outer.lock), ours)
    });
    if which != OuterLock::Same && outer.pauses {
        refuse_to_be_paused(&outer, &socket)?;
    }
    if let (OuterLock::Unclear, Some(held)) = (which, held) {
        refuse_to_wait_for_itself(&outer, &held, settings, &socket)?;
    }
    let (OuterLock::Same, Some(token)) = (which, variable("LOCKKEEPER_FENCING_TOKEN")) else {
        return Ok(None);
    };
    // The environment outlives the application: `at`, cron and servers of terminals keep it for processes that nobody
    // stops with the lock. They wait like everybody else.
    if !client::is_inside(&socket, Word::Own)? {
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
    if client::is_inside(socket, Word::Anybodys).is_ok_and(|is_inside| !is_inside) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the lock {} is held around this run and may pause it, with the guard that has to stop the command in time: take \
         --on-loss kill and --on-suspect continue there",
        outer.lock
    )))
}

/// Where the servers are the same ones after all, the outer run would wait for this one, and this one for the outer one.
fn refuse_to_wait_for_itself(
    outer: &Snapshot,
    held: &ConnectString,
    settings: &RunSettings,
    socket: &Path,
) -> Result<(), Failure> {
    if !client::is_inside(socket, Word::Own)? {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the outer `lockkeeper run` holds {} at {held}, and this one names a lock of the same path at {}: if these are \
         servers of one ensemble, give both the same --connect, since this run would wait for its own end; if they are \
         not, run this one without the variable LOCKKEEPER_SOCKET",
        outer.lock, settings.lock.connect
    )))
}

// === impl OuterLock ===

impl OuterLock {
    /// Each is the servers and the path below their chroot. A server belongs to one ensemble.
    fn of(outer: (&ConnectString, &str), ours: (&ConnectString, &str)) -> Self {
        let path = |(connect, path): (&ConnectString, &str)| format!("{}{path}", connect.chroot());
        if path(outer) != path(ours) {
            return Self::Another;
        }
        let is_shared = outer.0.servers().iter().any(|outer| {
            let mut ours = ours.0.servers().iter();
            ours.any(|ours| (&ours.host, ours.port) == (&outer.host, outer.port))
        });
        if is_shared { Self::Same } else { Self::Unclear }
    }
}

// === impl Nested ===

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outer_lock_is_known_by_one_of_its_servers_and_its_whole_path() {
        let which = |outer: (&str, &str), ours: (&str, &str)| {
            let connect = |text: &str| text.parse::<ConnectString>().unwrap();
            OuterLock::of((&connect(outer.0), outer.1), (&connect(ours.0), ours.1))
        };
        let outer = ("zk1:2181,zk2:2181,zk3:2181", "/locks/report");
        for same in [
            outer,
            ("zk2", "/locks/report"),
            ("zk3:2181,zk1:2181", "/locks/report"),
            ("zk1:2181/locks", "/report"),
        ] {
            assert_eq!(which(outer, same), OuterLock::Same, "{same:?}");
        }
        for another in [("zk1:2181", "/locks/other"), ("zk1:2181/team", "/locks/report")] {
            assert_eq!(which(outer, another), OuterLock::Another, "{another:?}");
        }
        for unclear in [
            ("zk1.example.org:2181", "/locks/report"),
            ("zk1:2182", "/locks/report"),
        ] {
            assert_eq!(which(outer, unclear), OuterLock::Unclear, "{unclear:?}");
        }
    }
}
