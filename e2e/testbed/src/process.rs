//! Child processes that end with the harness at the latest.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::clock::since_boot;
use crate::sys;

/// Least time between two checks of a condition that a test waits for.
pub(crate) const POLL: Duration = Duration::from_millis(5);

/// Longest such time. A check that takes long, such as reading a long record, is made less often: the processors are
/// for what the test waits for.
const LONGEST_POLL: Duration = Duration::from_millis(250);

/// A child process; dropping it kills it and waits for it.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: Pid,
    child: Child,
}

impl Process {
    /// Starts a program in the namespace of the harness itself. See [`crate::Host::spawn`].
    pub fn spawn(name: impl Into<String>, command: Command) -> io::Result<Self> {
        Self::spawn_in(name, command, Namespaces::default())
    }

    pub(crate) fn spawn_in(
        name: impl Into<String>,
        mut command: Command,
        namespaces: Namespaces,
    ) -> io::Result<Self> {
        let name = name.into();
        sys::bind(&mut command, namespaces.network, namespaces.pids.is_some());
        // A Ctrl-C in the terminal goes only to the harness, which ends its children in order.
        sys::new_session(&mut command);
        let child = spawn_on_lasting_thread(command, namespaces.pids)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot start {name}: {error}")))?;
        let pid = Pid::from_child(&child);
        Ok(Self { name, pid, child })
    }

    /// Gives a command no input, and pipes for its output: for [`Process::output`].
    pub fn piped(command: &mut Command) -> &mut Command {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
    }

    /// Its name in the harness.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id, valid until it has been waited for.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Its standard input, output and error, when the command asked for pipes.
    pub fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal. Does nothing once the process has been waited for.
    pub fn signal(&mut self, signal: Signal) {
        if self.is_running() {
            // It may end in this moment; then no process gets the signal.
            let _ = rustix::process::kill_process(self.pid, signal);
        }
    }

    /// Waits for the end of the process, at most for `bound`; `None` if it still runs then.
    pub fn wait(&mut self, bound: Duration) -> io::Result<Option<ExitStatus>> {
        let end = since_boot() + bound;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if since_boot() >= end {
                return Ok(None);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Everything that it writes into the pipes of its command, and its exit status.
    pub fn output(self) -> io::Result<Output> {
        let ended = self.collect(|process| process.child.wait().map(Some))?;
        Ok(ended.expect("it was waited for without a bound"))
    }

    /// The same; `None` if it was killed because it had not ended within `bound`.
    pub fn output_within(self, bound: Duration) -> io::Result<Option<Output>> {
        self.collect(|process| process.wait(bound))
    }

    fn collect(
        mut self,
        wait: impl FnOnce(&mut Self) -> io::Result<Option<ExitStatus>>,
    ) -> io::Result<Option<Output>> {
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        std::thread::scope(|scope| {
            let (output, errors) = (scope.spawn(|| read_all(stdout)), scope.spawn(|| read_all(stderr)));
            let status = wait(&mut self);
            if !matches!(status, Ok(Some(_))) {
                // This closes the pipes, too.
                self.kill();
            }
            let joined = |reading: std::thread::ScopedJoinHandle<'_, io::Result<Vec<u8>>>| {
                reading
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            let (stdout, stderr) = (joined(output)?, joined(errors)?);
            Ok(status?.map(|status| Output {
                status,
                stdout,
                stderr,
            }))
        })
    }

    /// Kills it and waits for its end.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        // Fails only if it was waited for before.
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn read_all(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Time until the next check after one that took so long, at least `least`.
pub(crate) fn pause(took: Duration, least: Duration) -> Duration {
    (4 * took).clamp(least, LONGEST_POLL)
}

/// Waits until `condition` returns a value, at most for `bound`.
pub fn wait_for<T>(bound: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let end = since_boot() + bound;
    loop {
        let asked = since_boot();
        if let Some(value) = condition() {
            return Some(value);
        }
        let now = since_boot();
        if now >= end {
            return None;
        }
        std::thread::sleep(pause(now.saturating_sub(asked), POLL));
    }
}

/// User and system time of a process, of all threads that it has or had, to the nanosecond
/// (`clock_getcpuclockid(3)`). `/proc` counts in ticks of 10 ms.
///
/// # Errors
/// When it has ended.
pub fn cpu_time(pid: Pid) -> io::Result<Duration> {
    sys::cpu_time(pid)
}

/// A time that the kernel counts in ticks of its clock.
pub fn of_ticks(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Resident memory of a process, in bytes.
///
/// # Errors
/// When it has ended.
pub fn resident_memory(pid: Pid) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    // A process that is ending has no memory any more.
    Ok(kib.unwrap_or_default() * 1024)
}

/// Where a process is started: in the namespaces of the harness unless others are given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Namespaces {
    pub(crate) network: Option<Arc<File>>,
    pub(crate) pids: Option<Arc<File>>,
}

struct Order {
    command: Command,
    pids: Option<Arc<File>>,
    answer: Sender<io::Result<Child>>,
}

impl Order {
    /// `own`: the PID namespace of this thread.
    fn carry_out(mut self, own: &File) {
        let spawned = match &self.pids {
            None => self.command.spawn(),
            // What this thread starts is in that namespace then; the thread itself stays where it is (setns(2)).
            Some(pids) => enter(pids).and_then(|()| {
                let child = self.command.spawn();
                enter(own).expect("a thread may always start processes in its own namespace again");
                child
            }),
        };
        // The receiver is gone only if the calling thread has ended.
        let _ = self.answer.send(spawned);
    }
}

fn enter(pids: &File) -> io::Result<()> {
    Ok(move_into_link_name_space(
        pids.as_fd(),
        Some(LinkNameSpaceType::ProcessID),
    )?)
}

/// `PR_SET_PDEATHSIG` is about the *thread* that forked: a test's thread ends with the test, and a thread of
/// an asynchronous runtime at any moment. So one thread, which ends with the process, forks for all.
fn spawn_on_lasting_thread(command: Command, pids: Option<Arc<File>>) -> io::Result<Child> {
    static SPAWNER: OnceLock<Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, queue) = mpsc::channel::<Order>();
        std::thread::Builder::new()
            .name("spawner".to_owned())
            .spawn(move || {
                let own = File::open("/proc/self/ns/pid").expect("the own namespace can be opened");
                for order in queue {
                    order.carry_out(&own);
                }
            })
            .expect("a thread can be started");
        orders
    });
    let (answer, child) = mpsc::channel();
    let gone = || io::Error::other("the thread that starts processes is gone");
    let order = Order {
        command,
        pids,
        answer,
    };
    spawner.send(order).map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}
