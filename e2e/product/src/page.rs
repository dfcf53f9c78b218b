//! The pages of `kubectl lockkeeper ui` and `lockkeeper ui`, each server as a process.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use lockkeeper_testbed::process::wait_for;
use rustix::process::{Pid, Signal, kill_process};

use crate::binaries;

/// For a browser: the rows of the page, with lock, holders, waiting, state, and the timeline in words.
pub const ROWS: &str = "return [...document.querySelectorAll('#locks tbody tr')].map(row => ({
    lock: row.querySelector('button').textContent,
    held: row.cells[1].textContent,
    waiting: row.cells[3].textContent,
    timeline: row.querySelector('[role=img]').getAttribute('aria-label'),
    state: row.cells[5].textContent,
}))";

/// Generous: the machine may be busy.
const BOUND: Duration = Duration::from_secs(60);

/// The page's server. Drop ends it.
#[derive(Debug)]
pub struct Page {
    process: Child,
    url: String,
}

impl Page {
    /// Starts the one of the plug-in for the locks of a namespace, and waits until it tells its address.
    ///
    /// # Errors
    /// When it cannot be built or started, or tells none.
    pub fn serve(kubeconfig: &Path, namespace: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(binaries::plugin()?);
        command
            .args(["ui", "--namespace", namespace, "--kubeconfig"])
            .arg(kubeconfig);
        Self::start(command)
    }

    /// The same of `lockkeeper` for locks of an ensemble. For a browser of the same host.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub fn of_ensemble(options: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(binaries::lockkeeper()?);
        command.arg("ui").args(options);
        Self::start(command)
    }

    fn start(mut command: Command) -> anyhow::Result<Self> {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the page's server")?;
        let output = process.stdout.take().context("the command has a pipe")?;
        let mut first = String::new();
        BufReader::new(output).read_line(&mut first)?;
        let (_, url) = first.trim_end().split_once(": ").context("it tells no address")?;
        Ok(Self {
            process,
            url: url.to_owned(),
        })
    }

    /// The page's address, with its key.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The process id of the server.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Ends it as Ctrl-C does, and waits for its end.
    ///
    /// # Errors
    /// When it does not end.
    pub fn interrupt(mut self) -> anyhow::Result<ExitStatus> {
        kill_process(Pid::from_child(&self.process), Signal::INT)?;
        wait_for(BOUND, || self.process.try_wait().transpose())
            .context("it does not end")?
            .context("cannot wait for it")
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The processor time of all processes like this so far, in seconds (proc_pid_stat(5): fields 14 and 15, in ticks of 10 ms).
///
/// # Panics
/// When there is no `/proc`.
pub fn used_by(is_it: impl Fn(&str) -> bool) -> f64 {
    let processes = fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let stats = processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
    let ticks = stats.filter(|stat| is_it(stat)).map(|stat| {
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields
            .skip(11)
            .take(2)
            .filter_map(|ticks| ticks.parse::<f64>().ok())
            .sum::<f64>()
    });
    ticks.sum::<f64>() / 100.0
}
