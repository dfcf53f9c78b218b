//! What the harness breaks, by hand or by a [`Plan`] that a seed makes and can make again.
//!
//! Cuts are made by [`Ensemble::cut`](crate::Ensemble::cut); this module has the faults of processes,
//! and puts everything on a schedule.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal};
use rustix::thread::CpuSet;

use crate::sys;

mod plan;
mod rationing;
mod run;

pub use plan::{Fault, Plan, Role, SEED_VARIABLE, Shape, Step, seed_from_environment};
pub use rationing::Rationing;
pub use run::{Event, Workers};

/// Stops a process (SIGSTOP): it keeps its connections and runs no instruction until [`resume`].
///
/// # Errors
/// When there is no such process.
pub fn stop(pid: Pid) -> io::Result<()> {
    Ok(rustix::process::kill_process(pid, Signal::STOP)?)
}

/// Lets a stopped process go on (SIGCONT).
///
/// # Errors
/// When there is no such process.
pub fn resume(pid: Pid) -> io::Result<()> {
    Ok(rustix::process::kill_process(pid, Signal::CONT)?)
}

/// Kills a process (SIGKILL).
///
/// # Errors
/// When there is no such process.
pub fn kill(pid: Pid) -> io::Result<()> {
    Ok(rustix::process::kill_process(pid, Signal::KILL)?)
}

/// A process that gets next to no processor time, for as long as this value lives.
///
/// Its threads run only when their processor is idle (`SCHED_IDLE`), are all kept on one processor,
/// and a busy thread of the harness sees to it that this one never is. The kernel still gives them
/// some 0.3 %: 3 of 1027 shares.
#[derive(Debug)]
pub struct Starvation {
    pid: Pid,
    before: CpuSet,
    over: Arc<AtomicBool>,
    competitor: Option<JoinHandle<()>>,
}

impl Starvation {
    /// Begins to starve a process.
    ///
    /// # Errors
    /// When there is no such process, or the harness has not the right to undo it afterwards.
    pub fn begin(pid: Pid) -> io::Result<Self> {
        may_undo_idle()?;
        let before = rustix::thread::sched_getaffinity(Some(pid))?;
        let processor = (0..CpuSet::MAX_CPU)
            .find(|&processor| before.is_set(processor))
            .ok_or_else(|| io::Error::other("the process may run on no processor"))?;
        let mut one = CpuSet::new();
        one.set(processor);
        let over = Arc::new(AtomicBool::new(false));
        let competitor = std::thread::Builder::new().name("competitor".to_owned()).spawn({
            let over = Arc::clone(&over);
            move || {
                // Without it the competitor would leave when others want the processor.
                let pinned = rustix::thread::sched_setaffinity(None, &one);
                while pinned.is_ok() && !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        })?;
        let starvation = Self {
            pid,
            before,
            over,
            competitor: Some(competitor),
        };
        for thread in threads(pid) {
            sys::set_idle(thread, true)?;
            rustix::thread::sched_setaffinity(Some(thread), &one)?;
        }
        Ok(starvation)
    }
}

impl Drop for Starvation {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(competitor) = self.competitor.take() {
            // It cannot panic.
            let _ = competitor.join();
        }
        for thread in threads(self.pid) {
            // It may have ended.
            let _ = sys::set_idle(thread, false);
            let _ = rustix::thread::sched_setaffinity(Some(thread), &self.before);
        }
    }
}

/// Everybody may choose `SCHED_IDLE`, but not everybody may leave it.
fn may_undo_idle() -> io::Result<()> {
    let tried = std::thread::spawn(|| {
        let own = rustix::thread::gettid();
        sys::set_idle(own, true)?;
        sys::set_idle(own, false)
    });
    tried
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        .map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("a starved process could not be fed again: {error}"),
            )
        })
}

fn threads(pid: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .collect()
}
