//! What a killed guard may have left behind, and the end of a keeper without it.
//!
//! Everything that the guard starts inherits two variables: the path of this run's socket, and the
//! token of the lock that was held. No other process has both: guard and anchor have no token, and
//! whoever only asks at the socket has none either. A process may have cleared its environment: so
//! finding none proves nothing, and the lock is abandoned in any case.

use std::path::Path;
use std::time::Duration;

use lockkeeper_lock::{BootClock, Clock, LockStatus};
use rustix::process::{Pid, Signal, kill_process};

use super::Keeper;
use super::policy::Kind;
use crate::exit::{Exit, Failure};
use crate::guard::ContainerKiller;
use crate::lease_env::LeaseEnv;

/// How long to look: a tree that forks while it is killed takes some rounds.
const ROUNDS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);

const TOKEN: &[u8] = b"LOCKKEEPER_FENCING_TOKEN=";

impl Keeper<'_> {
    /// The guard was killed: it cannot stop anything any more, and nobody can say that nothing is
    /// left. The anchor of `run` ends what it finds; so do we. The lock is not given away, it expires.
    pub(super) async fn orphaned(mut self, socket: &Path) -> Result<u8, Failure> {
        // First of all, and whatever else fails: our own end may be near, too.
        let removed = self.lease.as_ref().map_or(Ok(()), LeaseEnv::remove);
        let is_clear = self.killer.as_mut().is_none_or(ContainerKiller::kill);
        tracing::error!(
            is_clear,
            "The guard is gone; stopping what it left, and leaving the lock to expire"
        );
        self.metrics.abandoned();
        self.asking = None;
        self.lock = None;
        self.published.send_replace(LockStatus::new());
        match &mut self.killer {
            None => kill(socket, &BootClock).await,
            Some(killer) => kill_container(killer, self.policy.session_timeout, &BootClock).await,
        }
        removed?;
        Ok(match self.policy.kind {
            Kind::Signal => Exit::GateAnew.code(),
            _ => Exit::LockLost.code(),
        })
    }
}

/// Kills what carries `socket` and a token in its environment until nothing is found any more.
async fn kill(socket: &Path, clock: &impl Clock) {
    let mark = [b"LOCKKEEPER_SOCKET=", socket.as_os_str().as_encoded_bytes()].concat();
    for _ in 0..ROUNDS {
        let found = marked(&mark);
        if found.is_empty() {
            return;
        }
        for pid in found {
            // It may be gone, or another user's: then the anchor has more rights than we.
            let _ = kill_process(pid, Signal::KILL);
        }
        clock.sleep(PAUSE).await;
    }
}

/// Kills what appears in a container that has lost its guard, for `time`: a kubelet that found the lease file
/// a moment ago may be about to start it. In a pod our own container ends long before, with the guard that was
/// its first process.
async fn kill_container(killer: &mut ContainerKiller, time: Duration, clock: &impl Clock) {
    let end = clock.now() + time;
    while clock.now() < end {
        killer.kill();
        clock.sleep(PAUSE).await;
    }
}

fn marked(mark: &[u8]) -> Vec<Pid> {
    let own = rustix::process::getpid();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            entry
                .ok()?
                .file_name()
                .to_str()?
                .parse()
                .ok()
                .and_then(Pid::from_raw)
        })
        .filter(|pid| *pid != own)
        .filter(|pid| {
            std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).is_ok_and(|environment| {
                let has = |is: &dyn Fn(&[u8]) -> bool| environment.split(|byte| *byte == 0).any(is);
                has(&|variable| variable == mark) && has(&|variable| variable.starts_with(TOKEN))
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use lockkeeper_lock::BootInstant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A shell in the environment of the application of the run at `socket`.
    fn application(socket: &Path, script: &str) -> Child {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).env("LOCKKEEPER_SOCKET", socket);
        shell.env("LOCKKEEPER_FENCING_TOKEN", "7");
        shell
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        shell.spawn().expect("a shell")
    }

    fn kill_and_wait(socket: &Path) {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime")
            .block_on(kill(socket, &BootClock));
    }

    fn mark(socket: &Path) -> Vec<u8> {
        [b"LOCKKEEPER_SOCKET=", socket.as_os_str().as_encoded_bytes()].concat()
    }

    /// Waits until `count` processes of the run are there.
    fn until_there(socket: &Path, count: usize) {
        let end = BootInstant::now() + PATIENCE;
        while marked(&mark(socket)).len() != count {
            assert!(BootInstant::now() < end, "{count} processes are not there");
            std::thread::sleep(PAUSE);
        }
    }

    #[test]
    fn everything_that_carries_the_socket_is_killed_also_what_left_its_parent_and_session() {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("lock.sock");
        let mut shell = application(
            &socket,
            "(setsid sh -c '(trap \"\" TERM; sleep 60; :) & exec sleep 60' &); sleep 60; :",
        );
        // Two shells, and a sleep of each beside the one that was executed in place.
        until_there(&socket, 5);
        kill_and_wait(&socket);
        assert_eq!(marked(&mark(&socket)), []);
        shell.wait().expect("reaped");
    }

    #[test]
    fn a_tree_that_forks_while_it_is_killed_is_killed_to_the_last() {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("lock.sock");
        let mut shell = application(
            &socket,
            "n=0; while [ $n -lt 400 ]; do n=$((n+1)); (setsid sleep 60 &); done; sleep 60; :",
        );
        let end = BootInstant::now() + PATIENCE;
        while marked(&mark(&socket)).len() < 3 {
            assert!(BootInstant::now() < end, "it does not fork");
        }
        kill_and_wait(&socket);
        assert_eq!(marked(&mark(&socket)), []);
        shell.wait().expect("reaped");
    }

    #[test]
    fn who_only_asks_at_the_socket_or_belongs_to_another_run_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("lock.sock");
        let sleep = || {
            let mut sleep = Command::new("sleep");
            sleep.arg("60").stdin(Stdio::null()).stdout(Stdio::null());
            sleep
        };
        let mut monitor = sleep()
            .env("LOCKKEEPER_SOCKET", &socket)
            .spawn()
            .expect("spawned");
        let mut other = application(&directory.path().join("lock.sock2"), "exec sleep 60");
        let mut own = application(&socket, "exec sleep 60");
        until_there(&socket, 1);
        kill_and_wait(&socket);
        assert!(!own.wait().expect("reaped").success());
        for bystander in [&mut monitor, &mut other] {
            assert_eq!(bystander.try_wait().expect("asked"), None, "it was killed");
            bystander.kill().expect("killed");
            bystander.wait().expect("reaped");
        }
    }
}
