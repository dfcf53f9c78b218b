//! The file by which the kubelet itself refuses to start the application of a pod without the lock.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use lockkeeper_daemon::exit::{Exit, Failure};
use lockkeeper_lock::FencingToken;

/// `lease.env`: there only while the lock is held. The guarded container takes its environment
/// from it through a required `fileKeyRef`, so without it the kubelet starts nothing.
///
/// It is removed *before* anything is stopped: else a container that was just killed could be
/// started again between the kill and the removal.
#[derive(Debug)]
pub(crate) struct LeaseEnv {
    path: PathBuf,
    unfinished: PathBuf,
}

impl LeaseEnv {
    /// The file at `path`, which is not there at first: one that an earlier process left is removed.
    ///
    /// # Errors
    /// When its directory is missing, or when the old file cannot be removed.
    pub(crate) fn new(path: PathBuf) -> Result<Self, Failure> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Failure::usage(format!(
                "{} cannot be the lease file; give the path of a file",
                path.display()
            )));
        };
        if !Path::new(".").join(directory).is_dir() {
            return Err(Failure::usage(format!(
                "the lease file cannot be {}: its directory does not exist",
                path.display()
            )));
        }
        let mut unfinished = std::ffi::OsString::from(".");
        unfinished.push(name);
        unfinished.push(".new");
        let lease = Self {
            unfinished: directory.join(unfinished),
            path,
        };
        lease.remove()?;
        Ok(lease)
    }

    /// Writes the token. A reader finds the whole file or none.
    ///
    /// # Errors
    /// When it cannot be written; there is no file then.
    pub(crate) fn write(&self, token: FencingToken) -> Result<(), Failure> {
        let result = self
            .write_unfinished(token)
            .and_then(|()| std::fs::rename(&self.unfinished, &self.path));
        result.map_err(|error| {
            let _ = std::fs::remove_file(&self.unfinished);
            Failure::new(
                Exit::CannotCreate,
                format!("cannot write the lease file {}: {error}", self.path.display()),
            )
        })
    }

    /// Removes the file; it is no error when there is none.
    ///
    /// # Errors
    /// When it is still there.
    pub(crate) fn remove(&self) -> Result<(), Failure> {
        for path in [&self.path, &self.unfinished] {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Failure::software(format!(
                        "cannot remove the lease file {}: {error}",
                        path.display()
                    )));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn write_unfinished(&self, token: FencingToken) -> io::Result<()> {
        // Other users may write into the directory: the file is created anew, so that no link of theirs is followed.
        match std::fs::remove_file(&self.unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.unfinished)?;
        // The single quotes are part of the kubelet's format (KEP-3721).
        writeln!(file, "LOCKKEEPER_FENCING_TOKEN='{token}'")?;
        // Not left to the umask: the kubelet and the application may be other users.
        file.set_permissions(PermissionsExt::from_mode(0o644))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_the_token_in_single_quotes_while_the_lock_is_held() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("lease.env");
        let lease = LeaseEnv::new(path.clone()).unwrap();
        assert!(!path.exists());
        for token in [FencingToken(7), FencingToken(4_294_967_331)] {
            lease.write(token).unwrap();
            let content = std::fs::read_to_string(&path).unwrap();
            assert_eq!(content, format!("LOCKKEEPER_FENCING_TOKEN='{token}'\n"));
            assert_eq!(
                std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
                0o644
            );
            assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
        }
        lease.remove().unwrap();
        lease.remove().unwrap();
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_an_earlier_process_left_is_gone_before_anything_is_asked() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("lease.env");
        std::fs::write(&path, "LOCKKEEPER_FENCING_TOKEN='1'\n").unwrap();
        std::fs::write(scratch.path().join(".lease.env.new"), "LOCK").unwrap();
        LeaseEnv::new(path).unwrap();
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_link_that_somebody_laid_in_the_way_is_not_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let victim = scratch.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let lease = LeaseEnv::new(scratch.path().join("lease.env")).unwrap();
        std::os::unix::fs::symlink(&victim, scratch.path().join(".lease.env.new")).unwrap();
        lease.write(FencingToken(1)).unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn a_missing_directory_and_a_file_that_cannot_be_written_are_said_in_a_sentence() {
        let scratch = tempfile::tempdir().unwrap();
        let failure = LeaseEnv::new(scratch.path().join("none/lease.env")).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(
            failure.sentence.ends_with("its directory does not exist"),
            "{failure}"
        );

        let directory = scratch.path().join("gone");
        std::fs::create_dir(&directory).unwrap();
        let lease = LeaseEnv::new(directory.join("lease.env")).unwrap();
        std::fs::remove_dir(&directory).unwrap();
        let failure = lease.write(FencingToken(1)).unwrap_err();
        assert_eq!(failure.exit, Exit::CannotCreate);
        assert!(
            failure.sentence.starts_with("cannot write the lease file"),
            "{failure}"
        );
    }
}
