//! The system calls for which there is no safe binding. Nothing else in this crate is unsafe.
//!
//! The guard has one thread. That makes `fork` here as harmless as it is in C: the child has a
//! consistent copy of everything.
#![allow(unsafe_code)]

mod memory;
mod precedence;
mod title;

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;

use rustix::io::Errno;
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(crate) use self::memory::{forget_deeper_stack, forget_touched_code, lock_memory, unlock_memory};
pub(crate) use self::precedence::Precedence;
pub(crate) use self::title::CommandLine;

/// A set of signals, by number from 1 to 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignalSet(u64);

/// A signal taken from a signalfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caught {
    pub signo: u8,
    /// Sent by the kernel, as terminals do, and not by a process.
    pub by_kernel: bool,
}

/// Everything that `execve` needs, laid out before it is needed.
///
/// The fencing token is written into a buffer of fixed size, so that a start needs no memory.
#[derive(Debug)]
pub(crate) struct Program {
    path: CString,
    /// Own what `argv` and `envp` point to.
    _arguments: Vec<CString>,
    _environment: Vec<CString>,
    token: Box<[u8; TOKEN_LEN]>,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
}

const TOKEN_NAME: &[u8] = b"LOCKKEEPER_FENCING_TOKEN=";

/// Name, the 20 characters of the longest `i64`, and the final zero.
const TOKEN_LEN: usize = TOKEN_NAME.len() + 21;

impl SignalSet {
    pub(crate) fn add(&mut self, signo: i32) {
        self.0 |= 1 << (signo - 1);
    }

    pub(crate) fn contains(self, signo: i32) -> bool {
        self.0 & (1 << (signo - 1)) != 0
    }

    /// Its signals, in the order of their numbers.
    pub(crate) fn iter(self) -> impl Iterator<Item = u8> {
        (1..=64u8).filter(move |signo| self.contains((*signo).into()))
    }

    fn to_raw(self) -> libc::sigset_t {
        // SAFETY: all-zero bytes are a valid sigset_t, and both calls only write to it.
        unsafe {
            let mut raw: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut raw);
            for signo in 1..=64 {
                if self.contains(signo) {
                    libc::sigaddset(&mut raw, signo);
                }
            }
            raw
        }
    }
}

impl Program {
    /// `arguments` begin with the name of the program; `environment` are `NAME=value` strings.
    ///
    /// # Errors
    /// When a string contains a zero byte.
    pub(crate) fn new(
        path: OsString,
        arguments: Vec<OsString>,
        environment: Vec<OsString>,
    ) -> io::Result<Self> {
        let strings = |from: Vec<OsString>| -> io::Result<Vec<CString>> {
            from.into_iter()
                .map(|s| Ok(CString::new(s.into_vec())?))
                .collect()
        };
        let arguments = strings(arguments)?;
        let environment = strings(environment)?;
        let token = Box::new([0; TOKEN_LEN]);
        let mut argv: Vec<_> = arguments.iter().map(|s| s.as_ptr()).collect();
        argv.push(std::ptr::null());
        let mut envp: Vec<_> = environment.iter().map(|s| s.as_ptr()).collect();
        envp.push(token.as_ptr().cast());
        envp.push(std::ptr::null());
        let path = CString::new(path.into_vec())?;
        let mut program = Self {
            path,
            _arguments: arguments,
            _environment: environment,
            token,
            argv,
            envp,
        };
        program.set_token(0);
        Ok(program)
    }

    /// Writes `LOCKKEEPER_FENCING_TOKEN=<decimal>`.
    pub(crate) fn set_token(&mut self, token: i64) {
        use std::io::Write;
        let mut rest = &mut self.token[..];
        // Neither can fail: the buffer has room for the longest number.
        let _ = rest.write_all(TOKEN_NAME);
        let _ = write!(rest, "{token}");
        if let Some(end) = rest.first_mut() {
            *end = 0;
        }
    }

    /// Becomes this program; returns only when that fails.
    pub(crate) fn exec(&self) -> io::Error {
        // SAFETY: argv and envp are arrays of pointers that end in null; they point into strings
        // that end in zero and are owned by self.
        unsafe { libc::execve(self.path.as_ptr(), self.argv.as_ptr(), self.envp.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// Splits the process in two. `None` is the child.
///
/// Only for a process with a single thread, as the guard and the anchor are.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: with one thread no other thread holds a lock in the child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// The same into a PID namespace and a mount namespace of the child's own, in the first of which it is
/// the first process.
pub(crate) fn fork_into_namespace() -> io::Result<Option<Pid>> {
    let flags = libc::c_long::from(libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::SIGCHLD);
    // SAFETY: as for `fork`; without a stack and CLONE_VM the call is a fork (clone(2)). The C library
    // knows nothing of it: its own record of thread ids stays that of the parent, which nothing here
    // asks for before the next `fork` or `exec` puts it right.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid as i32)),
    }
}

/// The same into the control group of this directory (`CLONE_INTO_CGROUP` of clone3(2), Linux 5.7): the child is in there
/// from its first instruction. It does not wait until no processor is within a read of the kernel's tables, as one that
/// moves there does.
///
/// # Errors
/// Where a kernel or a filter of system calls does not know the call; `fork` and a move into the group do the same.
pub(crate) fn fork_into_group(group: BorrowedFd<'_>) -> io::Result<Option<Pid>> {
    // include/uapi/linux/sched.h; the constant of the crate libc overflows.
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    // SAFETY: all zeroes is a valid value of the structure, and means: nothing of it.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = CLONE_INTO_CGROUP;
    args.exit_signal = libc::SIGCHLD as u64;
    args.cgroup = group.as_raw_fd() as u64;
    // SAFETY: as for `fork_into_namespace`; args outlives the call.
    match unsafe { libc::syscall(libc::SYS_clone3, &args, size_of_val(&args)) } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid as i32)),
    }
}

/// Ends the process at once: no destructors, no `atexit` handlers, no flushing.
pub(crate) fn exit_now(code: u8) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code.into()) }
}

/// Lets children of this process leave exit codes behind. They do not while SIGCHLD is ignored (wait(2)), which a process
/// inherits: some supervisors ignore it.
pub(crate) fn keep_exit_codes() {
    // SAFETY: the default action is always valid.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
}

/// Ignores SIGTTOU, in this process and what it executes. A terminal sends it to a process in the background that writes
/// there while `stty tostop` is set, and stops it.
pub(crate) fn write_from_the_background() {
    // SAFETY: to ignore a signal is always valid.
    unsafe {
        libc::signal(libc::SIGTTOU, libc::SIG_IGN);
    }
}

/// Blocks `set` too and gives a file descriptor from which its signals are read.
pub(crate) fn take_signals(set: SignalSet) -> io::Result<OwnedFd> {
    keep_exit_codes();
    let raw = set.to_raw();
    // SAFETY: raw is a valid set that outlives the calls; a new descriptor has no other owner.
    unsafe {
        if libc::sigprocmask(libc::SIG_BLOCK, &raw, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &raw, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// The next signal that waits in a signalfd, if any.
pub(crate) fn next_signal(signals: impl AsFd) -> Option<Caught> {
    // struct signalfd_siginfo: ssi_signo at 0, ssi_errno at 4, ssi_code at 8.
    let mut info = [0u8; 128];
    match rustix::io::read(signals, &mut info) {
        Ok(128) => {
            let code = i32::from_ne_bytes([info[8], info[9], info[10], info[11]]);
            let signo = u32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
            // si_code is positive for what the kernel sends, zero or negative for processes.
            Some(Caught {
                signo: signo as u8,
                by_kernel: code > 0,
            })
        }
        _ => None,
    }
}

/// The signals that this process ignores. SIGPIPE is not counted: the Rust runtime ignores it.
pub(crate) fn ignored_signals() -> SignalSet {
    let mut set = SignalSet::default();
    for signo in 1..=64 {
        // SAFETY: sigaction with a null action only writes to `old`, which may be all zero.
        let ignored = unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signo, std::ptr::null(), &mut old) == 0 && old.sa_sigaction == libc::SIG_IGN
        };
        if ignored && signo != libc::SIGPIPE && signo != libc::SIGCHLD {
            set.add(signo);
        }
    }
    set
}

/// Makes the signals of a child what a program expects at its start: none blocked, SIGPIPE deadly.
/// (`exec` itself resets handlers; what was ignored when the guard started stays so.)
pub(crate) fn release_signals() {
    let none = SignalSet::default().to_raw();
    // SAFETY: `none` is a valid set that outlives the call.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// Sends `signo` to every process that this one may signal, itself and PID 1 excepted, and says whether there is any
/// process beside those two.
///
/// Outside a PID namespace of its own that is half the machine, so only PID 1 may do it.
pub(crate) fn signal_everybody(signo: i32) -> bool {
    // SAFETY: neither call has preconditions.
    unsafe { libc::getpid() == 1 && (libc::kill(-1, signo) == 0 || last_errno() != Errno::SRCH) }
}

/// Sends `signo` to the process behind a pidfd. Any signal goes, real-time ones too.
pub(crate) fn signal_through(pidfd: &OwnedFd, signo: i32) -> Result<(), Errno> {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open, and a null siginfo is what the call documents.
    match unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signo, none, 0) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// A pidfd of the process that connected this Unix socket, in whatever PID namespace it is.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 6.5; another when the process has been reaped.
pub(crate) fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut pidfd: RawFd = -1;
    let mut len = size_of::<RawFd>() as libc::socklen_t;
    // SAFETY: the socket is open, `pidfd` has room for the `len` bytes that are written, and a new descriptor has no
    // other owner.
    unsafe {
        let value = (&raw mut pidfd).cast();
        match libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            value,
            &mut len,
        ) {
            0 => Ok(OwnedFd::from_raw_fd(pidfd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The process that connected or listens at the other end of a Unix socket, as unix(7) says of `SO_PEERCRED`: 0 if this PID
/// namespace does not show it. (The type of the `rustix` crate has no room for a 0.)
pub(crate) fn peer_pid(socket: BorrowedFd<'_>) -> Result<i32, Errno> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the socket is open, and `peer` has room for the `len` bytes that are written.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut len,
        )
    };
    match done {
        0 => Ok(peer.pid),
        _ => Err(last_errno()),
    }
}

/// Waits, with the tokio runtime of this thread, for a descriptor to become readable.
pub(crate) fn watch_for_reading(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open while it exists, and always the same descriptor.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(Into::into)
}

/// Sends `signo` to the process with this number, whichever has it.
pub(crate) fn signal_process(pid: Pid, signo: i32) -> Result<(), Errno> {
    // SAFETY: the call has no preconditions.
    match unsafe { libc::kill(pid.as_raw_nonzero().get(), signo) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Closes every file descriptor from 3 on but for those in `keep`, which it sorts.
///
/// For forks of the guard that never run a destructor: the anchor, which must not hold the guard's socket open beyond the
/// guard's end, and what becomes a keeper.
pub(crate) fn close_all_but(keep: &mut [RawFd]) {
    keep.sort_unstable();
    let mut from = 3;
    for fd in keep.iter().copied().chain([RawFd::MAX]) {
        if fd > from {
            close_range(from, fd - 1);
        }
        from = from.max(fd.saturating_add(1));
    }
}

/// Closes the descriptors from `first` to `last`, each of which may be open or not.
fn close_range(first: RawFd, last: RawFd) {
    // SAFETY: the owners of these descriptors do not run any more in this process.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return;
    }
    // A sandbox that forbids it, a kernel before 5.9. This program never lowers the limit, so no open descriptor is
    // beyond it.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let end = limit.and_then(|limit| RawFd::try_from(limit).ok());
    let end = end.unwrap_or(MOST_DESCRIPTORS).min(MOST_DESCRIPTORS);
    for fd in first..=last.min(end) {
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
}

/// The default limit of descriptors of a process (`fs.nr_open`).
const MOST_DESCRIPTORS: RawFd = 1 << 20;
