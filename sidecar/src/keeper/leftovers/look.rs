//! Looks for processes with the mark of a run, and kills them.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::guard::handed_to_keeper::RunId;
use crate::sys;

/// How long other work waits for a look. Most take some milliseconds.
const PATIENCE: Duration = Duration::from_millis(100);

/// A look needs little more than a buffer for names, and the pages may be locked.
const STACK: usize = 128 * 1024;

/// What a look finds.
type Find = Arc<dyn Fn() -> Vec<Pid> + Send + Sync>;

/// Looks, one after the other, each in a thread of its own. The kernel keeps a reader of an environment waiting while
/// the memory map of that process is locked (`environ_read`), and that process may be any of the machine. The keeper's
/// only thread renews the lease meanwhile.
pub(super) struct Look {
    find: Find,
    under_way: Option<oneshot::Receiver<Vec<Pid>>>,
}

impl Look {
    pub(super) fn new(find: impl Fn() -> Vec<Pid> + Send + Sync + 'static) -> Self {
        Self {
            find: Arc::new(find),
            under_way: None,
        }
    }

    /// What a look finds that begins now, or that has begun before and hung. `None` if that hangs as well: then it is not
    /// known whether something is there.
    pub(super) async fn result(&mut self) -> Option<Vec<Pid>> {
        let under_way = match &mut self.under_way {
            Some(under_way) => under_way,
            None => match begin(Arc::clone(&self.find)) {
                Ok(begun) => self.under_way.insert(begun),
                // No thread can be had; a look that hangs is rarer.
                Err(_) => return Some((self.find)()),
            },
        };
        let found = timeout(PATIENCE, under_way).await.ok()?;
        self.under_way = None;
        found.ok()
    }
}

fn begin(find: Find) -> io::Result<oneshot::Receiver<Vec<Pid>>> {
    let (told, under_way) = oneshot::channel();
    thread::Builder::new()
        .name("look".to_owned())
        .stack_size(STACK)
        // The receiver is gone when a user has given the rest up.
        .spawn(move || drop(told.send(find())))?;
    Ok(under_way)
}

/// Kills what has the mark of the run, again and again, in a thread of its own that does not end.
pub(super) fn hunt(run: RunId, pause: impl Fn(u32) -> Duration + Send + 'static) {
    let hunt = move || {
        for round in 0.. {
            kill_marked(run);
            thread::sleep(pause(round));
        }
    };
    let begun = thread::Builder::new()
        .name("hunt".to_owned())
        .stack_size(STACK)
        .spawn(hunt);
    if begun.is_err() {
        kill_marked(run);
    }
}

/// Kills what has the mark of the run, each as soon as it is found, and returns it.
pub(super) fn kill_marked(run: RunId) -> Vec<Pid> {
    let kill = |pid: &Pid| {
        // It may be gone, or belong to another user: then the anchor has more rights than we.
        let _ = kill_one(*pid, run);
    };
    each_marked(run).inspect(kill).collect()
}

/// Kills exactly the process of this number that is a part of the run, and no later one.
fn kill_one(pid: Pid, run: RunId) -> io::Result<()> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty());
    // From here on the descriptor cannot come to mean another process; the number can.
    if !is_marked(pid, run) {
        return Ok(());
    }
    match pidfd {
        Ok(pidfd) => Ok(sys::signal_through(&pidfd, libc::SIGKILL)?),
        // A sandbox that forbids it, a kernel before 5.3.
        Err(_) => Ok(kill_process(pid, Signal::KILL)?),
    }
}

fn is_marked(pid: Pid, run: RunId) -> bool {
    std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()))
        .is_ok_and(|environment| run.is_in(&environment))
}

/// Processes with the mark of the run, except this one.
#[cfg(test)]
pub(super) fn marked(run: RunId) -> Vec<Pid> {
    each_marked(run).collect()
}

/// Processes with the mark of the run, except this one, each as soon as it is found.
fn each_marked(run: RunId) -> impl Iterator<Item = Pid> {
    let own = rustix::process::getpid();
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries
        .filter_map(|entry| {
            entry
                .ok()?
                .file_name()
                .to_str()?
                .parse()
                .ok()
                .and_then(Pid::from_raw)
        })
        .filter(move |pid| *pid != own && is_marked(*pid, run))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// Much longer than the patience of all looks together.
    const HANG: Duration = Duration::from_secs(10);

    #[test]
    fn a_look_that_hangs_keeps_no_other_work_waiting_and_says_nothing_before_it_ends() {
        let (go_on, hang) = mpsc::channel::<()>();
        let hang = Mutex::new(hang);
        let begun = Arc::new(AtomicUsize::new(0));
        let mut look = Look::new({
            let begun = Arc::clone(&begun);
            move || {
                begun.fetch_add(1, Ordering::Relaxed);
                // An end of the channel is an end of the hang as well.
                let _ = hang.lock().expect("one look at a time").recv_timeout(HANG);
                Vec::new()
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.expect("a runtime").block_on(async {
            assert_eq!(look.result().await, None);
            assert_eq!(look.result().await, None);
            assert_eq!(begun.load(Ordering::Relaxed), 1, "it is the same look");
            go_on.send(()).expect("it hangs");
            while look.result().await.is_none() {}
            assert_eq!(begun.load(Ordering::Relaxed), 1);
            drop(go_on);
            while look.result().await.is_none() {}
            assert_eq!(begun.load(Ordering::Relaxed), 2, "and now another one");
        });
    }
}
