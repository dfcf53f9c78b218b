//! Where the programs under test are. Cargo builds them first, so that a test never judges a stale
//! one; it has nothing to do when they are fresh.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, bail};

/// The program under test, `lockkeeper`; `LOCKKEEPER_BINARY` names another one.
pub fn lockkeeper() -> anyhow::Result<PathBuf> {
    match std::env::var_os("LOCKKEEPER_BINARY") {
        Some(path) => Ok(PathBuf::from(path)),
        // With everything that users get from `make release`.
        None => built(
            "lockkeeper-sidecar",
            "lockkeeper",
            &["--features", "tls"],
            Linking::Shared,
        ),
    }
}

/// What the image of a crate, `sidecar` or `operator`, is made of: a folder with the binary that users get
/// and a Dockerfile.
///
/// # Errors
/// When it cannot be built; with the words of the compiler.
pub fn image_context(crate_folder: &str) -> anyhow::Result<PathBuf> {
    static BUILT: Mutex<bool> = Mutex::new(false);
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut is_built = BUILT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !*is_built {
        let output = Command::new("make")
            .args(["--no-print-directory", "image-contexts"])
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

/// The guarded program that writes down when it ran.
pub fn recorder() -> anyhow::Result<PathBuf> {
    built("lockkeeper-e2e", "lockkeeper-recorder", &[], Linking::Shared)
}

/// A program of this package that needs no file, for images with nothing else in them.
pub fn static_program(name: &str) -> anyhow::Result<PathBuf> {
    built("lockkeeper-e2e", name, &[], Linking::Static)
}

/// The program that a test cluster belongs to.
pub fn cluster() -> anyhow::Result<PathBuf> {
    built("lockkeeper-e2e", "lockkeeper-cluster", &[], Linking::Shared)
}

/// Cargo's target directory, for files that a run leaves behind.
///
/// # Errors
/// When the running program is not in one.
pub fn target_directory() -> anyhow::Result<PathBuf> {
    let directory = profile_directory(&std::env::current_exe()?)?;
    let target = directory
        .parent()
        .context("a build profile's directory has a parent")?;
    Ok(target.to_owned())
}

/// Whether a program has the C library in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Linking {
    Shared,
    Static,
}

/// Builds `binary` of `package` in the profile of the running program, once per process.
fn built(package: &str, binary: &str, options: &[&str], linking: Linking) -> anyhow::Result<PathBuf> {
    static BUILT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let directory = profile_directory(&std::env::current_exe()?)?;
    let target = directory
        .parent()
        .context("a build profile's directory has a parent")?;
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let path = match linking {
        Linking::Shared => directory.join(binary),
        Linking::Static => target
            .join(&triple)
            .join(directory.file_name().unwrap_or_default())
            .join(binary),
    };
    let mut built = BUILT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if built.contains(&path) {
        return Ok(path);
    }
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "dev",
        Some(name) => name,
        None => bail!("{} has no name of a build profile", directory.display()),
    };
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args([
            "build",
            "--quiet",
            "--package",
            package,
            "--bin",
            binary,
            "--profile",
            profile,
        ])
        .args(options)
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    if linking == Linking::Static {
        // The target is named so that the flags are not for what runs during the build.
        command
            .args(["--target", &triple])
            .env("RUSTFLAGS", "-C target-feature=+crt-static");
    }
    let output = command.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!(
            "cargo cannot build {binary}:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    built.push(path.clone());
    Ok(path)
}

/// `target/debug` for `target/debug/deps/test-0123`, `target/debug/examples/demo` and
/// `target/debug/tool`.
fn profile_directory(program: &Path) -> anyhow::Result<PathBuf> {
    let directory = program.parent().context("a program is in a directory")?;
    match directory.file_name().and_then(|name| name.to_str()) {
        Some("deps" | "examples") => Ok(directory.parent().context("deps is in a directory")?.to_owned()),
        _ => Ok(directory.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_where_cargo_puts_those_of_the_same_profile() {
        for program in [
            "/t/debug/deps/harness-12ab",
            "/t/debug/examples/demo",
            "/t/debug/lockkeeper-check",
        ] {
            assert_eq!(
                profile_directory(Path::new(program)).unwrap(),
                Path::new("/t/debug")
            );
        }
    }
}
