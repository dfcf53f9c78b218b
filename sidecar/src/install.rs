//! `lockkeeper install DIR`: copies this binary into a volume that the application's container sees.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use lockkeeper_daemon::exit::{Exit, Failure};

/// Name of the copy.
pub(crate) const FILE_NAME: &str = "lockkeeper";

/// Copies the running binary to `directory/lockkeeper` (mode 0555), making the directory (0755)
/// when it is missing. A process that executes the copy at the same moment gets the old or the new file, never a part
/// of it. Idempotent. Returns the path of the copy.
///
/// # Errors
/// A [`Failure`] of [`Exit::Usage`] when `directory` is something else, of
/// [`Exit::CannotCreate`] when it or the copy cannot be written.
pub fn install(directory: &Path) -> Result<PathBuf, Failure> {
    // Not `current_exe`: that is a name, under which there may be another file by now.
    install_file(Path::new("/proc/self/exe"), directory)
}

fn install_file(source: &Path, directory: &Path) -> Result<PathBuf, Failure> {
    make_directory(directory)?;
    let target = directory.join(FILE_NAME);
    let unfinished = directory.join(format!(".{FILE_NAME}.{}", std::process::id()));
    let copied = copy(source, &unfinished).and_then(|()| std::fs::rename(&unfinished, &target));
    if let Err(error) = copied {
        // It may not exist; the first error is the one to report.
        let _ = std::fs::remove_file(&unfinished);
        return Err(Failure::new(
            Exit::CannotCreate,
            format!("cannot write {}: {error}", target.display()),
        ));
    }
    // So that the name is there after a crash of the machine, as the content is.
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| {
            Failure::new(
                Exit::CannotCreate,
                format!("cannot write {} to the disk: {error}", directory.display()),
            )
        })?;
    Ok(target)
}

fn make_directory(directory: &Path) -> Result<(), Failure> {
    match std::fs::metadata(directory) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => {
            return Err(Failure::usage(format!(
                "cannot install into {}: it is not a directory",
                directory.display()
            )));
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(Failure::usage(format!(
                "cannot install into {}: a part of this path is not a directory",
                directory.display()
            )));
        }
        Err(_) => {}
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)
        .map_err(|error| {
            Failure::new(
                Exit::CannotCreate,
                format!("cannot make the directory {}: {error}", directory.display()),
            )
        })
}

fn copy(source: &Path, target: &Path) -> io::Result<()> {
    let mut from = File::open(source)?;
    // What an interrupted installation with the same process id left.
    match std::fs::remove_file(target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut to = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o500)
        .open(target)?;
    io::copy(&mut from, &mut to)?;
    // Not left to the umask: another user has to execute it.
    to.set_permissions(PermissionsExt::from_mode(0o555))?;
    to.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_is_whole_executable_by_all_and_alone_in_its_directory() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("a/b");
        for _ in 0..2 {
            let copy = install(&directory).unwrap();
            assert_eq!(copy, directory.join("lockkeeper"));
            assert_eq!(
                std::fs::metadata(&copy).unwrap().permissions().mode() & 0o7777,
                0o555
            );
            assert_eq!(
                std::fs::read(&copy).unwrap(),
                std::fs::read("/proc/self/exe").unwrap()
            );
            assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_file_in_place_of_the_directory_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("file");
        std::fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let failure = install(&path).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.sentence.contains("not a directory"), "{failure}");
        }
    }

    #[test]
    fn a_failed_installation_leaves_the_old_copy_and_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("lockkeeper"), "old").unwrap();
        let failure = install_file(&scratch.path().join("missing"), scratch.path()).unwrap_err();
        assert_eq!(failure.exit, Exit::CannotCreate);
        assert!(failure.sentence.contains("cannot write"), "{failure}");
        assert_eq!(std::fs::read(scratch.path().join("lockkeeper")).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
}
