//! The file of a Unix socket: made where no process serves one, removed when it is ours.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_daemon::exit::Failure;
use tokio::net::UnixListener;

/// Size of `sun_path` in `struct sockaddr_un` (unix(7)), with the zero byte at its end.
const SUN_PATH_BYTES: usize = 108;

/// The file of a socket that is ours. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode: another process may have put another file there.
    identity: (u64, u64),
    /// A directory made for the socket alone.
    private_directory: Option<PathBuf>,
}

impl SocketFile {
    /// Listens at `path`, a socket of the option `option`, with these permissions. One that a dead process left is
    /// replaced. To be called in a tokio runtime.
    ///
    /// # Errors
    /// When another process serves it, when there is something else, or when it cannot be made.
    pub(crate) fn bind(
        path: &Path,
        option: &str,
        mode: u32,
        private_directory: Option<PathBuf>,
    ) -> Result<(UnixListener, Self), Failure> {
        check_path(path).map_err(Failure::usage)?;
        let cannot = |error: io::Error| {
            Failure::unavailable(format!("cannot make the socket {}: {error}", path.display()))
        };
        // Two processes must not both find a dead socket, and then one remove the other's live one. A directory of our
        // own has one process.
        let _alone = match private_directory {
            Some(_) => None,
            None => Some(lock_beside(path).map_err(cannot)?),
        };
        remove_dead(path, option)?;
        let listener = UnixListener::bind(path).map_err(cannot)?;
        let metadata = std::fs::symlink_metadata(path).map_err(cannot)?;
        let file = Self {
            path: path.to_owned(),
            identity: (metadata.dev(), metadata.ino()),
            private_directory,
        };
        // Not left to the umask: the application may be another user.
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).map_err(cannot)?;
        Ok((listener, file))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

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

/// Checks that a path can be one of a Unix socket.
///
/// # Errors
/// What is wrong with it, in one sentence.
pub(crate) fn check_path(path: &Path) -> Result<(), String> {
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

/// Excludes other processes that make a socket at the path, until the result is dropped. The lock is that of a file
/// beside it, which stays: every user who may read the directory could lock that.
fn lock_beside(path: &Path) -> io::Result<std::fs::File> {
    /// A process of ours needs it for less than a millisecond; an application that keeps it must not stop us for ever.
    const ATTEMPTS: u32 = 200;
    const PAUSE: Duration = Duration::from_millis(10);

    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let beside = PathBuf::from(beside);
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", beside.display()));
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    let file = options
        .custom_flags(libc::O_NOFOLLOW)
        .open(&beside)
        .map_err(named)?;
    let owner = file.metadata()?.uid();
    if owner != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!(
            "{} belongs to the user {owner}",
            beside.display()
        )));
    }
    for _ in 0..ATTEMPTS {
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => std::thread::sleep(PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other(format!(
        "another process holds a lock (flock) on {}",
        beside.display()
    )))
}

fn remove_dead(path: &Path, option: &str) -> Result<(), Failure> {
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
                "{shown} exists and is not a socket: choose another {option}"
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
            "{shown} exists, and it is unknown whether a process serves it: {error}"
        ))),
        Ok(_) => Err(Failure::usage(format!(
            "another process serves {shown}: choose another {option} or end that process"
        ))),
    }
}
