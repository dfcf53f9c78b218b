//! Paths of the programs of this workspace. Cargo builds them first if they are not fresh, so that a test
//! never judges a stale program.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, bail};

/// A test sets this variable for a program of ours that it starts: programs that this one needs have been built with the tests.
pub const WITH_TESTS: &str = "LOCKKEEPER_BUILT_WITH_TESTS";

/// The program that owns a test cluster.
///
/// # Errors
/// As [`built`].
pub fn cluster() -> anyhow::Result<PathBuf> {
    built("lockkeeper-testbed", "lockkeeper-cluster", &[], Linking::Shared)
}

/// The test application of pods that talk to one another, for an image that contains only this program.
///
/// # Errors
/// As [`built`].
pub fn caller() -> anyhow::Result<PathBuf> {
    built("lockkeeper-caller", "lockkeeper-caller", &[], Linking::Static)
}

/// Cargo's target directory, for files that a run leaves behind.
///
/// # Errors
/// When the running program is not in one.
pub fn target_directory() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let directory = profile_directory(&program)?;
    let target = directory
        .parent()
        .context("a build profile's directory has a parent")?;
    Ok(target.to_owned())
}

/// Whether a program has the C library in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linking {
    /// It is loaded from the machine.
    Shared,
    /// The program needs no other file, for images that contain only this program.
    Static,
}

/// Builds `binary` of `package` in the profile of the running program, once per process.
///
/// # Errors
/// When it cannot be built, with the output of the compiler.
pub fn built(package: &str, binary: &str, options: &[&str], linking: Linking) -> anyhow::Result<PathBuf> {
    static BUILT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let program = std::env::current_exe()?;
    let directory = profile_directory(&program)?;
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
        .args(["build", "--quiet", "--bin", binary, "--profile", profile])
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    if linking == Linking::Shared && (is_test(&program) || std::env::var_os(WITH_TESTS).is_some()) {
        // `cargo test --workspace` has built it: with a test beside it, cargo gives the dependencies the same features.
        command.args(["--workspace", "--test", "skipping"]);
    } else {
        command.args(["--package", package]).args(options);
    }
    if linking == Linking::Static {
        // With a named target the flags do not apply to programs that run during the build.
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

/// Whether cargo has built the program as a test. (Benchmarks have a profile of their own.)
fn is_test(program: &Path) -> bool {
    program
        .parent()
        .is_some_and(|directory| directory.ends_with("debug/deps"))
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
