//! A loaded machine: as many busy processes as processors, and a busy disk.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context as _, anyhow};
use lockkeeper_testbed::Process;

/// What the writer writes between two calls of fsync, in bytes: enough to be more than the servers' own logs, and
/// little enough for several calls a second on a slow disk.
const CHUNK: usize = 4 << 20;

/// A load that lasts until Drop, or until [`Busy::end`].
#[derive(Debug)]
pub(crate) struct Busy {
    processors: Vec<Process>,
    is_over: Arc<AtomicBool>,
    synced: Arc<AtomicU64>,
    writer: Option<JoinHandle<io::Result<()>>>,
}

impl Busy {
    /// Begins to load all processors, and the file system of `directory`.
    pub(crate) fn begin(directory: &Path) -> anyhow::Result<Self> {
        let processors = (0..std::thread::available_parallelism()?.get())
            .map(|number| {
                let mut command = Command::new("sh");
                command.args(["-c", "while :; do :; done"]);
                // Each in a session of its own, so that the kernel's autogroups give each the share of a worker.
                Process::spawn(format!("busy {number}"), command)
            })
            .collect::<io::Result<Vec<_>>>()?;
        let file = File::create(directory.join("busy"))?;
        let (is_over, synced) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let writer = std::thread::Builder::new().name("busy disk".to_owned()).spawn({
            let (is_over, synced) = (Arc::clone(&is_over), Arc::clone(&synced));
            move || write(file, &is_over, &synced)
        })?;
        Ok(Self {
            processors,
            is_over,
            synced,
            writer: Some(writer),
        })
    }

    /// How many busy processes there are.
    pub(crate) fn processors(&self) -> usize {
        self.processors.len()
    }

    /// Ends it; returns how often the disk was synced.
    ///
    /// # Errors
    /// When the disk was not written to all the time.
    pub(crate) fn end(mut self) -> anyhow::Result<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        let writer = self.writer.take().context("it has not ended before")?;
        writer
            .join()
            .map_err(|_| anyhow!("the writer panicked"))?
            .context("the busy file cannot be written")?;
        Ok(self.synced.load(Ordering::Relaxed))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(writer) = self.writer.take() {
            // The error that made the trial end is already on its way.
            let _ = writer.join();
        }
    }
}

fn write(mut file: File, is_over: &AtomicBool, synced: &AtomicU64) -> io::Result<()> {
    let chunk = vec![b'x'; CHUNK];
    while !is_over.load(Ordering::Relaxed) {
        file.rewind()?;
        file.write_all(&chunk)?;
        file.sync_all()?;
        synced.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
