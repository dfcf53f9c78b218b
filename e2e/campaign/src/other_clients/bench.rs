//! The measurement of Curator, with many contenders in one program.

use std::process::Command;
use std::time::Duration;

use super::java;

/// The settings of `CuratorBench`, which measures the time from one holder's release to the next holder.
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
        // The run is long enough to profit from the second compiler, and Curator should be measured at its
        // best.
        let arguments = ["-XX:TieredStopAtLevel=4".to_owned()];
        let mut command = java("lockkeeper.CuratorBench", 512, &arguments)?;
        command
            .args(["--connect", &self.connect, "--path", &self.path])
            .args(["--contenders", &self.contenders.to_string()])
            .args(["--rounds", &self.rounds.to_string()])
            .args(["--handoffs", &self.handoffs.to_string()])
            .args(["--hold-ms", &self.hold.as_millis().to_string()]);
        Ok(command)
    }
}
