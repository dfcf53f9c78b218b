//! Other clients that share a queue with ours: Curator and ZooKeeper's own recipe in Java, kazoo in Python,
//! go-zookeeper in Go. A manifest of its own ecosystem pins each client (that of the testbed those in Java), and a small
//! driver runs it and keeps a record.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lockkeeper_testbed::{foreign, java::program};

mod bench;
mod downgrade;

pub use bench::Bench;
pub use downgrade::Downgrade;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/other_clients");

/// The setting `extra_lock_patterns` with which kazoo sees the others: regular expressions for the text
/// before the number. The first one matches ours, Curator's and go-zookeeper's, the second one those of
/// ZooKeeper's own recipe.
const KAZOO_PATTERNS: [&str; 2] = ["-lock-", r"x--?\d+-"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// `InterProcessMutex` of Apache Curator.
    Curator,
    /// "Locks" of ZooKeeper's own recipes, with the names of its `WriteLock`.
    Recipe,
    Kazoo,
    /// `Lock` of go-zookeeper.
    GoZookeeper,
}

/// A contender that takes the lock several times, keeps a record, and ends by itself.
#[derive(Clone, Debug)]
pub struct Contender {
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
    /// [`lockkeeper_testbed::Unsupported`] when the language of the client is missing, and the errors of its tools.
    pub fn command(&self) -> anyhow::Result<Command> {
        let mut command = match self.client {
            Client::Curator => java("lockkeeper.CuratorContender", 64, &[])?,
            Client::Recipe => java("lockkeeper.RecipeContender", 64, &[])?,
            Client::Kazoo => kazoo()?,
            Client::GoZookeeper => go_zookeeper()?,
        };
        if matches!(self.client, Client::Curator | Client::Recipe) {
            command.args(["--boot-offset-ns", &foreign::boot_offset().to_string()]);
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

/// A main class of the programs in Java.
fn java(main_class: &str, heap_mib: u32, arguments: &[String]) -> anyhow::Result<Command> {
    program(
        &Path::new(SOURCES).join("java"),
        main_class,
        heap_mib,
        "error",
        arguments,
    )
}

fn kazoo() -> anyhow::Result<Command> {
    let sources = Path::new(SOURCES).join("kazoo");
    let mut command = foreign::python(&sources)?;
    command
        .arg(sources.join("contender.py"))
        .args(KAZOO_PATTERNS.map(|pattern| format!("--pattern={pattern}")));
    Ok(command)
}

fn go_zookeeper() -> anyhow::Result<Command> {
    let sources = Path::new(SOURCES).join("go-zookeeper");
    let directory = foreign::go(&sources, &["."], &[], &["."])?;
    let mut command = Command::new(directory.join("other-clients"));
    command.stdin(Stdio::null());
    Ok(command)
}
