//! The Unix socket on which the application, and anybody else in the pod, asks about the lock.

use std::fs::DirBuilder;
use std::future::Future;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};

use crate::exit::Failure;
use crate::http::{self, Listener};
use crate::probes::health::Health;
use crate::view::LockView;

mod api;
mod events;

/// Size of `sun_path` in `struct sockaddr_un` (unix(7)), with the zero byte at its end.
const SUN_PATH_BYTES: usize = 108;

/// What a client asks the keeper to do.
#[derive(Debug)]
pub enum Command {
    /// Stop the application, release the lock, queue again at the end. The answer comes when the
    /// release is confirmed, or says in a sentence why it could not be.
    StepDown(oneshot::Sender<Result<(), String>>),
    /// The pod is ending: start nothing any more, and have everything stopped before its grace is over.
    Terminating(oneshot::Sender<Result<(), String>>),
}

/// A bound socket. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct SocketServer {
    listener: UnixListener,
    file: SocketFile,
}

/// The file of a socket that is ours.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode: somebody may have put another file there.
    identity: (u64, u64),
    /// A directory made for the socket alone.
    private_directory: Option<PathBuf>,
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
        &self.file.path
    }

    /// Answers until `stop` completes. `release_timeout` is how long a client waits for the
    /// confirmation of a release.
    pub async fn serve(
        self,
        view: LockView,
        health: Health,
        commands: mpsc::Sender<Command>,
        release_timeout: Duration,
        stop: impl Future<Output = ()>,
    ) {
        let Self { listener, file } = self;
        http::serve(
            Listener::Unix(listener),
            api::LockApi::new(view, health, commands, release_timeout),
            stop,
        )
        .await;
        drop(file);
    }

    fn bind_in(path: &Path, private_directory: Option<PathBuf>) -> Result<Self, Failure> {
        check_path(path).map_err(Failure::usage)?;
        let cannot = |error: io::Error| {
            Failure::unavailable(format!("cannot make the socket {}: {error}", path.display()))
        };
        // Two processes must not both find a dead socket, and then one remove the other's live one.
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let _alone = lock_directory(parent.unwrap_or(Path::new("."))).map_err(cannot)?;
        remove_dead(path)?;
        let listener = UnixListener::bind(path).map_err(cannot)?;
        let metadata = std::fs::symlink_metadata(path).map_err(cannot)?;
        let file = SocketFile {
            path: path.to_owned(),
            identity: (metadata.dev(), metadata.ino()),
            private_directory,
        };
        // Not left to the umask: the application may be another user. Who may ask is decided by
        // who can reach the directory.
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o666)).map_err(cannot)?;
        Ok(Self { listener, file })
    }
}

// === impl SocketFile ===

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        // Nothing is left to do about an error: the next process replaces a dead socket.
        if ours {
            let _ = std::fs::remove_file(&self.path);
        }
        if let Some(directory) = &self.private_directory {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// Holds the directory against others who make a socket in it; until the result is dropped.
fn lock_directory(directory: &Path) -> io::Result<std::fs::File> {
    /// Whoever has it needs less than a millisecond; an application that keeps it must not stop us for ever.
    const ATTEMPTS: u32 = 200;
    const PAUSE: Duration = Duration::from_millis(10);

    let file = std::fs::File::open(directory)?;
    for _ in 0..ATTEMPTS {
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => std::thread::sleep(PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other(
        "another process holds a lock (flock) on its directory",
    ))
}

fn remove_dead(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(Failure::unavailable(format!(
                "cannot make the socket {shown}: {error}"
            )));
        }
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(Failure::usage(format!(
                "{shown} exists and is not a socket: choose another --socket"
            )));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(|error| {
                Failure::unavailable(format!("cannot replace the dead socket {shown}: {error}"))
            })
        }
        Err(error) => Err(Failure::unavailable(format!(
            "{shown} exists, and whether anybody serves it cannot be found out: {error}"
        ))),
        Ok(_) => Err(Failure::usage(format!(
            "another process serves {shown}: choose another --socket or end that process"
        ))),
    }
}
