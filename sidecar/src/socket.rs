//! The Unix socket on which the application, and every other process in the pod, asks about the lock.

use std::fs::DirBuilder;
use std::future::Future;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use lockkeeper_daemon::exit::Failure;
use lockkeeper_daemon::http::{self, Routes};
use tokio::net::UnixListener;

use crate::socket_file::{SocketFile, check_path};

mod api;
mod events;
mod inside;

pub use self::api::{Command, Served};
pub(crate) use self::inside::Inside;
pub use self::inside::Tree;

/// Every process that reaches the file may ask. Whether it may change something depends on its user.
const MODE: u32 = 0o666;

/// A bound socket. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct SocketServer {
    listener: UnixListener,
    file: SocketFile,
}

/// The mode of a directory that only its owner may enter.
const PRIVATE: u32 = 0o700;

/// Whether this is a directory of our user that no other may enter.
fn is_private(directory: &Path) -> bool {
    std::fs::symlink_metadata(directory).is_ok_and(|metadata| {
        metadata.is_dir()
            && metadata.uid() == rustix::process::geteuid().as_raw()
            && metadata.mode() & 0o777 == PRIVATE
    })
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
        match DirBuilder::new().mode(PRIVATE).create(directory) {
            Ok(()) => {}
            // The keeper before us was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_private(directory) => {}
            Err(error) => {
                let directory = directory.display();
                return Err(Failure::unavailable(format!(
                    "cannot make the directory {directory} for the socket: {error}"
                )));
            }
        }
        Self::bind_in(path, Some(directory.to_owned())).inspect_err(|_| {
            let _ = std::fs::remove_dir(directory);
        })
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Answers until `stop` completes.
    pub async fn serve(self, served: Served, stop: impl Future<Output = ()>) {
        let Self { listener, file } = self;
        http::serve(listener, routes(served), stop).await;
        drop(file);
    }

    fn bind_in(path: &Path, private_directory: Option<PathBuf>) -> Result<Self, Failure> {
        let (listener, file) = SocketFile::bind(path, "--socket", MODE, private_directory)?;
        Ok(Self { listener, file })
    }
}
