//! The kernel as one guard sees it: the tree of processes that it started, and the signals to them.
//!
//! A process forks, ends by itself or on SIGTERM, and may hang in an uninterruptible wait (state D). Then
//! SIGKILL and SIGSTOP take effect when that wait ends, and the process counts as running until then.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use lockkeeper_lock::FencingToken;
use lockkeeper_sidecar::simulation::{Event, Sight, Sweep};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::simulation::{Simulation, up_to};

/// 128 + SIGKILL, as in shells.
const KILLED: u8 = 137;
/// 128 + SIGTERM.
const TERMINATED: u8 = 143;

#[derive(Default)]
struct Process {
    is_stopped: bool,
    /// In an uninterruptible wait.
    hangs: bool,
    is_to_stop: bool,
    is_killed: bool,
}

#[derive(Default)]
struct State {
    token: Option<FencingToken>,
    processes: BTreeMap<u32, Process>,
    main: Option<u32>,
    newest: u32,
    events: VecDeque<Event>,
    has_lost_child: bool,
    /// The guard has ended, and all its processes end.
    is_ending: bool,
}

pub(crate) struct Kernel {
    simulation: Rc<Simulation>,
    pod: usize,
    tree: u64,
    /// Whether it is a container that a kubelet starts, and that outlives its guard.
    pub(crate) is_container: bool,
    /// The longest time until the application ends by itself.
    longest_work: Duration,
    state: RefCell<State>,
    pub(crate) news: Notify,
}

impl Kernel {
    pub(crate) fn new(
        simulation: &Rc<Simulation>,
        pod: usize,
        is_container: bool,
        longest_work: Duration,
    ) -> Rc<Self> {
        Rc::new(Self {
            simulation: Rc::clone(simulation),
            pod,
            tree: simulation.number(),
            is_container,
            longest_work,
            state: RefCell::default(),
            news: Notify::new(),
        })
    }

    /// Forks and executes the application.
    pub(crate) fn start(self: &Rc<Self>, token: FencingToken) {
        self.state.borrow_mut().token = Some(token);
        self.state.borrow_mut().events.clear();
        let longest = match self.simulation.is_calm.get() {
            true => self.longest_work / 8,
            false => self.longest_work,
        };
        let main = self.fork(up_to(longest));
        self.simulation
            .say(|| format!("pod {}: tree {} runs under {token}", self.pod, self.tree));
        let mut state = self.state.borrow_mut();
        state.main = Some(main);
        state.events.push_back(Event::Started { pid: main });
        drop(state);
        self.count();
        self.news.notify_one();
    }

    /// The application continues under another token.
    pub(crate) fn is_under(&self, token: FencingToken) {
        self.state.borrow_mut().token = Some(token);
    }

    /// A process that lives for a while, and may fork.
    fn fork(self: &Rc<Self>, life: Duration) -> u32 {
        let mut state = self.state.borrow_mut();
        state.newest += 1;
        let pid = state.newest;
        state.processes.insert(pid, Process::default());
        drop(state);
        let forks_after = (fastrand::u8(..3) == 0).then(|| up_to(life));
        let kernel = Rc::clone(self);
        tokio::task::spawn_local(async move {
            if let Some(after) = forks_after {
                sleep(after).await;
                if kernel.can_act(pid) {
                    // It may outlive its parent.
                    kernel.fork(up_to(life * 2));
                }
                sleep(life.saturating_sub(after)).await;
            } else {
                sleep(life).await;
            }
            while kernel.is_there(pid) {
                if kernel.can_act(pid) {
                    return kernel.exit(pid, 0);
                }
                sleep(Duration::from_millis(500)).await;
            }
        });
        pid
    }

    fn is_there(&self, pid: u32) -> bool {
        self.state.borrow().processes.contains_key(&pid)
    }

    fn can_act(&self, pid: u32) -> bool {
        let state = self.state.borrow();
        let process = state.processes.get(&pid);
        process.is_some_and(|process| !process.is_stopped && !process.hangs)
    }

    fn exit(&self, pid: u32, code: u8) {
        let mut state = self.state.borrow_mut();
        if state.processes.remove(&pid).is_none() {
            return;
        }
        state.has_lost_child = true;
        if state.main == Some(pid) {
            state.main = None;
            state.events.push_back(Event::MainExited { code });
        }
        drop(state);
        self.count();
        self.news.notify_one();
    }

    /// Sends SIGTERM to the main process, which ends after a moment, or ignores it.
    pub(crate) fn terminate(self: &Rc<Self>) {
        let Some(main) = self.state.borrow().main else {
            return;
        };
        if fastrand::u8(..4) == 0 {
            return;
        }
        let (kernel, after) = (Rc::clone(self), up_to(Duration::from_millis(400)));
        tokio::task::spawn_local(async move {
            sleep(after).await;
            if kernel.can_act(main) {
                kernel.exit(main, TERMINATED);
            }
        });
    }

    pub(crate) fn sweep(&self, sweep: Sweep) -> Sight {
        let pids: Vec<u32> = self.state.borrow().processes.keys().copied().collect();
        for pid in pids {
            self.signal(pid, sweep);
        }
        self.count();
        let state = self.state.borrow();
        Sight {
            alive: !state.processes.is_empty(),
            unstopped: state.processes.values().any(|process| !process.is_stopped),
            ..Sight::default()
        }
    }

    fn signal(&self, pid: u32, sweep: Sweep) {
        let mut state = self.state.borrow_mut();
        let Some(process) = state.processes.get_mut(&pid) else {
            return;
        };
        match (sweep, process.hangs) {
            (Sweep::Kill, true) => process.is_killed = true,
            (Sweep::Kill, false) => {
                drop(state);
                self.exit(pid, KILLED);
            }
            (Sweep::Stop, true) => process.is_to_stop = true,
            (Sweep::Stop, false) => process.is_stopped = true,
            (Sweep::Continue, _) => (process.is_stopped, process.is_to_stop) = (false, false),
            (Sweep::Look, _) => {}
        }
    }

    /// Lets a process of the tree hang in an uninterruptible wait for a while.
    pub(crate) fn hang(self: &Rc<Self>, length: Duration) {
        let mut state = self.state.borrow_mut();
        let runs = |(pid, process): (&u32, &Process)| (!process.is_stopped && !process.hangs).then_some(*pid);
        let pids: Vec<u32> = state.processes.iter().filter_map(runs).collect();
        let Some(pid) = fastrand::choice(pids) else { return };
        if let Some(process) = state.processes.get_mut(&pid) {
            process.hangs = true;
        }
        drop(state);
        let kernel = Rc::clone(self);
        self.simulation.say(|| {
            format!(
                "pod {}: process {pid} of tree {} hangs for {length:?}",
                self.pod, self.tree
            )
        });
        tokio::task::spawn_local(async move {
            sleep(length).await;
            kernel.goes_on(pid);
        });
    }

    fn goes_on(&self, pid: u32) {
        let mut state = self.state.borrow_mut();
        let is_ending = state.is_ending;
        let Some(process) = state.processes.get_mut(&pid) else {
            return;
        };
        process.hangs = false;
        process.is_stopped |= process.is_to_stop;
        let is_killed = process.is_killed || is_ending;
        drop(state);
        if is_killed {
            self.exit(pid, KILLED);
        }
        self.count();
    }

    /// The guard has ended: the kernel, or its anchor, ends all its processes.
    pub(crate) fn end(&self) {
        if self.is_container {
            return;
        }
        self.state.borrow_mut().is_ending = true;
        self.sweep(Sweep::Kill);
    }

    /// The number of processes, and the id of one of them.
    pub(crate) fn found(&self) -> (u32, u32) {
        let state = self.state.borrow();
        let pid = state.processes.keys().next().copied();
        (state.processes.len() as u32, pid.unwrap_or(0))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.borrow().processes.is_empty()
    }

    /// The next event for the guard.
    pub(crate) fn event(&self) -> Option<Event> {
        let mut state = self.state.borrow_mut();
        match state.events.pop_front() {
            // A guard beside a container sees only that a process has ended.
            Some(_) if self.is_container => state.events.clear(),
            Some(event) => return Some(event),
            None => {}
        }
        std::mem::take(&mut state.has_lost_child).then_some(Event::ChildEnded)
    }

    /// Reports to the ledger whether a process of the tree runs.
    fn count(&self) {
        let state = self.state.borrow();
        let runs = state.processes.values().any(|process| !process.is_stopped);
        let mut ledger = self.simulation.ledger.borrow_mut();
        let was_running = ledger.is_running(self.tree);
        match (was_running, runs, state.token) {
            (false, true, Some(token)) => {
                ledger.begins(self.tree, self.pod, token, self.simulation.now());
                if let Some(violation) = ledger.violation() {
                    self.simulation.say(|| violation.to_owned());
                }
            }
            (true, false, _) => {
                ledger.ends(self.tree, self.simulation.now());
                self.simulation
                    .say(|| format!("pod {}: nothing of tree {} runs", self.pod, self.tree));
            }
            _ => {}
        }
    }
}
