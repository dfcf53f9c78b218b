//! "Lock downgrading" of Curator: a thread that has the write lock takes the read lock, too, and then releases the first.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};

use anyhow::Context;
use lockkeeper_testbed::{Host, Process};

use super::java;

/// A client of `InterProcessReadWriteLock`, which goes on step by step.
#[derive(Debug)]
pub struct Downgrade {
    process: Process,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Downgrade {
    /// Starts it, and returns when it has the write lock of this lock root.
    ///
    /// # Errors
    /// When it cannot be started, or ends.
    pub fn start(host: &Host, connect: &str, path: &str) -> anyhow::Result<Self> {
        let mut command = java("lockkeeper.CuratorDowngrade", 64, &[])?;
        command
            .args(["--connect", connect, "--path", path])
            .args(["--session-timeout-ms", "15000"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = host.spawn(host.name(), command)?;
        let child = process.child_mut();
        let input = child.stdin.take().context("its input is a pipe")?;
        let output = child.stdout.take().context("its output is a pipe")?;
        let mut client = Self {
            process,
            input,
            output: BufReader::new(output).lines(),
        };
        client.expect("writes")?;
        Ok(client)
    }

    /// Takes the read lock, too.
    ///
    /// # Errors
    /// When it has ended.
    pub fn read_as_well(&mut self) -> anyhow::Result<()> {
        self.step("reads")
    }

    /// Releases the write lock.
    ///
    /// # Errors
    /// When it has ended.
    pub fn only_read(&mut self) -> anyhow::Result<()> {
        self.step("only reads")
    }

    /// Releases the read lock.
    ///
    /// # Errors
    /// When it has ended.
    pub fn release(&mut self) -> anyhow::Result<()> {
        self.step("released")
    }

    fn step(&mut self, says: &str) -> anyhow::Result<()> {
        writeln!(self.input).with_context(|| format!("{} has ended", self.process.name()))?;
        self.expect(says)
    }

    fn expect(&mut self, says: &str) -> anyhow::Result<()> {
        let line = self.output.next().context("it has ended")??;
        anyhow::ensure!(line == says, "it says {line:?} and not {says:?}");
        Ok(())
    }
}
