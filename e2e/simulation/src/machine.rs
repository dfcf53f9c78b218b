//! The machine of one contender: its clock, its settings, and the shared state of its processes (files,
//! sockets and the table of processes).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use lockkeeper_fake::SkewedClock;
use lockkeeper_lock::{FencingToken, LockOptions};
use lockkeeper_sidecar::simulation::{Policy, Sweep};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::sleep;

use crate::door::Peer;
use crate::doorway::Doorway;
use crate::kernel::Kernel;
use crate::mailbox::Mailbox;
use crate::simulation::Simulation;
use crate::socket::End;

pub(crate) const SIGTERM: u8 = 15;

/// Time between two looks at processes that survive SIGKILL in a container that ends.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// The file with the token, which lets a kubelet start the application.
pub(crate) type LeaseFile = Cell<Option<FencingToken>>;

/// Signals that wait for a guard.
pub(crate) type Inbox = Mailbox<u8>;

/// Requests to a keeper.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    StepDown,
    /// SIGTERM.
    End,
}

/// A guard that runs.
pub(crate) struct Process {
    pub(crate) peer: Peer,
    pub(crate) kernel: Rc<Kernel>,
    pub(crate) inbox: Rc<Inbox>,
    /// The first process of its container.
    pub(crate) is_first: bool,
    pub(crate) abort: AbortHandle,
}

/// A machine, or a pod, which is a machine to its processes.
pub(crate) struct Machine {
    pub(crate) number: usize,
    /// Its name on the network.
    pub(crate) name: String,
    pub(crate) simulation: Rc<Simulation>,
    pub(crate) clock: SkewedClock,
    pub(crate) policy: Policy,
    pub(crate) options: LockOptions,
    pub(crate) doorway: Rc<Doorway>,
    pub(crate) wishes: Mailbox<Wish>,
    /// Guards: the real one first, then additional ones.
    guards: RefCell<Vec<Process>>,
    /// Remaining processes of guards that have ended.
    leftovers: RefCell<Vec<Rc<Kernel>>>,
    alive: RefCell<BTreeSet<Peer>>,
    ends: Notify,
    /// Whether the kernel reports to a keeper the end of a process that has connected to it.
    pub(crate) tells_ends: bool,
    pub(crate) lease: LeaseFile,
    /// The application's container, if a kubelet starts it and not the guard.
    pub(crate) container: Option<Rc<Kernel>>,
}

impl Machine {
    pub(crate) fn new(
        simulation: &Rc<Simulation>,
        number: usize,
        clock: SkewedClock,
        policy: Policy,
        options: LockOptions,
        container: Option<Rc<Kernel>>,
        tells_ends: bool,
    ) -> Rc<Self> {
        Rc::new(Self {
            number,
            name: format!("pod {number}"),
            simulation: Rc::clone(simulation),
            clock,
            policy,
            options,
            doorway: Rc::default(),
            wishes: Mailbox::default(),
            guards: RefCell::default(),
            leftovers: RefCell::default(),
            alive: RefCell::default(),
            ends: Notify::new(),
            tells_ends,
            lease: LeaseFile::default(),
            container,
        })
    }

    pub(crate) fn started(&self, guard: Process) {
        self.alive.borrow_mut().insert(guard.peer);
        self.guards.borrow_mut().push(guard);
    }

    /// Waits until all remaining processes of ended guards are gone.
    pub(crate) async fn cleared(&self) {
        while !self.leftovers.borrow().iter().all(|kernel| kernel.is_empty()) {
            sleep(LOOK).await;
        }
        self.leftovers.borrow_mut().clear();
    }

    /// Records that a guard has ended; all its processes end with it.
    pub(crate) fn buried(self: &Rc<Self>, peer: Peer) {
        let mut guards = self.guards.borrow_mut();
        let Some(index) = guards.iter().position(|guard| guard.peer == peer) else {
            return;
        };
        let guard = guards.remove(index);
        drop(guards);
        guard.kernel.end();
        if guard.is_first && !guard.kernel.is_empty() {
            // When the first process of a PID namespace ends, all others end too, and the kernel reports its
            // end after theirs.
            let (machine, kernel) = (Rc::clone(self), Rc::clone(&guard.kernel));
            spawn_local(async move {
                while !kernel.is_empty() {
                    sleep(LOOK).await;
                }
                machine.ends(peer);
            });
        } else {
            self.ends(peer);
        }
        if !guard.kernel.is_container && !guard.kernel.is_empty() {
            self.leftovers.borrow_mut().push(guard.kernel);
        }
    }

    fn ends(&self, peer: Peer) {
        self.alive.borrow_mut().remove(&peer);
        self.ends.notify_one();
    }

    /// Waits for the end of a process. Only one caller may wait for it.
    pub(crate) async fn ended(&self, peer: Peer) {
        while self.lives(peer) {
            self.ends.notified().await;
        }
    }

    pub(crate) fn lives(&self, peer: Peer) -> bool {
        self.alive.borrow().contains(&peer)
    }

    /// Sends SIGKILL once more to all remaining processes of ended guards; true when none is left.
    pub(crate) fn kill_leftovers(&self) -> bool {
        if let Some(container) = &self.container {
            return !container.sweep(Sweep::Kill).alive;
        }
        let mut leftovers = self.leftovers.borrow_mut();
        leftovers.retain(|kernel| {
            kernel.end();
            !kernel.is_empty()
        });
        leftovers.is_empty()
    }

    // Faults.

    /// Kills every guard (SIGKILL).
    pub(crate) fn kill_guards(self: &Rc<Self>) {
        let peers: Vec<Peer> = self.guards.borrow().iter().map(|guard| guard.peer).collect();
        for peer in peers {
            if let Some(guard) = self.guards.borrow().iter().find(|guard| guard.peer == peer) {
                guard.abort.abort();
            }
            self.buried(peer);
        }
    }

    /// Sends SIGTERM to the first guard, as a user does, or a kubelet that restarts the container.
    pub(crate) fn terminate_guard(&self) {
        if let Some(guard) = self.guards.borrow().first() {
            guard.inbox.push(SIGTERM);
        }
    }

    /// Kills the application's processes (SIGKILL).
    pub(crate) fn kill_application(&self) {
        for guard in &*self.guards.borrow() {
            guard.kernel.sweep(Sweep::Kill);
        }
    }

    /// A process connects to the guard's socket, writes bytes, and closes it.
    pub(crate) fn visit(self: &Rc<Self>, bytes: Vec<u8>, stays: Duration) {
        let peer = self.simulation.number();
        self.alive.borrow_mut().insert(peer);
        let end: Option<End> = self.doorway.connect(peer);
        let machine = Rc::clone(self);
        spawn_local(async move {
            if let Some(end) = &end {
                end.send(&bytes);
            }
            sleep(stays).await;
            drop(end);
            machine.ends(peer);
        });
    }

    /// Lets a process of the application hang, where no signal reaches it.
    pub(crate) fn hang(&self, length: Duration) {
        if let Some(guard) = self.guards.borrow().first() {
            guard.kernel.hang(length);
        }
    }

    /// Breaks the guard's connection, while both ends live.
    pub(crate) fn disconnect_guard(&self) {
        self.doorway.hang_up();
    }
}
