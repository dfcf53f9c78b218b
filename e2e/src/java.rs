//! The Java side: ZooKeeper's server and Curator, fetched and built by Maven once per version of the
//! files under `e2e/java`, and kept in the user's cache directory.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use lockkeeper_lock::BootInstant;
use rustix::time::ClockId;

use crate::cache;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/java");

/// Keeps small Java programs small, and quick to start: no second compiler, one collector thread.
const SMALL: [&str; 6] = [
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
];

/// The class path of everything that `e2e/java/pom.xml` pins, and of our own classes.
///
/// The first call on a machine runs Maven, which fetches from Maven Central; later ones find the
/// result. Several processes may call it at once.
pub fn classpath() -> anyhow::Result<OsString> {
    static CLASSPATH: OnceLock<OsString> = OnceLock::new();
    if let Some(found) = CLASSPATH.get() {
        return Ok(found.clone());
    }
    let directory = built()?;
    let mut classpath = directory.join("lockkeeper-e2e.jar").into_os_string();
    classpath.push(":");
    classpath.push(directory.join("lib").join("*"));
    Ok(CLASSPATH.get_or_init(|| classpath).clone())
}

/// The folder with the jars of ZooKeeper and of what it needs.
///
/// # Errors
/// As [`classpath`].
pub fn libraries() -> anyhow::Result<PathBuf> {
    Ok(built()?.join("lib"))
}

/// `java` with our class path, a heap of so many MiB, and what it logs from `log_level` on, on
/// standard error.
pub fn command(
    main_class: &str,
    heap_mib: u32,
    log_level: &str,
    arguments: &[String],
) -> anyhow::Result<Command> {
    let mut command = Command::new("java");
    command
        .args(SMALL)
        .arg(format!("-Xmx{heap_mib}m"))
        .arg(format!("-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}"))
        .args(arguments)
        .arg("-cp")
        .arg(classpath()?)
        .arg(main_class)
        .stdin(Stdio::null());
    Ok(command)
}

/// What `CuratorBench` is to measure: the time from one holder's release to the next holder.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The ensemble, as `host:port,host:port`.
    pub connect: String,
    /// The lock root.
    pub path: String,
    /// Contenders, each with a session of its own, all in one process.
    pub contenders: u32,
    /// Rounds, of which each gives a median and a 99th percentile.
    pub rounds: u32,
    /// Handoffs in a round.
    pub handoffs: u32,
    /// How long each holds the lock, in whole milliseconds.
    pub hold: Duration,
}

impl Bench {
    /// The command that runs it; it prints one JSON object and ends. The first round warms it up.
    pub fn command(&self) -> anyhow::Result<Command> {
        // Long enough for the second compiler to pay, and Curator shall be measured at its best.
        let arguments = ["-XX:TieredStopAtLevel=4".to_owned()];
        let mut command = command("lockkeeper.CuratorBench", 512, "error", &arguments)?;
        command
            .args(["--connect", &self.connect, "--path", &self.path])
            .args(["--contenders", &self.contenders.to_string()])
            .args(["--rounds", &self.rounds.to_string()])
            .args(["--handoffs", &self.handoffs.to_string()])
            .args(["--hold-ms", &self.hold.as_millis().to_string()]);
        Ok(command)
    }
}

/// `CLOCK_BOOTTIME` less `CLOCK_MONOTONIC` in nanoseconds: the time that this machine has spent
/// suspended. Java knows only the latter (`System.nanoTime()`), and adds this.
///
/// Constant unless the machine is suspended meanwhile; read within some 100 ns.
pub fn boot_offset() -> u64 {
    let monotonic = rustix::time::clock_gettime(ClockId::Monotonic);
    let monotonic = monotonic.tv_sec as u64 * 1_000_000_000 + monotonic.tv_nsec as u64;
    BootInstant::now().as_nanos() - monotonic
}

fn built() -> anyhow::Result<PathBuf> {
    let key = cache::fingerprint(Path::new(SOURCES), &["src"], &["pom.xml"], &[])?;
    cache::entry(&cache::directory("java")?, &key, |directory| {
        eprintln!(
            "Fetching ZooKeeper and Curator with Maven into {} (once)",
            directory.display()
        );
        let began = BootInstant::now();
        build(directory)?;
        eprintln!("Maven took {:.1} s", (BootInstant::now() - began).as_secs_f64());
        Ok(())
    })
}

fn build(directory: &Path) -> anyhow::Result<()> {
    // An earlier build may have been interrupted half-way.
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    let output = Command::new("mvn")
        .args(["--quiet", "--batch-mode", "--file"])
        .arg(Path::new(SOURCES).join("pom.xml"))
        .arg(format!("-Dlockkeeper.build.directory={}", directory.display()))
        .arg("package")
        .stdin(Stdio::null())
        .output()
        .context("cannot run mvn: the tests on real servers need JDK 17 or newer, and Maven")?;
    if !output.status.success() {
        bail!(
            "mvn failed:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    ensure!(
        directory.join("lockkeeper-e2e.jar").exists(),
        "mvn succeeded, but made no lockkeeper-e2e.jar in {}",
        directory.display()
    );
    Ok(())
}
