//! The drivers, and servers that are built with them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockkeeper_testbed::{Network, foreign};

const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

/// What a Java machine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// One contender, of which there are many on the machine: it starts quickly.
    One,
    Server,
    /// A crowd, which runs long enough to profit from the second compiler.
    Crowd,
}

/// A main class of the project below `java/`.
///
/// # Errors
/// When the project cannot be built.
pub(crate) fn java(class: &str, size: Size) -> anyhow::Result<Command> {
    let sources = Path::new(SOURCES).join("drivers/java");
    let directory = foreign::built(&sources, &["src"], &["pom.xml"], |directory| {
        foreign::run(
            Command::new("mvn")
                .args(["--quiet", "--batch-mode", "--file"])
                .arg(sources.join("pom.xml"))
                .arg(format!("-Dlockkeeper.build.directory={}", directory.display()))
                .arg("package"),
        )
    })?;
    let (heap_mib, compilers) = match size {
        Size::One => (128, 1),
        Size::Server => (256, 1),
        Size::Crowd => (2048, 4),
    };
    let mut command = Command::new("java");
    command
        .args([
            &format!("-Xmx{heap_mib}m"),
            "-Xss512k",
            "-XX:+UseSerialGC",
            &format!("-XX:TieredStopAtLevel={compilers}"),
        ])
        .args(OPEN_FOR_HAZELCAST)
        .arg("-cp")
        .arg(format!(
            "{0}/lib/*:{0}/lockkeeper-rivals.jar",
            directory.display()
        ))
        .arg(class);
    Ok(command)
}

/// Hazelcast asks for these packages of the Java machine.
const OPEN_FOR_HAZELCAST: [&str; 8] = [
    "--add-modules=java.se",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.management/sun.management=ALL-UNNAMED",
    "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
];

/// Lets a command, if it is Java, take the names of hosts from a file: no DNS server is in reach, for which it would wait.
pub(crate) fn named<'a>(command: &'a mut Command, hosts: &Path) -> &'a mut Command {
    command.env("JDK_JAVA_OPTIONS", Network::java_hosts_file(hosts))
}

/// The folder with the programs that the module below `go/` names: `rivals`, `etcdctl` and etcd, which is called `server`.
///
/// # Errors
/// When they cannot be built.
pub(crate) fn go() -> anyhow::Result<PathBuf> {
    let sources = Path::new(SOURCES).join("drivers/go");
    let folders = packages_of(&sources)?;
    let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
    let packages = [".", "go.etcd.io/etcd/etcdctl/v3", "go.etcd.io/etcd/server/v3"];
    foreign::go(&sources, &folders, &["go.mod", "go.sum", "main.go"], &packages)
}

/// The folders of a module of Go that are packages of it: those without a module of their own.
fn packages_of(module: &Path) -> std::io::Result<Vec<String>> {
    let mut packages = Vec::new();
    for entry in module.read_dir()? {
        let folder = entry?.path();
        if let Some(name) = folder.file_name().and_then(OsStr::to_str)
            && folder.is_dir()
            && !folder.join("go.mod").exists()
        {
            packages.push(name.to_owned());
        }
    }
    // In an order that is the same on each machine: a fingerprint is made of it.
    packages.sort_unstable();
    Ok(packages)
}

/// The folder with the program that the module below `go/consul/` names.
///
/// # Errors
/// When it cannot be built.
pub(crate) fn consul() -> anyhow::Result<PathBuf> {
    let sources = Path::new(SOURCES).join("drivers/go/consul");
    foreign::go(
        &sources,
        &[],
        &["go.mod", "go.sum"],
        &["github.com/hashicorp/consul"],
    )
}

/// The second judge, of the module below `go/porcupine/`.
///
/// # Errors
/// When it cannot be built.
pub(crate) fn porcupine() -> anyhow::Result<PathBuf> {
    let sources = Path::new(SOURCES).join("drivers/go/porcupine");
    let directory = foreign::go(&sources, &[], &["go.mod", "go.sum", "main.go"], &["."])?;
    Ok(directory.join("porcupine"))
}

/// The driver in Python.
///
/// # Errors
/// When its packages cannot be installed.
pub(crate) fn python() -> anyhow::Result<Command> {
    let sources = Path::new(SOURCES).join("drivers/python");
    let mut command = foreign::python(&sources)?;
    command.arg(sources.join("driver.py"));
    Ok(command)
}
