//! All processes of a host: what happens to a machine as a whole, and what it takes.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::Host;
use crate::process::{cpu_time, resident_memory};

impl Host {
    /// The processes that run on this host, zombies included.
    ///
    /// # Errors
    /// When `/proc` cannot be read, or for a loopback host, which shares its network with the machine.
    pub fn processes(&self) -> io::Result<Vec<Pid>> {
        let namespace = self.namespace.as_ref();
        let own = namespace
            .ok_or_else(|| io::Error::other("a loopback host has no processes of its own"))?
            .metadata()?
            .ino();
        let numbers = fs::read_dir("/proc")?.flatten().filter_map(|entry| {
            let number: i32 = entry.file_name().to_str()?.parse().ok()?;
            // It may have ended since.
            let network = fs::metadata(format!("/proc/{number}/ns/net")).ok()?;
            (network.ino() == own).then(|| Pid::from_raw(number)).flatten()
        });
        Ok(numbers.collect())
    }

    /// Sends a signal to all of them: SIGKILL is a crash of the machine, SIGSTOP until SIGCONT a pause of it. The oldest
    /// ones get it first.
    ///
    /// # Errors
    /// As [`Host::processes`].
    pub fn signal_all(&self, signal: Signal) -> io::Result<()> {
        let mut processes = self.processes()?;
        processes.sort_by_key(|pid| pid.as_raw_pid());
        for pid in processes {
            // It may have ended since.
            let _ = rustix::process::kill_process(pid, signal);
        }
        Ok(())
    }

    /// How long processors have worked for those that run now.
    ///
    /// # Errors
    /// As [`Host::processes`].
    pub fn cpu_time(&self) -> io::Result<Duration> {
        // Whoever has ended since takes nothing.
        Ok(self
            .processes()?
            .into_iter()
            .filter_map(|pid| cpu_time(pid).ok())
            .sum())
    }

    /// The resident memory of all of them, in bytes.
    ///
    /// # Errors
    /// As [`Host::processes`].
    pub fn resident_memory(&self) -> io::Result<u64> {
        Ok(self
            .processes()?
            .into_iter()
            .filter_map(|pid| resident_memory(pid).ok())
            .sum())
    }
}
