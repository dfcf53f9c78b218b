//! All processes of the machine (or of the PID namespace), read from `/proc` into memory that was
//! set aside before.

mod children;
mod files;
mod process;
#[cfg(test)]
mod tests;

use std::hint::black_box;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::fs::{Mode, RawDir, SeekFrom};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use self::files::{all_threads_are_stopped, directory_flags, pid_of, stat};
pub(super) use self::files::{any_thread, is_gone, open_in};
pub(super) use self::process::Process;
use crate::sys;

/// Room for this many processes: 2 MiB of address space, resident only as far as it is used. A
/// machine with more of them gets incomplete scans, which never count as "nothing left".
const MOST_PROCESSES: usize = 65_536;

/// How many processes a rehearsal looks at that comes while an application starts. To look at one takes 20 µs.
const FEW: usize = 16;

/// Bytes of directory entries read at once.
const DIRECTORY_BUFFER: usize = 4096;

/// The table of all processes.
#[derive(Debug)]
pub(super) struct Processes {
    proc: OwnedFd,
    buffer: Box<[MaybeUninit<u8>]>,
    /// For the threads of one process.
    threads: Box<[MaybeUninit<u8>]>,
    table: Vec<Process>,
    complete: bool,
    /// How many the first rehearsal has seen.
    rehearsed: usize,
    /// When the newest was started of what was stopped last, in ticks since boot.
    newest_stopped: u64,
}

impl AsRawFd for Processes {
    fn as_raw_fd(&self) -> RawFd {
        self.proc.as_raw_fd()
    }
}

impl Processes {
    /// Opens `/proc` and sets the memory aside.
    ///
    /// # Errors
    /// When `/proc` is missing, or belongs to another PID namespace: its process ids would name
    /// other processes here.
    pub(crate) fn open() -> io::Result<Self> {
        let own = rustix::process::getpid();
        let seen = std::fs::read_link("/proc/self")
            .map_err(|error| io::Error::new(error.kind(), format!("cannot read /proc/self: {error}")))?;
        if seen.to_str() != Some(own.as_raw_nonzero().to_string().as_str()) {
            return Err(io::Error::other(format!(
                "/proc belongs to another PID namespace (it calls this process {}, which is {own}): \
                 mount a new one",
                seen.display()
            )));
        }
        Ok(Self {
            proc: rustix::fs::open("/proc", directory_flags(), Mode::empty())?,
            buffer: Box::new_uninit_slice(DIRECTORY_BUFFER),
            threads: Box::new_uninit_slice(DIRECTORY_BUFFER),
            table: Vec::with_capacity(MOST_PROCESSES),
            complete: false,
            rehearsed: 0,
            newest_stopped: u64::MAX,
        })
    }

    /// Opens `/proc` anew, for a fork: the position in a directory is shared with the parent.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        self.proc = rustix::fs::openat(&self.proc, c".", directory_flags(), Mode::empty())?;
        Ok(())
    }

    /// Reads all processes. What is left from the last scan is forgotten, marks included.
    pub(crate) fn scan(&mut self) {
        self.scan_up_to(MOST_PROCESSES);
    }

    /// The same, where there is no time for more processes than `most`.
    pub(crate) fn scan_up_to(&mut self, most: usize) {
        self.table.clear();
        self.complete = rustix::fs::seek(&self.proc, SeekFrom::Start(0)).is_ok();
        let mut directory = RawDir::new(self.proc.as_fd(), &mut self.buffer);
        while let Some(entry) = directory.next() {
            let Ok(entry) = entry else {
                self.complete = false;
                return;
            };
            let Some(pid) = pid_of(entry.file_name()) else {
                continue;
            };
            match stat(&self.proc, pid) {
                Ok(process) if self.table.len() < most.min(self.table.capacity()) => self.table.push(process),
                // A process that ended since the directory was read is simply not there any more.
                Err(error) if is_gone(error) => {}
                Ok(_) => {
                    self.complete = false;
                    return;
                }
                Err(_) => self.complete = false,
            }
        }
    }

    /// Whether the last scan saw everything that was there all the while.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Marks what descends from `root` and is not older than `since` as guarded, but for `root`
    /// itself and `spared` and what descends from that. The children of `also` are guarded, `also`
    /// itself is not.
    ///
    /// Process ids mostly grow from parent to child, so that one pass finds nearly all; passes are
    /// repeated until one finds nothing new.
    pub(crate) fn mark_descendants(&mut self, root: Pid, also: Option<Pid>, spared: Option<Pid>, since: u64) {
        let root = root.as_raw_nonzero().get();
        let also = also.map(|pid| pid.as_raw_nonzero().get());
        loop {
            let mut found = false;
            for at in 0..self.table.len() {
                let process = self.table[at];
                if process.guarded || Some(process.pid) == spared || process.started < since {
                    continue;
                }
                if also == Some(process.pid.as_raw_nonzero().get()) {
                    continue;
                }
                let parent = process.parent;
                let guarded = parent == root || also == Some(parent) || self.is_guarded(parent);
                self.table[at].guarded = guarded;
                found |= guarded;
            }
            if !found {
                return;
            }
        }
    }

    /// Marks what descends from what is marked.
    pub(crate) fn mark_below(&mut self) {
        loop {
            let mut found = false;
            for at in 0..self.table.len() {
                let process = self.table[at];
                let joins = !process.guarded && !process.is_zombie() && self.is_guarded(process.parent);
                self.table[at].guarded |= joins;
                found |= joins;
            }
            if !found {
                return;
            }
        }
    }

    fn is_guarded(&self, pid: i32) -> bool {
        let is_it = |process: &Process| process.pid.as_raw_nonzero().get() == pid;
        // /proc is sorted by process id; should a kernel not do that, look at each.
        match self
            .table
            .binary_search_by_key(&pid, |process| process.pid.as_raw_nonzero().get())
        {
            Ok(at) => self.table[at].guarded,
            Err(_) => self
                .table
                .iter()
                .find(|process| is_it(process))
                .is_some_and(|process| process.guarded),
        }
    }

    /// Marks the processes that `belongs` selects as guarded; it gets `/proc` and the process with its mark so far. A
    /// process for which it fails leaves the look incomplete.
    pub(crate) fn mark(&mut self, mut belongs: impl FnMut(&OwnedFd, &Process) -> Result<bool, Errno>) {
        for process in &mut self.table {
            match belongs(&self.proc, process) {
                Ok(belongs) => process.guarded = belongs,
                Err(error) if is_gone(error) => process.guarded = false,
                Err(_) => self.complete = false,
            }
        }
    }

    /// Marks unguarded processes as doubtful if `is_doubtful` says so. A process for which it fails leaves the look
    /// incomplete.
    pub(crate) fn doubt(&mut self, mut is_doubtful: impl FnMut(&OwnedFd, &Process) -> Result<bool, Errno>) {
        for process in &mut self.table {
            if process.guarded || process.is_zombie() {
                continue;
            }
            match is_doubtful(&self.proc, process) {
                Ok(is_doubtful) => process.doubtful = is_doubtful,
                Err(error) if is_gone(error) => {}
                Err(_) => self.complete = false,
            }
        }
    }

    pub(crate) fn doubtful(&self) -> impl Iterator<Item = &Process> {
        self.table.iter().filter(|process| process.doubtful)
    }

    /// Notes that the marked processes have got SIGSTOP; processes that start later have not. A start in the same
    /// tick (10 ms) counts as earlier.
    pub(crate) fn note_stopped(&mut self) {
        let marked = self.guarded().chain(self.doubtful());
        let newest = marked.map(|process| process.started).max();
        self.newest_stopped = newest.unwrap_or(self.newest_stopped);
    }

    /// Whether it was started after all that was [stopped](Processes::note_stopped); never before that was noted.
    pub(crate) fn is_fresh(&self, process: &Process) -> bool {
        process.started > self.newest_stopped
    }

    pub(crate) fn guarded(&self) -> impl Iterator<Item = &Process> {
        self.table.iter().filter(|process| process.guarded)
    }

    /// What is guarded or in doubt at this place of the table.
    pub(crate) fn marked_at(&self, at: usize) -> Option<Process> {
        let is_marked = |process: &Process| process.guarded || process.doubtful;
        self.table.get(at).copied().filter(is_marked)
    }

    /// How many places the table has.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Start time of one process.
    pub(crate) fn started(&self, pid: Pid) -> Option<u64> {
        stat(&self.proc, pid).ok().map(|process| process.started)
    }

    /// Whether no thread of this process can run until it gets SIGCONT. The main thread alone says
    /// nothing: SIGSTOP reaches one thread after the other, and threads outlive a main thread that has
    /// ended. What cannot be read counts as running.
    pub(crate) fn is_stopped(&mut self, process: &Process) -> bool {
        if !process.main_thread_is_stopped() {
            return false;
        }
        process.threads <= 1 || all_threads_are_stopped(&self.proc, process.pid, &mut self.threads)
    }

    /// Does once what a sweep does, but for this process alone and with signal 0.
    ///
    /// The first rehearsal looks at all processes. Later ones come while an application starts, which they must not hold
    /// up: they look at [`FEW`], and only touch the memory for twice as many as there were.
    pub(crate) fn rehearse(&mut self) {
        let own = rustix::process::getpid();
        self.chase(own, 0, &|_| true);
        match self.rehearsed {
            0 => self.scan(),
            _ => self.scan_up_to(FEW),
        }
        self.rehearsed = self.rehearsed.max(self.table.len());
        self.mark_descendants(own, None, None, 0);
        if let Some(started) = self.started(own) {
            let _ = self.signal(own, started, 0);
        }
        if let Some(&any) = self.table.first() {
            self.table.resize(MOST_PROCESSES.min(2 * self.rehearsed), any);
            black_box(&mut self.table);
        }
        // The marks of the rehearsal must not be used for a real sweep.
        self.table.clear();
    }

    /// Sends a signal to exactly the process that has this number since `started`, and to no later one.
    ///
    /// # Errors
    /// What `kill(2)` says; `ESRCH` too when the number belongs to another process by now.
    pub(crate) fn signal(&self, pid: Pid, started: u64, signo: i32) -> Result<(), Errno> {
        // From here on the descriptor cannot come to mean another process; the number can.
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty());
        match (&pidfd, stat(&self.proc, pid)) {
            (Err(Errno::SRCH), _) => return Err(Errno::SRCH),
            (_, Ok(now)) if now.started != started => return Err(Errno::SRCH),
            (_, Err(error)) if is_gone(error) => return Err(Errno::SRCH),
            // It cannot be read now. It was seen a moment ago, and sparing it would be worse.
            _ => {}
        }
        match pidfd.and_then(|pidfd| sys::signal_through(&pidfd, signo)) {
            // No descriptor or memory left, a sandbox that forbids it, a kernel before 5.3.
            Err(error) if error != Errno::SRCH => sys::signal_process(pid, signo),
            sent => sent,
        }
    }
}
