//! One process as `/proc/PID/stat` shows it.

use rustix::process::Pid;

/// One process as `/proc/PID/stat` shows it, and whether it belongs to what is guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::guard) struct Process {
    pub pid: Pid,
    pub parent: i32,
    pub(super) state: u8,
    pub(super) threads: u32,
    /// Ticks since boot. With the process id it names one process for ever.
    pub started: u64,
    pub guarded: bool,
    /// It is doubtful: it may belong to what is guarded.
    pub(super) doubtful: bool,
}

impl Process {
    /// Its process id, as it is told.
    pub(crate) fn number(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether its main thread cannot run until the process gets SIGCONT, or has ended. Doubt counts as
    /// no: a process that is traced runs when its tracer says so. [`Processes::is_stopped`](super::Processes::is_stopped) asks the others.
    pub(crate) fn main_thread_is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b'Z' | b'X')
    }

    /// Whether it has ended and only waits to be reaped.
    pub(crate) fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }

    /// The fields of `stat`, for the process `pid`. The name may contain blanks and brackets, so
    /// everything is counted from the last bracket.
    pub(crate) fn parse(pid: Pid, stat: &[u8]) -> Option<Self> {
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
    pub(crate) fn fields(&self) -> (i32, u32, u64) {
        (self.parent, self.threads, self.started)
    }
}
