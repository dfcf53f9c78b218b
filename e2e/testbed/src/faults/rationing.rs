//! Starvation: a process runs only for a moment now and then, whatever the scheduler's policies are.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Pid;

use super::{resume, stop};
use crate::process::wait_for;

/// A process that runs for `slice` in every `period`, by SIGSTOP and SIGCONT, for as long as this value
/// lives. Its work takes as many periods as it needs slices: it reads answers late, sends writes late, and
/// its idea of the time is old.
#[derive(Debug)]
pub struct Rationing {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Rationing {
    /// Begins.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn begin(pid: Pid, period: Duration, slice: Duration) -> io::Result<Self> {
        stop(pid)?;
        let over = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("rationing".to_owned()).spawn({
            let over = Arc::clone(&over);
            move || {
                let is_over = || over.load(Ordering::Relaxed).then_some(());
                while wait_for(period, is_over).is_none() {
                    // It may have ended meanwhile, which is fine.
                    let _ = resume(pid);
                    std::thread::sleep(slice);
                    let _ = stop(pid);
                }
                let _ = resume(pid);
            }
        })?;
        Ok(Self {
            over,
            thread: Some(thread),
        })
    }
}

impl Drop for Rationing {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread cannot panic.
            let _ = thread.join();
        }
    }
}
