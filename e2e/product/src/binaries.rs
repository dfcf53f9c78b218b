//! Paths of the programs under test, and of the program that they guard.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, bail};
use lockkeeper_testbed::binaries::{Linking, built};

/// The program under test, `lockkeeper`; `LOCKKEEPER_BINARY` names another one.
pub fn lockkeeper() -> anyhow::Result<PathBuf> {
    match std::env::var_os("LOCKKEEPER_BINARY") {
        Some(path) => Ok(PathBuf::from(path)),
        // With the same features as `make release`.
        None => built(
            "lockkeeper-sidecar",
            "lockkeeper",
            &["--features", "tls"],
            Linking::Shared,
        ),
    }
}

/// The build context of the image of a crate, `sidecar` or `operator`: a folder with the released binary and
/// a Dockerfile.
///
/// # Errors
/// When it cannot be built, with the output of the compiler.
pub fn image_context(crate_folder: &str) -> anyhow::Result<PathBuf> {
    static BUILT: Mutex<bool> = Mutex::new(false);
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut is_built = BUILT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !*is_built {
        // Other test programs do the same at the same time, and would build images of half of the files.
        let target = workspace.join("target");
        fs::create_dir_all(&target)?;
        let turn = File::create(target.join("images.lock"))?;
        turn.lock().context("cannot lock target/images.lock")?;
        let output = Command::new("make")
            .args(["--no-print-directory", "image-contexts", "PROFILE=trial"])
            .current_dir(&workspace)
            .stdin(Stdio::null())
            .output()
            .context("cannot run make")?;
        if !output.status.success() {
            bail!(
                "make image-contexts failed:\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        *is_built = true;
    }
    Ok(workspace.join("target/images").join(crate_folder))
}

/// The operator.
///
/// # Errors
/// As [`built`].
pub fn operator() -> anyhow::Result<PathBuf> {
    built("lockkeeper-operator", "lockkeeper-operator", &[], Linking::Shared)
}

/// The plug-in of kubectl.
///
/// # Errors
/// As [`built`].
pub fn plugin() -> anyhow::Result<PathBuf> {
    built("kubectl-lockkeeper", "kubectl-lockkeeper", &[], Linking::Shared)
}

/// The guarded program, which records when it ran.
///
/// # Errors
/// When it cannot be built.
pub fn recorder() -> anyhow::Result<PathBuf> {
    built("lockkeeper-judge", "lockkeeper-recorder", &[], Linking::Shared)
}

/// The same as a static program, for images that contain only this program.
///
/// # Errors
/// As [`recorder`].
pub fn static_recorder() -> anyhow::Result<PathBuf> {
    built("lockkeeper-judge", "lockkeeper-recorder", &[], Linking::Static)
}
