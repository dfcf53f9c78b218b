//! An ensemble that the tests share, and `lockkeeper run` with any command under it.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use lockkeeper_product::binaries;
use lockkeeper_product::worker::{Options, Worker};
pub use lockkeeper_testbed::ensemble::shared as ensemble;
use lockkeeper_testbed::ensemble::{block_on, connector};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Ensemble, Host, Process};
use rustix::process::{Pid, Signal};
use zookeeper_client::Client;

/// Generous: the machine may be busy.
pub const BOUND: Duration = Duration::from_secs(60);

/// T of a holder that keeps the lock on such a machine: with the ensemble's tick of 1 s it tolerates 6.7 s
/// without an answer (`lockkeeper_lock::Timing::spare`).
pub const CALM: Duration = Duration::from_secs(15);

/// T of a holder whose expiry a test waits for: it tolerates only 0.9 s without an answer.
pub const SHORT: [&str; 2] = ["--session-timeout", "4s"];

/// A worker with the recorder, on a host of its own, with T = [`CALM`].
pub fn worker(ensemble: &Ensemble, name: &str, lock: &str, run: &[&str], recorder: &[&str]) -> Worker {
    let options = Options {
        session_timeout: CALM,
        ..Options::new(ensemble, name, lock).unwrap()
    };
    Worker::start(ensemble, options.with_run(run).with_recorder(recorder)).unwrap()
}

/// `lockkeeper run` with a command, and its output.
pub struct Run {
    pub process: Process,
    pub host: Host,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Run {
    /// With T = [`CALM`], a stop grace of 0.4 s, and the ensemble's tick, unless `options` say otherwise.
    pub fn start(ensemble: &Ensemble, name: &str, lock: &str, options: &[&str], command: &[&str]) -> Self {
        Self::spawn(ensemble, name, Self::command(ensemble, lock, options, command))
    }

    /// The command of [`Run::start`].
    pub fn command(ensemble: &Ensemble, lock: &str, options: &[&str], command: &[&str]) -> Command {
        let connect = ensemble.connect_string();
        let tick = format!("{}ms", ensemble.config().tick.as_millis());
        let calm = format!("{}s", CALM.as_secs());
        let defaults = [
            ("--connect", connect.as_str()),
            ("--lock", lock),
            ("--session-timeout", calm.as_str()),
            ("--stop-grace", "400ms"),
            ("--tick-time", &tick),
        ];
        let arguments: Vec<&str> = defaults
            .iter()
            .filter(|(name, _)| !options.contains(name))
            .flat_map(|&(name, value)| [name, value])
            .chain(options.iter().copied())
            .chain(["--"])
            .chain(command.iter().copied())
            .collect();
        let mut lockkeeper = Command::new(binaries::lockkeeper().unwrap());
        lockkeeper.arg("run").args(arguments);
        lockkeeper
    }

    /// Starts any program, on a host of its own.
    pub fn spawn(ensemble: &Ensemble, name: &str, command: Command) -> Self {
        Self::spawn_on(ensemble, ensemble.client(name).unwrap(), command)
    }

    /// The same on a given host, which has no other run.
    pub fn spawn_on(ensemble: &Ensemble, host: Host, mut command: Command) -> Self {
        let name = host.name().to_owned();
        let stdout = ensemble.directory().join(format!("{name}.stdout"));
        let stderr = ensemble.directory().join(format!("{name}.stderr"));
        command
            .stdout(File::create(&stdout).unwrap())
            .stderr(File::create(&stderr).unwrap());
        Self {
            process: host.spawn(name.as_str(), command).unwrap(),
            host,
            stdout,
            stderr,
        }
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.process
            .wait(BOUND)
            .unwrap()
            .unwrap_or_else(|| panic!("it does not end:\n{}{}", self.stdout(), self.stderr()))
    }

    /// Waits until it ends, and returns the exit code.
    pub fn code(&mut self) -> i32 {
        let status = self.wait();
        status
            .code()
            .unwrap_or_else(|| panic!("{status}:\n{}", self.stderr()))
    }

    pub fn stdout(&self) -> String {
        fs::read_to_string(&self.stdout).unwrap()
    }

    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap()
    }

    /// The lines of its stderr that are not log lines: the messages to the user.
    pub fn sentences(&self) -> Vec<String> {
        let text = self.stderr();
        text.lines()
            .filter(|line| line.starts_with("lockkeeper"))
            .map(str::to_owned)
            .collect()
    }

    /// Waits for the first whole line of its command's output.
    pub fn first_line(&self) -> String {
        self.line(0)
    }

    /// Waits for a whole line of its command's output, counted from 0.
    pub fn line(&self, number: usize) -> String {
        let line = || {
            let text = self.stdout();
            let whole = &text[..=text.rfind('\n')?];
            whole.lines().nth(number).map(str::to_owned)
        };
        wait_for(BOUND, line).unwrap_or_else(|| panic!("it says nothing:\n{}", self.stderr()))
    }

    pub fn signal(&mut self, signal: Signal) {
        self.process.signal(signal);
    }
}

/// Runs a client of the socket, and returns its exit code and its output.
pub fn client(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(binaries::lockkeeper().unwrap())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

/// Runs `work` with a plain client of the whole ensemble.
pub fn with_client<T: Send>(
    ensemble: &Ensemble,
    call: impl AsyncFnOnce(&Client) -> Result<T, zookeeper_client::Error> + Send,
) -> Result<T, zookeeper_client::Error> {
    let servers = ensemble.connect_string();
    block_on(ensemble.observer(), || async {
        call(&connector().connect(&servers).await?).await
    })
    .unwrap()
}

/// The contenders of a lock; `None` when its root was never made.
pub fn contenders(ensemble: &Ensemble, lock: &str) -> Option<Vec<String>> {
    try_contenders(ensemble, lock).unwrap_or_else(|error| panic!("cannot list {lock}: {error}"))
}

/// The same; servers that are busy or away are an error.
fn try_contenders(ensemble: &Ensemble, lock: &str) -> Result<Option<Vec<String>>, zookeeper_client::Error> {
    let listed = with_client(ensemble, async |client| {
        client.sync(lock).await?;
        client.list_children(lock).await
    });
    match listed {
        Err(zookeeper_client::Error::NoNode) => Ok(None),
        listed => listed.map(Some),
    }
}

/// Waits until this many contenders are in the queue.
pub fn wait_for_contenders(ensemble: &Ensemble, lock: &str, count: usize) {
    let is_it = || {
        let found = try_contenders(ensemble, lock).ok()?;
        (found.unwrap_or_default().len() == count).then_some(())
    };
    wait_for(BOUND, is_it)
        .unwrap_or_else(|| panic!("{:?} instead of {count} contenders", contenders(ensemble, lock)));
}

/// Whether a process has ended, though nobody may have reaped it.
pub fn has_ended(pid: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    status.map_or(true, |status| status.contains(") Z "))
}
