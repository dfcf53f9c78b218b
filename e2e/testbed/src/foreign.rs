//! Programs in other languages, built once from their sources and kept in the user's cache directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use rustix::time::ClockId;

use crate::Unsupported;
use crate::cache;
use crate::clock::since_boot;

/// The result of `build` for `folders` and `files` of a folder of sources. `build` gets an empty folder for it.
///
/// # Errors
/// Those of `build`, and of files.
pub fn built(
    sources: &Path,
    folders: &[&str],
    files: &[&str],
    build: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    // Not the whole path: another clone finds it too.
    let name = sources
        .file_name()
        .context("a folder")?
        .to_string_lossy()
        .into_owned();
    let key = cache::fingerprint(sources, folders, files, &[&name])?;
    cache::fresh_entry(&cache::directory("foreign")?, &key, |directory| {
        eprintln!("Building {name} in {} (once)", directory.display());
        build(directory)
    })
}

/// Packages of Go, built into one folder.
///
/// # Errors
/// [`Unsupported`] without Go, and what Go says.
pub fn go(sources: &Path, folders: &[&str], files: &[&str], packages: &[&str]) -> anyhow::Result<PathBuf> {
    built(sources, folders, files, |directory| {
        available("go", &["version"], "Go")?;
        run(Command::new("go")
            .args(["build", "-mod=readonly", "-o"])
            // A folder, since it ends like one.
            .arg(format!("{}/", directory.display()))
            .args(packages)
            .current_dir(sources))
    })
}

/// A Python with what the `requirements.txt` of a folder pins.
///
/// # Errors
/// [`Unsupported`] without Python, and what pip says.
pub fn python(sources: &Path) -> anyhow::Result<Command> {
    let venv = built(sources, &[], &["requirements.txt"], |venv| {
        // `ensurepip` is a package of its own on Debian, without which `venv` makes no pip.
        available("python3", &["-c", "import ensurepip"], "python3 and python3-venv")?;
        run(Command::new("python3").args(["-m", "venv"]).arg(venv))?;
        run(Command::new(venv.join("bin/pip"))
            .args([
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--require-hashes",
                "-r",
            ])
            .arg(sources.join("requirements.txt")))
    })?;
    let mut command = Command::new(venv.join("bin/python"));
    command.stdin(Stdio::null());
    Ok(command)
}

/// `CLOCK_BOOTTIME` less `CLOCK_MONOTONIC` in nanoseconds: the time that this machine has spent suspended.
/// Java reads only the latter (`System.nanoTime()`), and adds this offset.
///
/// It is constant unless the machine is suspended meanwhile, and exact to some 100 ns.
pub fn boot_offset() -> u64 {
    let monotonic = rustix::time::clock_gettime(ClockId::Monotonic);
    let monotonic = monotonic.tv_sec as u64 * 1_000_000_000 + monotonic.tv_nsec as u64;
    (since_boot().as_nanos() as u64).saturating_sub(monotonic)
}

/// Whether a program exists and works.
fn available(program: &str, arguments: &[&str], what: &str) -> anyhow::Result<()> {
    match Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
    {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(Unsupported::new(format!("{what} is missing; `make setup` says how to install it")).into()),
    }
}

/// Runs a command to its end.
///
/// # Errors
/// When it fails, with what it has printed.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!(
            "{program} failed:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
