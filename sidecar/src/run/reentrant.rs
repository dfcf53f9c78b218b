//! `lockkeeper run` inside an application that already runs under the same lock.
//!
//! It would wait for itself. So it starts its command at once, under the token that is held, and
//! leaves the lock to the outer one. (Curator's `InterProcessMutex` is reentrant per thread; here the environment
//! names the socket of the outer keeper, and that keeper knows which processes are inside.)

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockkeeper_daemon::exit::{self, Exit, Failure};
use lockkeeper_lock::zookeeper::ConnectString;
use lockkeeper_lock::{Agreement, BootInstant};

use crate::access::Access;
use crate::args::RunSettings;
use crate::client::{self, Word};
use crate::view::Snapshot;

/// Which ensemble the lock is held in: what `LOCKKEEPER_CONNECT` was for the outer run. Not that
/// variable itself, which users set for the inner one.
pub(super) const HELD_CONNECT: &str = "LOCKKEEPER_HELD_CONNECT";

/// The outer run holds the lock: the command may run at once.
pub(super) struct Nested(());

/// Which lock the outer run has, as seen from the inner one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OuterLock {
    Same,
    Another,
    /// One with the same path, but other server names. They may be the same servers.
    Unclear,
}

/// How long the keeper of the outer run may take to come back, if it was killed.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

/// What the outer run says. Its guard may be starting another keeper just now: then its socket is there, and nobody
/// answers, or the answer has no token yet.
fn look(socket: &Path) -> Result<Snapshot, Failure> {
    let end = BootInstant::now() + PATIENCE;
    let is_inside = std::env::var_os(HELD_CONNECT).is_some();
    loop {
        let outer = client::snapshot(socket, Word::Own);
        let may_come = match &outer {
            Ok(outer) => outer.fencing_token.is_none(),
            Err(_) => socket.exists(),
        };
        if !is_inside || !may_come || BootInstant::now() >= end {
            return outer;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whether an outer run of this lock is above us. Its keeper says whether it holds, and whether we descend from it;
/// a variable may be left over from another environment. Only a keeper of our own user or of root is trusted: another
/// user may have taken the path, to make us run beside a holder.
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
    let outer = match look(&socket) {
        Ok(outer) => outer,
        Err(failure) => {
            // The keeper of a pod often runs as another user. An answer that only prevents our run need not be
            // trusted.
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
    // The environment outlives the application: `at`, cron and terminal servers keep it for processes that are not
    // stopped with the lock. They wait like every other contender.
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

/// A SIGSTOP for this run also stops our guard: then it wakes only together with the application that it should have
/// ended meanwhile.
fn refuse_to_be_paused(outer: &Snapshot, socket: &Path) -> Result<(), Failure> {
    // A keeper that cannot tell is that of a pod, whose variables are in this container alone.
    if client::is_inside(socket, Word::Anybodys).is_ok_and(|is_inside| !is_inside) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the outer run, which holds {}, may pause this run together with its guard, and a paused guard cannot stop the \
         command in time: start the outer run with --on-loss kill and --on-suspect continue (in a pod: onLoss: Kill and \
         onSuspect: Continue)",
        outer.lock
    )))
}

/// If the servers are the same ones, the outer run would wait for this one, and this one for the outer one.
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
    /// Each argument is the servers and the path below their chroot. A server belongs to one ensemble.
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
        Failure::new(
            Exit::of_exec(&error),
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
