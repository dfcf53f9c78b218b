//! The Unix socket on which the application, and anybody else in the pod, asks about the lock.

use std::fs::DirBuilder;
use std::future::Future;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};

use crate::exit::Failure;
use crate::http::{self, Listener, Routes};
use crate::peer::Users;
use crate::probes::health::Health;
use crate::view::LockView;

mod api;
mod events;
mod file;
mod inside;

pub(crate) use self::file::SocketFile;
pub(crate) use self::inside::Inside;
pub use self::inside::Tree;

/// Everybody who reaches the file may ask; who may change something is decided by the peer's user.
const MODE: u32 = 0o666;

/// Size of `sun_path` in `struct sockaddr_un` (unix(7)), with the zero byte at its end.
const SUN_PATH_BYTES: usize = 108;

/// What a client asks the keeper to do.
#[derive(Debug)]
pub enum Command {
    /// Stop the application, release the lock, queue again at the end. The answer comes when the
    /// release is confirmed, or says in a sentence why it could not be.
    StepDown(oneshot::Sender<Result<(), String>>),
    /// Leave the lock to expire though something has outlived its deadline.
    AbandonSurvivors(oneshot::Sender<Result<(), String>>),
    /// The pod is ending: start nothing any more, and have everything stopped before its grace is over.
    Terminating(oneshot::Sender<Result<(), String>>),
}

/// What is served at the socket, and to whom.
#[derive(Clone, Debug)]
pub struct Served {
    /// The lock.
    pub view: LockView,
    /// The application.
    pub health: Health,
    /// Where wishes go.
    pub commands: mpsc::Sender<Command>,
    /// How long a client waits for the confirmation of a release.
    pub release_timeout: Duration,
    /// Who may change something; everybody may ask.
    pub users: Users,
    /// The application's processes, where this keeper can see them (`run`).
    pub tree: Option<Tree>,
}

/// A bound socket. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct SocketServer {
    listener: UnixListener,
    file: SocketFile,
}

/// Checks that a path can be one of a Unix socket.
///
/// # Errors
/// What is wrong with it, in one sentence.
pub fn check_path(path: &Path) -> Result<(), String> {
    let bytes = path.as_os_str().len();
    if bytes == 0 || path.file_name().is_none() {
        return Err("the path of a socket names a file, such as /run/lockkeeper/lock.sock".to_owned());
    }
    if bytes >= SUN_PATH_BYTES {
        return Err(format!(
            "the path of a Unix socket has at most {} bytes and this one has {bytes}; take a shorter one",
            SUN_PATH_BYTES - 1
        ));
    }
    Ok(())
}

/// A new path for a socket in a directory of its own: below `$XDG_RUNTIME_DIR`, where that can be
/// used, else below `/tmp`.
pub fn private_path() -> PathBuf {
    let name = format!("lockkeeper-{:016x}/lock.sock", fastrand::u64(..));
    std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|base| base.is_absolute() && base.is_dir() && check_path(&base.join(&name)).is_ok())
        .filter(|base| rustix::fs::access(base, rustix::fs::Access::WRITE_OK).is_ok())
        .unwrap_or_else(|| PathBuf::from("/tmp"))
        .join(name)
}

/// What is answered.
pub(crate) fn routes(served: Served) -> impl Routes {
    api::LockApi::new(served)
}

// === impl SocketServer ===

impl SocketServer {
    /// Makes the socket at `path`, for all users who can reach it. One that a dead process left
    /// is replaced. To be called in a tokio runtime.
    ///
    /// # Errors
    /// When another process serves it, when there is something else, or when it cannot be made.
    pub fn bind(path: &Path) -> Result<Self, Failure> {
        Self::bind_in(path, None)
    }

    /// Binds at a path from [`private_path`], in a directory that is made for it and goes with it.
    ///
    /// # Errors
    /// As [`SocketServer::bind`].
    pub fn bind_private(path: &Path) -> Result<Self, Failure> {
        check_path(path).map_err(Failure::usage)?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().mode(0o700).create(directory).map_err(|error| {
            let directory = directory.display();
            Failure::unavailable(format!(
                "cannot make the directory {directory} for the socket: {error}"
            ))
        })?;
        Self::bind_in(path, Some(directory.to_owned())).inspect_err(|_| {
            let _ = std::fs::remove_dir(directory);
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Answers until `stop` completes.
    pub async fn serve(self, served: Served, stop: impl Future<Output = ()>) {
        let Self { listener, file } = self;
        http::serve(Listener::Unix(listener), routes(served), stop).await;
        drop(file);
    }

    fn bind_in(path: &Path, private_directory: Option<PathBuf>) -> Result<Self, Failure> {
        let (listener, file) = SocketFile::bind(path, "--socket", MODE, private_directory)?;
        Ok(Self { listener, file })
    }
}
