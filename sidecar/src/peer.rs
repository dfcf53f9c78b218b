//! The peer of a Unix socket: its user, and its process, whose end can be observed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::io::unix::AsyncFd;

use crate::sys;

/// The users who may do something at a socket: this process's own, root, and those that are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Users {
    own: u32,
    named: Named,
}

/// Users beside our own and root.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Named {
    These(Vec<u32>),
    Any,
}

/// A word of `--guard-user`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserName {
    Id(u32),
    Any,
}

/// The process that connected a socket. It is exactly this process, and no later one of its number.
#[derive(Debug)]
pub(crate) struct PeerProcess(AsyncFd<OwnedFd>);

/// What is known of the process that connected a socket.
#[derive(Debug)]
pub(crate) enum Peer {
    Process(PeerProcess),
    /// The kernel does not tell (before Linux 6.5).
    Unknown,
    Ended,
}

/// File system of pidfds.
const PID_FS_MAGIC: rustix::fs::FsWord = 0x5049_4446;

// === impl Users ===

impl Users {
    /// Our own and root.
    pub fn own() -> Self {
        Self::with(&[])
    }

    /// Our own, root, and those named.
    pub fn with(names: &[UserName]) -> Self {
        let ids = names.iter().map(|name| match name {
            UserName::Id(id) => Some(*id),
            UserName::Any => None,
        });
        Self {
            own: rustix::process::geteuid().as_raw(),
            named: ids.collect::<Option<_>>().map_or(Named::Any, Named::These),
        }
    }

    pub(crate) fn allow(&self, user: u32) -> bool {
        let is_named = match &self.named {
            Named::These(named) => named.contains(&user),
            Named::Any => true,
        };
        user == 0 || user == self.own || is_named
    }

    /// The permissions of a socket for these users alone. A file has room for one user, so that a socket for others is
    /// open to all, and looks at each. (Root in a container need not have `CAP_DAC_OVERRIDE`.)
    pub(crate) fn mode(&self) -> u32 {
        match &self.named {
            Named::These(named) if named.iter().all(|user| *user == self.own) => 0o600,
            _ => 0o666,
        }
    }
}

impl std::str::FromStr for UserName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "any" => Ok(Self::Any),
            id => id
                .parse()
                .map(Self::Id)
                .map_err(|_| "a user is a number, such as 65532, or `any`".to_owned()),
        }
    }
}

// === impl Peer ===

impl Peer {
    /// The process that connected `socket`.
    ///
    /// # Errors
    /// When there is no tokio runtime with I/O.
    pub(crate) fn of(socket: impl AsFd) -> io::Result<Self> {
        match sys::peer_pidfd(socket.as_fd()) {
            Ok(process) => PeerProcess::new(process).map(Self::Process),
            // unix(7), SO_PEERPIDFD: older kernels do not know the option. It is refused for a process that has been
            // reaped.
            Err(error) if is_unknown_option(&error) => Ok(Self::Unknown),
            Err(_) => Ok(Self::Ended),
        }
    }

    /// Whether the kernel tells which process has connected a socket.
    pub(crate) fn is_told() -> bool {
        UnixStream::pair().is_ok_and(|(ours, _theirs)| {
            !sys::peer_pidfd(ours.as_fd()).is_err_and(|error| is_unknown_option(&error))
        })
    }
}

fn is_unknown_option(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOPROTOOPT)
}

// === impl PeerProcess ===

impl PeerProcess {
    /// For a pidfd.
    ///
    /// # Errors
    /// When there is no tokio runtime with I/O.
    pub(crate) fn new(process: OwnedFd) -> io::Result<Self> {
        sys::watch_for_reading(process).map(Self)
    }

    /// Whether it has ended, with all its threads: its descriptor is readable then (pidfd_open(2)).
    pub(crate) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(self.0.get_ref(), PollFlags::IN)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    /// Whether these are known to be two processes. From Linux 6.9 on each process has an inode of its own in the file
    /// system of pidfds (`PID_FS_MAGIC`, linux/magic.h); before, all pidfds share one, and nothing is known.
    pub(crate) fn is_another_than(&self, other: &Self) -> bool {
        let inode = |process: &Self| {
            let fd = process.0.get_ref();
            let is_own = rustix::fs::fstatfs(fd).is_ok_and(|system| system.f_type == PID_FS_MAGIC);
            is_own
                .then(|| rustix::fs::fstat(fd).ok())
                .flatten()
                .map(|stat| stat.st_ino)
        };
        inode(self)
            .zip(inode(other))
            .is_some_and(|(ours, theirs)| ours != theirs)
    }

    /// Waits for its end. Cancel-safe.
    pub(crate) async fn ended(&self) {
        while !self.has_ended() {
            match self.0.readable().await {
                Ok(mut ready) => ready.clear_ready(),
                // The runtime is ending, and we with it.
                Err(_) => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_socket_is_for_its_own_user_for_root_and_for_those_that_are_named() {
        let own = rustix::process::geteuid().as_raw();
        let stranger = own + 1;
        for (names, allows, mode) in [
            (vec![], false, 0o600),
            (vec![UserName::Id(own)], false, 0o600),
            (vec![UserName::Id(stranger)], true, 0o666),
            (vec![UserName::Id(own), UserName::Id(stranger)], true, 0o666),
            (vec![UserName::Any], true, 0o666),
        ] {
            let users = Users::with(&names);
            assert!(users.allow(own) && users.allow(0));
            assert_eq!((users.allow(stranger), users.mode()), (allows, mode), "{names:?}");
        }
        assert!(!Users::with(&[UserName::Id(stranger)]).allow(stranger + 1));
    }

    #[test]
    fn two_processes_are_told_apart_and_one_is_not_from_itself() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        let _entered = runtime.enter();
        let process = |pid| {
            let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
            PeerProcess::new(pidfd).unwrap()
        };
        let own = process(rustix::process::getpid());
        let parent = process(rustix::process::getppid().unwrap());
        assert!(!own.is_another_than(&process(rustix::process::getpid())));
        assert!(own.is_another_than(&parent), "it takes Linux 6.9");
    }

    #[test]
    fn the_end_of_the_process_that_connected_is_seen() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        runtime.block_on(async {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("socket");
            let listener = UnixListener::bind(&path).unwrap();
            let own = UnixStream::connect(&path).unwrap();
            let Peer::Process(process) = Peer::of(listener.accept().unwrap().0).unwrap() else {
                panic!("no process: SO_PEERPIDFD needs Linux 6.5")
            };
            assert!(!process.has_ended());
            drop(own);

            let mut child = Command::new("sleep")
                .arg("60")
                .stdin(Stdio::null())
                .spawn()
                .unwrap();
            let pid = rustix::process::Pid::from_child(&child);
            let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
            let process = PeerProcess::new(pidfd).unwrap();
            assert!(!process.has_ended());
            child.kill().unwrap();
            process.ended().await;
            child.wait().unwrap();
        });
    }
}
