//! Other clients that share a queue with ours: Curator and ZooKeeper's own recipe in Java, kazoo in Python,
//! go-zookeeper in Go. A manifest of its own ecosystem pins each client, and a small driver beside the
//! manifest runs it and keeps a record.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::{Unsupported, cache, java};
use rustix::time::ClockId;

mod bench;

pub use bench::Bench;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rivals");

/// The setting `extra_lock_patterns` with which kazoo sees the others: regular expressions for the text
/// before the number. The first one matches ours, Curator's and go-zookeeper's, the second one those of
/// ZooKeeper's own recipe.
const KAZOO_PATTERNS: [&str; 2] = ["-lock-", r"x--?\d+-"];

/// The clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// `InterProcessMutex` of Apache Curator.
    Curator,
    /// "Locks" of ZooKeeper's own recipes, with the names of its `WriteLock`.
    Recipe,
    /// `Lock` of kazoo.
    Kazoo,
    /// `Lock` of go-zookeeper.
    GoZookeeper,
}

/// A contender that takes the lock several times, keeps a record, and ends by itself.
#[derive(Clone, Debug)]
pub struct Contender {
    /// The client that it uses.
    pub client: Client,
    /// The ensemble, as `host:port,host:port`.
    pub connect: String,
    /// The lock root.
    pub path: String,
    /// How many times it takes the lock.
    pub times: u32,
    /// How long it holds the lock each time, in whole milliseconds.
    pub hold: Duration,
    /// The session timeout that it requests, in whole milliseconds.
    pub session_timeout: Duration,
    /// Its name in the record.
    pub name: String,
    /// The file that it appends to, in the format of [`lockkeeper_judge::record`].
    pub record: PathBuf,
}

impl Contender {
    /// The command that runs it. The first call on a machine fetches the dependencies.
    ///
    /// # Errors
    /// [`Unsupported`] when the language of the client is missing, and the errors of its tools.
    pub fn command(&self) -> anyhow::Result<Command> {
        let mut command = match self.client {
            Client::Curator => java::command("lockkeeper.CuratorContender", 64, "error", &[])?,
            Client::Recipe => java::command("lockkeeper.RecipeContender", 64, "error", &[])?,
            Client::Kazoo => kazoo()?,
            Client::GoZookeeper => go_zookeeper()?,
        };
        if matches!(self.client, Client::Curator | Client::Recipe) {
            command.args(["--boot-offset-ns", &boot_offset().to_string()]);
        }
        command
            .args([
                "--connect",
                &self.connect,
                "--path",
                &self.path,
                "--name",
                &self.name,
            ])
            .args(["--times", &self.times.to_string()])
            .args(["--hold-ms", &self.hold.as_millis().to_string()])
            .args([
                "--session-timeout-ms",
                &self.session_timeout.as_millis().to_string(),
            ])
            .arg("--record")
            .arg(&self.record);
        Ok(command)
    }
}

/// `CLOCK_BOOTTIME` less `CLOCK_MONOTONIC` in nanoseconds: the time that this machine has spent suspended.
/// Java reads only the latter (`System.nanoTime()`), and adds this offset.
///
/// It is constant unless the machine is suspended meanwhile, and exact to some 100 ns.
fn boot_offset() -> u64 {
    let monotonic = rustix::time::clock_gettime(ClockId::Monotonic);
    let monotonic = monotonic.tv_sec as u64 * 1_000_000_000 + monotonic.tv_nsec as u64;
    BootInstant::now().as_nanos() - monotonic
}

fn kazoo() -> anyhow::Result<Command> {
    let sources = Path::new(SOURCES).join("kazoo");
    let venv = built(&sources, |venv| {
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
    command
        .arg(sources.join("contender.py"))
        .args(KAZOO_PATTERNS.map(|pattern| format!("--pattern={pattern}")))
        .stdin(Stdio::null());
    Ok(command)
}

fn go_zookeeper() -> anyhow::Result<Command> {
    let sources = Path::new(SOURCES).join("go-zookeeper");
    let directory = built(&sources, |directory| {
        available("go", &["version"], "Go 1.21 or newer")?;
        run(Command::new("go")
            .args(["build", "-mod=readonly", "-o"])
            .arg(directory.join("contender"))
            .arg(".")
            .current_dir(&sources))
    })?;
    let mut command = Command::new(directory.join("contender"));
    command.stdin(Stdio::null());
    Ok(command)
}

/// The result of `build` for a folder, kept in the user's cache directory.
fn built(sources: &Path, build: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<PathBuf> {
    let name = sources
        .file_name()
        .context("a folder")?
        .to_string_lossy()
        .into_owned();
    let key = cache::fingerprint(sources, &["."], &[], &[&name])?;
    cache::entry(&cache::directory("rivals")?, &key, |directory| {
        eprintln!("Building {name} in {} (once)", directory.display());
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
        fs::create_dir(directory)?;
        build(directory)
    })
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

fn run(command: &mut Command) -> anyhow::Result<()> {
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
