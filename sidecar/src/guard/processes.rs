//! All processes of the machine (or of the PID namespace), read from `/proc` into memory that was
//! set aside before.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use crate::sys;

/// Room for this many processes: 2 MiB of address space, resident only as far as it is used. A
/// machine with more of them gets incomplete scans, which never count as "nothing left".
const MOST_PROCESSES: usize = 65_536;

/// Bytes of directory entries read at once.
const DIRECTORY_BUFFER: usize = 4096;

/// `/proc/PID/stat` is shorter than this up to the last field that is read, the 22nd: a name of up
/// to 64 bytes and 20 numbers of up to 20 digits.
const STAT_BUFFER: usize = 512;

/// One process as `/proc/PID/stat` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub pid: Pid,
    pub parent: i32,
    state: u8,
    threads: u32,
    /// Ticks since boot. With the process id it names one process for ever.
    pub started: u64,
    /// Belongs to what is guarded.
    pub guarded: bool,
    /// Nobody can tell whether it does.
    doubtful: bool,
}

/// The table of all processes.
#[derive(Debug)]
pub(super) struct Processes {
    proc: OwnedFd,
    buffer: Box<[MaybeUninit<u8>]>,
    /// For the threads of one process.
    threads: Box<[MaybeUninit<u8>]>,
    table: Vec<Process>,
    complete: bool,
    /// When the newest was started of what was stopped last, in ticks since boot.
    newest_stopped: u64,
}

impl Process {
    /// Its process id, as it is told.
    pub fn number(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether its main thread cannot run until the process gets SIGCONT, or has ended. Doubt counts as
    /// no: who is traced runs when its tracer says so. [`Processes::is_stopped`] asks the others.
    fn main_thread_is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b'Z' | b'X')
    }

    /// Whether it has ended and only waits to be reaped.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }

    /// The fields of `stat`, for the process `pid`. The name may contain blanks and brackets, so
    /// everything is counted from the last bracket.
    pub fn parse(pid: Pid, stat: &[u8]) -> Option<Self> {
        let (_, after_name) = stat.split_at(stat.iter().rposition(|byte| *byte == b')')?);
        let mut fields = after_name.strip_prefix(b") ")?.split(|byte| *byte == b' ');
        let number = |field: Option<&[u8]>| std::str::from_utf8(field?).ok()?.parse::<u64>().ok();
        // Field numbers of proc_pid_stat(5): 3 is the state, 4 the parent, 20 the number of
        // threads, 22 the start time.
        let state = *fields.next()?.first()?;
        let parent = number(fields.next())?.try_into().ok()?;
        let threads = number(fields.nth(15))?.try_into().ok()?;
        let started = number(fields.nth(1))?;
        Some(Self {
            pid,
            parent,
            state,
            threads,
            started,
            guarded: false,
            doubtful: false,
        })
    }
}

#[cfg(feature = "fuzzing")]
impl Process {
    /// Parent, threads and start.
    pub fn fields(&self) -> (i32, u32, u64) {
        (self.parent, self.threads, self.started)
    }
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
    pub fn open() -> io::Result<Self> {
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
            newest_stopped: u64::MAX,
        })
    }

    /// Opens `/proc` anew, for a fork: the position in a directory is shared with the parent.
    pub fn reopen(&mut self) -> io::Result<()> {
        self.proc = rustix::fs::openat(&self.proc, c".", directory_flags(), Mode::empty())?;
        Ok(())
    }

    /// Reads all processes. What is left from the last scan is forgotten, marks included.
    pub fn scan(&mut self) {
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
                Ok(process) if self.table.len() < self.table.capacity() => self.table.push(process),
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
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Marks what descends from `root` and is not older than `since` as guarded, but for `root`
    /// itself and `spared` and what descends from that. The children of `also` are guarded, `also`
    /// itself is not.
    ///
    /// Process ids mostly grow from parent to child, so that one pass finds nearly all; passes are
    /// repeated until one finds nothing new.
    pub fn mark_descendants(&mut self, root: Pid, also: Option<Pid>, spared: Option<Pid>, since: u64) {
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
    pub fn mark_below(&mut self) {
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

    /// Marks as guarded what `belongs` says; it gets `/proc` and the process with its mark so far. A
    /// process of which that cannot be said leaves the look incomplete.
    pub fn mark(&mut self, mut belongs: impl FnMut(&OwnedFd, &Process) -> Result<bool, Errno>) {
        for process in &mut self.table {
            match belongs(&self.proc, process) {
                Ok(belongs) => process.guarded = belongs,
                Err(error) if is_gone(error) => process.guarded = false,
                Err(_) => self.complete = false,
            }
        }
    }

    /// Marks what is not guarded and of which `is_doubtful` says that nobody can tell whether it should be. A process
    /// of which not even that can be said leaves the look incomplete.
    pub fn doubt(&mut self, mut is_doubtful: impl FnMut(&OwnedFd, &Process) -> Result<bool, Errno>) {
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

    /// What is neither guarded nor known not to be.
    pub fn doubtful(&self) -> impl Iterator<Item = &Process> {
        self.table.iter().filter(|process| process.doubtful)
    }

    /// What is marked now has got SIGSTOP; what is started later has not. One of the same tick (10 ms) counts as earlier.
    pub fn note_stopped(&mut self) {
        let newest = self.guarded().map(|process| process.started).max();
        self.newest_stopped = newest.unwrap_or(self.newest_stopped);
    }

    /// Whether it was started after all that was [stopped](Processes::note_stopped); never before that was noted.
    pub fn is_fresh(&self, process: &Process) -> bool {
        process.started > self.newest_stopped
    }

    /// What is marked as guarded.
    pub fn guarded(&self) -> impl Iterator<Item = &Process> {
        self.table.iter().filter(|process| process.guarded)
    }

    /// What is marked as guarded at this place of the table.
    pub fn guarded_at(&self, at: usize) -> Option<Process> {
        self.table.get(at).copied().filter(|process| process.guarded)
    }

    /// How many places the table has.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Start time of one process.
    pub fn started(&self, pid: Pid) -> Option<u64> {
        stat(&self.proc, pid).ok().map(|process| process.started)
    }

    /// Whether no thread of this process can run until it gets SIGCONT. The main thread alone says
    /// nothing: SIGSTOP reaches one thread after the other, and threads outlive a main thread that has
    /// ended. What cannot be read counts as running.
    pub fn is_stopped(&mut self, process: &Process) -> bool {
        if !process.main_thread_is_stopped() {
            return false;
        }
        process.threads <= 1 || all_threads_are_stopped(&self.proc, process.pid, &mut self.threads)
    }

    /// Does once what a sweep does, to this process alone and with a signal that is none.
    pub fn rehearse(&mut self) {
        let own = rustix::process::getpid();
        self.scan();
        self.mark_descendants(own, None, None, 0);
        if let Some(started) = self.started(own) {
            let _ = self.signal(own, started, 0);
        }
        // What was marked is not what is to be stopped.
        self.table.clear();
    }

    /// Sends a signal to exactly the process that has this number since `started`, and to no later one.
    ///
    /// # Errors
    /// What `kill(2)` says; `ESRCH` too when the number belongs to another process by now.
    pub fn signal(&self, pid: Pid, started: u64, signo: i32) -> Result<(), Errno> {
        // From here on the descriptor cannot come to mean another process; the number can.
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty());
        match (&pidfd, stat(&self.proc, pid)) {
            (Err(Errno::SRCH), _) => return Err(Errno::SRCH),
            (_, Ok(now)) if now.started != started => return Err(Errno::SRCH),
            (_, Err(error)) if is_gone(error) => return Err(Errno::SRCH),
            // It cannot be read just now. It was seen a moment ago, and not to kill would be worse.
            _ => {}
        }
        match pidfd.and_then(|pidfd| sys::signal_through(&pidfd, signo)) {
            // No descriptor or memory left, a sandbox that forbids it, a kernel before 5.3.
            Err(error) if error != Errno::SRCH => sys::signal_process(pid, signo),
            sent => sent,
        }
    }
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}

fn pid_of(name: &CStr) -> Option<Pid> {
    let name = name.to_str().ok()?;
    Pid::from_raw(name.parse().ok().filter(|pid| *pid > 0)?)
}

fn stat(proc: &OwnedFd, pid: Pid) -> Result<Process, Errno> {
    read_stat(proc, pid, format_args!("{pid}/stat"))
}

fn read_stat(proc: &OwnedFd, pid: Pid, file: std::fmt::Arguments<'_>) -> Result<Process, Errno> {
    let file = open_in(proc, file)?;
    let mut buffer = [0; STAT_BUFFER];
    let len = rustix::io::read(&file, &mut buffer)?;
    Process::parse(pid, &buffer[..len]).ok_or(Errno::INVAL)
}

/// Whether a process of which this was answered has ended. Everything else (no descriptor, no memory,
/// no right) says nothing about the process.
pub(super) fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::SRCH)
}

/// Room for the longest path that is opened in `/proc`: two numbers of seven digits, `task`, a name.
const PATH_BUFFER: usize = 64;

/// Opens a file of a process in `/proc`, by its path from there.
///
/// # Errors
/// What `open(2)` says; see [`is_gone`].
pub(super) fn open_in(proc: &OwnedFd, file: std::fmt::Arguments<'_>) -> Result<OwnedFd, Errno> {
    open_as(proc, file, OFlags::RDONLY | OFlags::CLOEXEC)
}

fn open_as(proc: &OwnedFd, file: std::fmt::Arguments<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    use std::io::Write;
    let mut path = [0; PATH_BUFFER];
    let mut rest = &mut path[..];
    write!(rest, "{file}\0").map_err(|_| Errno::NAMETOOLONG)?;
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::NAMETOOLONG)?;
    rustix::fs::openat(proc, path, flags, Mode::empty())
}

/// Calls `visit` with each thread of a process until it says true, and says whether it did.
///
/// # Errors
/// When not all threads could be listed.
pub(super) fn any_thread(
    proc: &OwnedFd,
    pid: Pid,
    buffer: &mut [MaybeUninit<u8>],
    mut visit: impl FnMut(Pid) -> Result<bool, Errno>,
) -> Result<bool, Errno> {
    let tasks = open_as(proc, format_args!("{pid}/task"), directory_flags())?;
    let mut directory = RawDir::new(tasks.as_fd(), buffer);
    while let Some(entry) = directory.next() {
        if let Some(thread) = pid_of(entry?.file_name())
            && visit(thread)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn all_threads_are_stopped(proc: &OwnedFd, pid: Pid, buffer: &mut [MaybeUninit<u8>]) -> bool {
    let runs = any_thread(proc, pid, buffer, |thread| {
        match read_stat(proc, thread, format_args!("{pid}/task/{thread}/stat")) {
            Ok(thread) => Ok(!thread.main_thread_is_stopped()),
            Err(error) if is_gone(error) => Ok(false),
            Err(error) => Err(error),
        }
    });
    runs == Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(stat: &str) -> Option<Process> {
        Process::parse(rustix::process::getpid(), stat.as_bytes())
    }

    #[test]
    fn a_name_with_blanks_and_brackets_does_not_hide_a_process() {
        let stat = "7 (a) R 1 (b) T 42 7 7 0 -1 64 0 0 0 0 0 0 0 0 20 0 3 0 9999 0 0";
        let process = parse(stat).expect("readable");
        assert_eq!((process.parent, process.threads, process.started), (42, 3, 9999));
        assert!(process.main_thread_is_stopped());
    }

    #[test]
    fn a_number_that_no_kernel_writes_is_not_taken_for_another_one() {
        let with = |parent: u64, threads: u64| {
            parse(&format!(
                "7 (x) S {parent} 7 7 0 -1 64 0 0 0 0 0 0 0 0 20 0 {threads} 0 5 0"
            ))
        };
        assert!(with(42, 1).is_some());
        // Cut to 32 bits this would be process 42, and that no thread.
        assert_eq!(with((1 << 32) + 42, 1), None);
        assert_eq!(with(42, 1 << 32), None);
    }

    #[test]
    fn a_main_thread_counts_as_stopped_only_when_it_cannot_run() {
        let in_state = |state, threads| {
            parse(&format!(
                "7 (x) {state} 1 7 7 0 -1 64 0 0 0 0 0 0 0 0 20 0 {threads} 0 5 0"
            ))
            .expect("readable")
        };
        assert!(in_state('T', 9).main_thread_is_stopped());
        assert!(in_state('Z', 1).is_zombie() && !in_state('Z', 2).is_zombie());
        for state in ['R', 'S', 'D', 't'] {
            assert!(!in_state(state, 1).main_thread_is_stopped(), "{state}");
        }
    }

    #[test]
    fn a_process_is_stopped_when_all_of_its_threads_are() {
        let mut processes = Processes::open().expect("/proc is mounted");
        let own = rustix::process::getpid();
        let mut process = stat(&processes.proc, own).expect("readable");
        // As it is seen while SIGSTOP has reached the main thread alone: this thread runs.
        process.state = b'T';
        process.threads = process.threads.max(2);
        assert!(!processes.is_stopped(&process));
    }

    #[test]
    fn the_table_shows_this_process_under_its_parent() {
        let mut processes = Processes::open().expect("/proc is mounted");
        processes.scan();
        assert!(processes.is_complete());
        let parent = rustix::process::getppid().expect("a parent");
        processes.mark_descendants(parent, None, None, 0);
        assert!(
            processes
                .guarded()
                .any(|process| process.pid == rustix::process::getpid())
        );
        processes.scan();
        processes.mark_descendants(parent, None, Some(rustix::process::getpid()), 0);
        assert!(
            !processes
                .guarded()
                .any(|process| process.pid == rustix::process::getpid())
        );
    }

    #[test]
    fn a_signal_is_for_the_process_that_was_seen_and_for_no_later_one_of_its_number() {
        let processes = Processes::open().expect("/proc is mounted");
        let own = rustix::process::getpid();
        let started = processes.started(own).expect("readable");
        // 0 is no signal: it asks whether one would arrive.
        assert_eq!(processes.signal(own, started, 0), Ok(()));
        assert_eq!(processes.signal(own, started - 1, 0), Err(Errno::SRCH));
    }
}
