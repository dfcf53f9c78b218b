//! The Java side: ZooKeeper's servers and Curator's library, fetched and built by Maven once per version of the files
//! under `e2e/testbed/java`, and then kept in the user's cache directory. Programs of others run on it, too.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, bail, ensure};

use crate::cache;
use crate::clock::since_boot;
use crate::foreign::run;

mod release;

pub use release::{RELEASE, Release};

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

impl Release {
    /// The class path of everything that its `pom.xml` pins and builds.
    ///
    /// The first call on a machine runs Maven, which fetches from Maven Central; later ones find the
    /// result. Several processes may call it at once.
    ///
    /// # Errors
    /// When Maven is missing or fails.
    pub fn classpath(self) -> anyhow::Result<OsString> {
        Ok(self.classpath_in(self.directory()?))
    }

    /// `java` with its class path and a heap of this many MiB. It logs from `log_level` on to standard error.
    ///
    /// # Errors
    /// As [`Release::classpath`].
    pub fn command(
        self,
        main_class: &str,
        heap_mib: u32,
        log_level: &str,
        arguments: &[String],
    ) -> anyhow::Result<Command> {
        self.command_of(&self.classpath()?, main_class, heap_mib, log_level, arguments)
    }

    fn command_of(
        self,
        classpath: &OsStr,
        main_class: &str,
        heap_mib: u32,
        log_level: &str,
        arguments: &[String],
    ) -> anyhow::Result<Command> {
        let mut command = Command::new("java");
        command.args(SMALL);
        if self.jar().is_some() {
            // Another Java than the one that made the archive starts without it.
            command.arg(archive(self.directory()?, "-XX:SharedArchiveFile"));
        }
        command
            .arg(format!("-Xmx{heap_mib}m"))
            .arg(format!("-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}"))
            .args(arguments)
            .arg("-cp")
            .arg(classpath)
            .arg(main_class)
            .stdin(Stdio::null());
        Ok(command)
    }

    fn classpath_in(self, directory: &Path) -> OsString {
        let mut classpath = directory.join("lib").join("*").into_os_string();
        if let Some(jar) = self.jar() {
            classpath.push(":");
            classpath.push(directory.join(jar));
        }
        classpath
    }

    /// The folder of everything that its `pom.xml` pins and builds.
    fn directory(self) -> anyhow::Result<&'static Path> {
        static DIRECTORIES: [OnceLock<PathBuf>; Release::ALL.len()] =
            [const { OnceLock::new() }; Release::ALL.len()];
        let found = &DIRECTORIES[self as usize];
        match found.get() {
            Some(directory) => Ok(directory),
            None => {
                let directory = self.built()?;
                Ok(found.get_or_init(|| directory))
            }
        }
    }

    fn built(self) -> anyhow::Result<PathBuf> {
        let folders: &[&str] = if self.jar().is_some() { &["src"] } else { &[] };
        let key = cache::fingerprint(&self.sources(), folders, &["pom.xml"], &[self.line()])?;
        cache::fresh_entry(&cache::directory("java")?, &key, |directory| {
            eprintln!(
                "Fetching ZooKeeper {} with Maven into {} (once)",
                self.line(),
                directory.display()
            );
            let began = since_boot();
            self.build(directory)?;
            eprintln!("Maven took {:.1} s", (since_boot() - began).as_secs_f64());
            Ok(())
        })
    }

    fn build(self, directory: &Path) -> anyhow::Result<()> {
        let output = Command::new("mvn")
            .args(["--quiet", "--batch-mode", "--file"])
            .arg(self.sources().join("pom.xml"))
            .arg(format!("-Dlockkeeper.build.directory={}", directory.display()))
            .args(
                self.profile()
                    .map(|profile| format!("--activate-profiles={profile}")),
            )
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
        for made in ["lib"].into_iter().chain(self.jar()) {
            ensure!(
                directory.join(made).exists(),
                "mvn succeeded, but made no {made} in {}",
                directory.display()
            );
        }
        if self.jar().is_some() {
            self.archive_classes(directory)?;
        }
        Ok(())
    }

    /// Keeps the classes of servers and clients as the virtual machine has them in its memory (class data sharing, JEP
    /// 350): with them a server starts in two thirds of the processor time.
    fn archive_classes(self, directory: &Path) -> anyhow::Result<()> {
        let data = tempfile::tempdir_in(directory)?;
        run(Command::new("java")
            .args(SMALL)
            .arg(archive(directory, "-XX:ArchiveClassesAtExit"))
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
            .arg("-cp")
            .arg(self.classpath_in(directory))
            .arg("lockkeeper.Classes")
            .arg(data.path()))
        .context("cannot make an archive of ZooKeeper's classes")
    }
}

/// An option of `java` that names the archive of classes.
fn archive(directory: &Path, option: &str) -> String {
    format!("{option}={}", directory.join("classes.jsa").display())
}

/// The class path of [`Release::V3_9`].
///
/// # Errors
/// As [`Release::classpath`].
pub fn classpath() -> anyhow::Result<OsString> {
    Release::V3_9.classpath()
}

/// The folder with the jars of ZooKeeper ([`Release::V3_9`]) and of its dependencies.
///
/// # Errors
/// As [`Release::classpath`].
pub fn libraries() -> anyhow::Result<PathBuf> {
    Ok(Release::V3_9.directory()?.join("lib"))
}

/// A program of others, on what [`Release::V3_9`] pins: the main class, and the folder of its sources. `javac` compiles
/// them once.
///
/// # Errors
/// As [`Release::classpath`], and what the compiler says.
pub fn program(
    sources: &Path,
    main_class: &str,
    heap_mib: u32,
    log_level: &str,
    arguments: &[String],
) -> anyhow::Result<Command> {
    let mut classpath = classpath()?;
    // They are compiled anew when what they run on is another one.
    let base = libraries()?;
    let key = cache::fingerprint(sources, &["src"], &[], &[&base.to_string_lossy()])?;
    let directory = cache::fresh_entry(&cache::directory("java")?, &key, |directory| {
        let classes = directory.join("classes");
        fs::create_dir(&classes)?;
        run(Command::new("javac")
            .args(["--release", "17", "-d"])
            .arg(&classes)
            .arg("-cp")
            .arg(&classpath)
            .args(sources_below(&sources.join("src"))?))?;
        // An archive of classes knows jars only.
        run(Command::new("jar")
            .args(["--create", "--file"])
            .arg(directory.join(PROGRAMS))
            .arg("-C")
            .arg(&classes)
            .arg("."))
    })?;
    classpath.push(":");
    classpath.push(directory.join(PROGRAMS));
    Release::V3_9.command_of(&classpath, main_class, heap_mib, log_level, arguments)
}

/// The jar of programs of others.
const PROGRAMS: &str = "programs.jar";

/// All `.java` files of a folder and of those in it.
fn sources_below(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources_below(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "java") {
            found.push(path);
        }
    }
    Ok(found)
}
