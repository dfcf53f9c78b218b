//! Where the keeper's socket is: a folder in which the application may write.
//!
//! A link there could lead into a file system that does not answer, and the guard, which has one thread, would miss its
//! deadline in it. So the folder is opened once, before anything runs, and no link in it is followed.

use std::ffi::{CStr, CString, OsStr};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Room for `/proc/self/fd/` and a number of ten digits.
const PATH_BYTES: usize = 32;

/// The place of a socket.
#[derive(Debug)]
pub(super) struct SocketPlace {
    folder: PathBuf,
    name: CString,
    /// The folder, once it was there.
    opened: Option<OwnedFd>,
}

impl SocketPlace {
    /// # Errors
    /// When no socket can have this path.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        SocketAddrUnix::new(path)?;
        let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
        if name.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        Ok(Self {
            folder: folder.to_owned(),
            name: CString::new(name)?,
            opened: None,
        })
    }

    /// Connects. Neither waits nor asks for memory once the folder is open.
    pub(super) fn connect(&mut self) -> Result<OwnedFd, Errno> {
        self.open_folder()?;
        let folder = self.opened.as_ref().ok_or(Errno::NOENT)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(folder, &self.name, flags, Mode::empty())?;
        if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::Socket {
            return Err(Errno::NOTSOCK);
        }
        // This link is the file that was opened, and no path (proc_pid_fd(5)).
        let mut path = [0; PATH_BYTES];
        write!(&mut path[..], "/proc/self/fd/{}\0", file.as_raw_fd()).map_err(|_| Errno::NAMETOOLONG)?;
        let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::NAMETOOLONG)?;
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &address)?;
        Ok(socket)
    }

    /// A folder that was deleted, and may have been made again, is opened again.
    fn open_folder(&mut self) -> Result<(), Errno> {
        let is_there = |folder: &OwnedFd| rustix::fs::fstat(folder).is_ok_and(|stat| stat.st_nlink > 0);
        if !self.opened.as_ref().is_some_and(is_there) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            self.opened = Some(rustix::fs::open(&self.folder, flags, Mode::empty())?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn no_link_in_the_place_of_the_socket_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("guard.sock");
        let mut place = SocketPlace::new(&path).unwrap();
        assert_eq!(place.connect().unwrap_err(), Errno::NOENT);
        let elsewhere = directory.path().join("elsewhere");
        let _listener = UnixListener::bind(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert_eq!(place.connect().unwrap_err(), Errno::NOTSOCK);
        std::fs::rename(&elsewhere, &path).unwrap();
        place.connect().unwrap();
    }

    #[test]
    fn a_link_in_the_place_of_the_folder_leads_nowhere_once_the_folder_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let [folder, moved, other] = ["folder", "moved", "other"].map(|name| directory.path().join(name));
        std::fs::create_dir(&folder).unwrap();
        std::fs::create_dir(&other).unwrap();
        let mut place = SocketPlace::new(&folder.join("guard.sock")).unwrap();
        let _listener = UnixListener::bind(folder.join("guard.sock")).unwrap();
        place.connect().unwrap();
        std::fs::rename(&folder, &moved).unwrap();
        std::os::unix::fs::symlink(&other, &folder).unwrap();
        place.connect().unwrap();
        // A folder that was deleted and made again is found.
        std::fs::remove_dir_all(&moved).unwrap();
        std::fs::remove_file(&folder).unwrap();
        assert!(place.connect().is_err());
        std::fs::create_dir(&folder).unwrap();
        let _again = UnixListener::bind(folder.join("guard.sock")).unwrap();
        place.connect().unwrap();
    }
}
