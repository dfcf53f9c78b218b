//! Marks for the processes that a harness starts, and the removal of what a killed harness left.
//!
//! Children die with the harness (`PR_SET_PDEATHSIG`), but their own children may survive. Every process
//! inherits the mark in its environment, and is found by it. Network namespaces have no names and vanish with
//! the last process in them.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal};

/// The environment variable that carries the mark.
pub const MARK: &str = "LOCKKEEPER_E2E_OWNER";
const DIRECTORY_PREFIX: &str = "lockkeeper-e2e.";

/// One harness process, distinct from earlier ones with the same process id, and one ensemble of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pid_namespace: String,
    pid: u32,
    started: u64,
    serial: u32,
}

impl Owner {
    /// A new owner in this process: each ensemble ends only its own processes.
    pub fn new() -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let pid = std::process::id();
        Self {
            pid_namespace: pid_namespace(),
            pid,
            started: start_time(pid).unwrap_or(0),
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The value of [`MARK`] for processes of this owner.
    pub fn mark(&self) -> String {
        format!(
            "{}.{}.{}.{}",
            self.pid_namespace, self.pid, self.started, self.serial
        )
    }

    /// A directory for this owner's data, removed by Drop or by the next harness.
    pub fn directory(&self) -> std::io::Result<tempfile::TempDir> {
        tempfile::Builder::new()
            .prefix(&format!("{DIRECTORY_PREFIX}{}.", self.mark()))
            .tempdir()
    }

    /// The processes that carry this owner's mark, except zombies.
    pub fn processes(&self) -> Vec<Pid> {
        marked()
            .into_iter()
            .filter(|(_, owner)| owner == self)
            .map(|(pid, _)| pid)
            .collect()
    }

    /// Kills everything that carries this owner's mark, with all that it forks meanwhile.
    pub fn kill_all(&self) {
        kill_until_none(|| self.processes());
    }

    pub(crate) fn parse(mark: &str) -> Option<Self> {
        let mut parts = mark.splitn(5, '.');
        Some(Self {
            pid_namespace: parts.next()?.to_owned(),
            pid: parts.next()?.parse().ok()?,
            started: parts.next()?.parse().ok()?,
            serial: parts.next()?.parse().ok()?,
        })
    }

    /// Process ids of another PID namespace mean nothing here, so such an owner counts as alive.
    pub(crate) fn is_dead(&self) -> bool {
        self.pid_namespace == pid_namespace() && start_time(self.pid) != Some(self.started)
    }
}

impl Default for Owner {
    fn default() -> Self {
        Self::new()
    }
}

/// Ends the processes and removes the directories of harnesses that were killed.
pub fn sweep_leftovers() {
    kill_until_none(|| {
        marked()
            .into_iter()
            .filter(|(_, owner)| owner.is_dead())
            .map(|(pid, _)| pid)
            .collect()
    });
    for directory in leftover_directories() {
        // Another harness may be sweeping, too; a directory that cannot be removed belongs to another user.
        let _ = fs::remove_dir_all(directory);
    }
}

/// A process may fork while it is being killed, so this looks again until it finds none. It is bounded, since
/// a process in uninterruptible sleep dies only later. Others need a processor to die.
fn kill_until_none(find: impl Fn() -> Vec<Pid>) {
    const ROUNDS: usize = 2000;
    for _ in 0..ROUNDS {
        let found = find();
        if found.is_empty() {
            return;
        }
        for pid in found {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn leftover_directories() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let mark = name.to_str().and_then(|name| name.strip_prefix(DIRECTORY_PREFIX));
            mark.and_then(Owner::parse).is_some_and(|owner| owner.is_dead())
        })
        .map(|entry| entry.path())
        .collect()
}

fn marked() -> Vec<(Pid, Owner)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = std::process::id();
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|&pid| pid != own)
        .filter_map(|pid| {
            // Unreadable for processes of other users, empty for zombies.
            let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
            let mark = environment
                .split(|&byte| byte == 0)
                .find_map(|entry| entry.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))?;
            Some((
                Pid::from_raw(pid as i32)?,
                Owner::parse(std::str::from_utf8(mark).ok()?)?,
            ))
        })
        .collect()
}

fn pid_namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy()
        .chars()
        .filter(char::is_ascii_digit)
        .collect()
}

/// True while there is such a process and it has not ended; a zombie has.
pub fn is_running(pid: u32) -> bool {
    start_time(pid).is_some()
}

/// Start time of a process in clock ticks since boot, or `None` when there is no such process: field 22 of
/// `/proc/PID/stat`. The second field, the name, may contain spaces and parentheses.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    // A zombie has ended, and its parent may never wait for it.
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_names_its_owner_and_a_living_owner_is_not_dead() {
        let owner = Owner::new();
        assert_eq!(Owner::parse(&owner.mark()), Some(owner.clone()));
        assert!(!owner.is_dead());
    }

    #[test]
    fn an_owner_with_a_reused_process_id_is_dead_and_one_of_another_pid_namespace_is_left_alone() {
        let owner = Owner::new();
        assert!(
            Owner {
                started: owner.started + 1,
                ..owner.clone()
            }
            .is_dead()
        );
        assert!(
            !Owner {
                pid_namespace: "1".to_owned(),
                started: 1,
                ..owner
            }
            .is_dead()
        );
    }
}
