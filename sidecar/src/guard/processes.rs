//! All processes of the machine (or of the PID namespace), read from `/proc` into memory that was
//! set aside before.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

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
}

/// The table of all processes.
#[derive(Debug)]
pub(super) struct Processes {
    proc: OwnedFd,
    buffer: Box<[MaybeUninit<u8>]>,
    table: Vec<Process>,
    complete: bool,
}

impl Process {
    /// Whether no thread of it can run until it gets SIGCONT. Doubt counts as no: a process that is
    /// traced runs when its tracer says so, and threads outlive a main thread that has ended.
    pub fn is_stopped(&self) -> bool {
        match self.state {
            b'T' => true,
            b'Z' | b'X' => self.threads <= 1,
            _ => false,
        }
    }

    /// Whether it has ended and only waits to be reaped.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }

    /// The fields of `stat`, for the process `pid`. The name may contain blanks and brackets, so
    /// everything is counted from the last bracket.
    fn parse(pid: Pid, stat: &[u8]) -> Option<Self> {
        let after_name = stat.iter().rposition(|byte| *byte == b')')? + 2;
        let mut fields = stat.get(after_name..)?.split(|byte| *byte == b' ');
        let number = |field: Option<&[u8]>| std::str::from_utf8(field?).ok()?.parse::<u64>().ok();
        // Field numbers of proc_pid_stat(5): 3 is the state, 4 the parent, 20 the number of
        // threads, 22 the start time.
        let state = *fields.next()?.first()?;
        let parent = number(fields.next())? as i32;
        let threads = number(fields.nth(15))? as u32;
        let started = number(fields.nth(1))?;
        Some(Self {
            pid,
            parent,
            state,
            threads,
            started,
            guarded: false,
        })
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
            table: Vec::with_capacity(MOST_PROCESSES),
            complete: false,
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
            // A process that ended since the directory was read is simply not there any more.
            let Some(process) = stat(&self.proc, pid) else {
                continue;
            };
            if self.table.len() == self.table.capacity() {
                self.complete = false;
                return;
            }
            self.table.push(process);
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

    /// Marks as guarded what `belongs` says; it gets `/proc` and the process.
    pub fn mark(&mut self, mut belongs: impl FnMut(&OwnedFd, &Process) -> bool) {
        for process in &mut self.table {
            process.guarded = belongs(&self.proc, process);
        }
    }

    /// What is marked as guarded.
    pub fn guarded(&self) -> impl Iterator<Item = &Process> {
        self.table.iter().filter(|process| process.guarded)
    }

    /// Start time of one process.
    pub fn started(&self, pid: Pid) -> Option<u64> {
        stat(&self.proc, pid).map(|process| process.started)
    }

    /// Sends `signal` to exactly this process, and to no other that got its process id meanwhile.
    pub fn signal(&self, process: &Process, signal: Signal) -> Result<(), Errno> {
        match rustix::process::pidfd_open(process.pid, PidfdFlags::empty()) {
            Ok(pidfd) => match stat(&self.proc, process.pid) {
                Some(now) if now.started == process.started => {
                    rustix::process::pidfd_send_signal(&pidfd, signal)
                }
                _ => Err(Errno::SRCH),
            },
            Err(Errno::SRCH) => Err(Errno::SRCH),
            // No descriptor or memory left, or a sandbox without pidfds: a process id that was seen
            // a moment ago is the best there is, and not to kill would be worse.
            Err(_) => rustix::process::kill_process(process.pid, signal),
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

fn stat(proc: &OwnedFd, pid: Pid) -> Option<Process> {
    let mut path = [0; PATH_BUFFER];
    let file = open_in(proc, pid, "stat", &mut path)?;
    let mut buffer = [0; STAT_BUFFER];
    let len = rustix::io::read(&file, &mut buffer).ok()?;
    Process::parse(pid, &buffer[..len])
}

/// Room for the path of a file of a process, relative to `/proc`.
pub(super) const PATH_BUFFER: usize = 32;

/// Opens `PID/file` in `/proc`; the path is written into `path`.
pub(super) fn open_in(proc: &OwnedFd, pid: Pid, file: &str, path: &mut [u8; PATH_BUFFER]) -> Option<OwnedFd> {
    use std::io::Write;
    let mut rest = &mut path[..];
    write!(rest, "{pid}/{file}\0").ok()?;
    let path = CStr::from_bytes_until_nul(path).ok()?;
    rustix::fs::openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
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
        assert!(process.is_stopped());
    }

    #[test]
    fn a_process_counts_as_stopped_only_when_no_thread_of_it_can_run() {
        let in_state = |state, threads| {
            parse(&format!(
                "7 (x) {state} 1 7 7 0 -1 64 0 0 0 0 0 0 0 0 20 0 {threads} 0 5 0"
            ))
            .expect("readable")
        };
        assert!(in_state('T', 9).is_stopped());
        assert!(in_state('Z', 1).is_stopped() && in_state('Z', 1).is_zombie());
        assert!(!in_state('Z', 2).is_stopped() && !in_state('Z', 2).is_zombie());
        for state in ['R', 'S', 'D', 't'] {
            assert!(!in_state(state, 1).is_stopped(), "{state}");
        }
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
}
