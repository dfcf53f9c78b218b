//! The Java side: ZooKeeper's server and Curator, fetched and built by Maven once per version of the files
//! under `e2e/testbed/java`, and then kept in the user's cache directory.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, bail, ensure};

use crate::cache;
use crate::clock::since_boot;

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

/// The class path of everything that `e2e/testbed/java/pom.xml` pins, and of our own classes.
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

/// The folder with the jars of ZooKeeper and of its dependencies.
///
/// # Errors
/// As [`classpath`].
pub fn libraries() -> anyhow::Result<PathBuf> {
    Ok(built()?.join("lib"))
}

/// `java` with our class path and a heap of this many MiB. It logs from `log_level` on to standard error.
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

fn built() -> anyhow::Result<PathBuf> {
    let key = cache::fingerprint(Path::new(SOURCES), &["src"], &["pom.xml"], &[])?;
    cache::entry(&cache::directory("java")?, &key, |directory| {
        eprintln!(
            "Fetching ZooKeeper and Curator with Maven into {} (once)",
            directory.display()
        );
        let began = since_boot();
        build(directory)?;
        eprintln!("Maven took {:.1} s", (since_boot() - began).as_secs_f64());
        Ok(())
    })
}

fn build(directory: &Path) -> anyhow::Result<()> {
    // An earlier build may have been interrupted.
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
