//! One contender: a machine's clock, its settings, its processes, and who starts them again (a kubelet,
//! or a service manager for `lockkeeper run`).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use lockkeeper_lock::LockOptions;
use lockkeeper_lock::fake::{Freezable, SkewedClock};
use lockkeeper_sidecar::simulation::{Kind, Mode, Policy, Sweep};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle, spawn_local};
use tokio::time::sleep;

use crate::door::Peer;
use crate::guard::{Connection, Guard, Inbox, LeaseFile, SIGTERM, Stops};
use crate::guards::{Doorway, Guards};
use crate::keeper::{Keeper, Wishes};
use crate::kernel::Kernel;
use crate::socket::{End, pair};
use crate::stage::{Stage, up_to};

/// How soon something that has ended is started again, at most.
const LONGEST_RESTART: Duration = Duration::from_secs(2);

/// What lasts longer than a container's end waits for what survives SIGKILL in it.
const LOOK: Duration = Duration::from_millis(20);

/// A guard that runs.
struct Process {
    peer: Peer,
    kernel: Rc<Kernel>,
    inbox: Rc<Inbox>,
    /// The first process of its container.
    is_first: bool,
    abort: AbortHandle,
}

pub(crate) struct Pod {
    pub(crate) number: usize,
    /// Its name on the network.
    pub(crate) name: String,
    pub(crate) stage: Rc<Stage>,
    pub(crate) clock: SkewedClock,
    pub(crate) policy: Policy,
    pub(crate) options: LockOptions,
    pub(crate) doorway: Rc<Doorway>,
    pub(crate) wishes: Wishes,
    /// How long an application works at most before it ends by itself.
    longest_work: Duration,
    /// The guard of `run` may be stopped.
    guard_stops: Rc<Stops>,
    /// Guards, the real one first, and others that somebody started beside it.
    guards: RefCell<Vec<Process>>,
    /// What guards that have ended left behind.
    leftovers: RefCell<Vec<Rc<Kernel>>>,
    alive: RefCell<BTreeSet<Peer>>,
    ends: Notify,
    /// Whether the kernel tells a keeper of the end of a process that connected to it.
    pub(crate) tells_ends: bool,
    pub(crate) lease: Rc<LeaseFile>,
    /// The application's container, where a kubelet starts it and not the guard.
    container: Option<Rc<Kernel>>,
    keeper: RefCell<Option<AbortHandle>>,
}

impl Pod {
    pub(crate) fn new(
        stage: &Rc<Stage>,
        number: usize,
        clock: SkewedClock,
        policy: Policy,
        options: LockOptions,
        longest_work: Duration,
        tells_ends: bool,
    ) -> Rc<Self> {
        Rc::new(Self {
            number,
            name: format!("pod {number}"),
            stage: Rc::clone(stage),
            clock,
            policy,
            options,
            doorway: Rc::default(),
            wishes: Wishes::default(),
            longest_work,
            guard_stops: Rc::default(),
            guards: RefCell::default(),
            leftovers: RefCell::default(),
            alive: RefCell::default(),
            ends: Notify::new(),
            tells_ends,
            lease: Rc::default(),
            container: (policy.kind == Kind::Signal).then(|| Kernel::new(stage, number, true, longest_work)),
            keeper: RefCell::default(),
        })
    }

    /// Lets it run until the history is over.
    pub(crate) fn start(self: &Rc<Self>) {
        let pod = Rc::clone(self);
        match self.policy.kind {
            Kind::Run => drop(spawn_local(pod.supervise(Mode::Subreaper))),
            Kind::Signal => {
                spawn_local(Rc::clone(&pod).supervise(Mode::Container));
                spawn_local(pod.start_by_the_lease_file());
            }
            Kind::Wrap => {
                spawn_local(Rc::clone(&pod).keep_the_keeper());
                spawn_local(pod.keep_the_container());
            }
        }
    }

    /// A guard with the keeper as its child, again and again: `lockkeeper run`, or the sidecar's container.
    async fn supervise(self: Rc<Self>, mode: Mode) {
        while !self.stage.is_over.get() {
            let (guards, keepers) = pair();
            let peer = self.stage.number();
            let connection = Connection::inherited(peer, guards);
            let guard = self.start_guard(peer, mode, self.longest_work, connection);
            drop(self.start_keeper(Guards::Parent(Some(keepers))));
            self.wait_for_the_end(guard, peer).await;
            if mode == Mode::Container {
                // With the first process of a container go all others.
                self.kill_keeper();
            }
            sleep(up_to(LONGEST_RESTART)).await;
        }
    }

    /// The kubelet of a container that takes its environment from the lease file: without the file there is
    /// no start. It reads the file and starts at one moment here; how long a real one may take between
    /// is bounded in docs/safety.md, and not by anything that is simulated.
    async fn start_by_the_lease_file(self: Rc<Self>) {
        let Some(container) = &self.container else { return };
        while !self.stage.is_over.get() {
            sleep(LOOK).await;
            if !container.is_empty() {
                continue;
            }
            sleep(up_to(LONGEST_RESTART)).await;
            if let (Some(token), true) = (self.lease.get(), container.is_empty()) {
                container.start(token);
            }
        }
    }

    async fn keep_the_keeper(self: Rc<Self>) {
        while !self.stage.is_over.get() {
            let keeper = self.start_keeper(Guards::listen(&self));
            let _ = keeper.await;
            sleep(up_to(LONGEST_RESTART)).await;
        }
    }

    async fn keep_the_container(self: Rc<Self>) {
        while !self.stage.is_over.get() {
            let peer = self.stage.number();
            let connection = Connection::at(peer, &self.doorway);
            let guard = self.start_guard(peer, Mode::Pid1, self.longest_work, connection);
            self.wait_for_the_end(guard, peer).await;
            // With the first process goes all that somebody started beside it.
            self.kill_guards();
            while !self.leftovers.borrow().iter().all(|kernel| kernel.is_empty()) {
                sleep(LOOK).await;
            }
            self.leftovers.borrow_mut().clear();
            sleep(up_to(LONGEST_RESTART)).await;
        }
    }

    fn start_keeper(self: &Rc<Self>, guards: Guards) -> JoinHandle<()> {
        let client = self.stage.world.client(self.name.clone());
        // What was frozen was the process before.
        self.stage.world.freeze(&self.name, Duration::ZERO);
        let keeper = Keeper::new(self, guards);
        let task = spawn_local(Freezable::new(client).run(keeper.run()));
        *self.keeper.borrow_mut() = Some(task.abort_handle());
        task
    }

    fn start_guard(
        self: &Rc<Self>,
        peer: Peer,
        mode: Mode,
        longest_work: Duration,
        keeper: Connection,
    ) -> JoinHandle<u8> {
        let kernel = match &self.container {
            Some(container) => Rc::clone(container),
            None => Kernel::new(&self.stage, self.number, false, longest_work),
        };
        let inbox = Rc::<Inbox>::default();
        let guard = Guard::new(self, mode, &kernel, &inbox, keeper);
        let stops = match mode {
            Mode::Subreaper => Rc::clone(&self.guard_stops),
            // A first process is not stopped from within its container.
            Mode::Pid1 | Mode::Container => Rc::default(),
        };
        let task = spawn_local(stops.run(guard.run()));
        self.alive.borrow_mut().insert(peer);
        self.guards.borrow_mut().push(Process {
            peer,
            kernel,
            inbox,
            is_first: mode == Mode::Pid1,
            abort: task.abort_handle(),
        });
        task
    }

    async fn wait_for_the_end(self: &Rc<Self>, guard: JoinHandle<u8>, peer: Peer) {
        let code = guard.await;
        self.stage
            .say(|| format!("pod {}: guard {peer} has ended: {:?}", self.number, code.ok()));
        self.buried(peer);
    }

    /// A guard has ended, and takes all that it started along.
    fn buried(self: &Rc<Self>, peer: Peer) {
        let mut guards = self.guards.borrow_mut();
        let Some(index) = guards.iter().position(|guard| guard.peer == peer) else {
            return;
        };
        let guard = guards.remove(index);
        drop(guards);
        guard.kernel.end();
        if guard.is_first && !guard.kernel.is_empty() {
            // The end of the first process of a PID namespace is that of all others, and is told after theirs.
            let (pod, kernel) = (Rc::clone(self), Rc::clone(&guard.kernel));
            spawn_local(async move {
                while !kernel.is_empty() {
                    sleep(LOOK).await;
                }
                pod.ends(peer);
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

    /// Waits for the end of a process. For one waiter.
    pub(crate) async fn ended(&self, peer: Peer) {
        while self.lives(peer) {
            self.ends.notified().await;
        }
    }

    /// Whether a process has not ended.
    pub(crate) fn lives(&self, peer: Peer) -> bool {
        self.alive.borrow().contains(&peer)
    }

    /// All that guards left behind gets SIGKILL once more; true when nothing is left.
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

    /// SIGKILL to every guard.
    pub(crate) fn kill_guards(self: &Rc<Self>) {
        let peers: Vec<Peer> = self.guards.borrow().iter().map(|guard| guard.peer).collect();
        for peer in peers {
            if let Some(guard) = self.guards.borrow().iter().find(|guard| guard.peer == peer) {
                guard.abort.abort();
            }
            self.buried(peer);
        }
    }

    pub(crate) fn has_keeper(&self) -> bool {
        let keeper = self.keeper.borrow();
        keeper.as_ref().is_some_and(|keeper| !keeper.is_finished())
    }

    pub(crate) fn kill_keeper(&self) {
        if let Some(keeper) = &*self.keeper.borrow() {
            keeper.abort();
        }
    }

    /// SIGTERM to the first guard: a user, or a kubelet that restarts the container.
    pub(crate) fn terminate_guard(&self) {
        if let Some(guard) = self.guards.borrow().first() {
            guard.inbox.signal(SIGTERM);
        }
    }

    /// Somebody kills the application's processes.
    pub(crate) fn kill_application(&self) {
        for guard in &*self.guards.borrow() {
            guard.kernel.sweep(Sweep::Kill);
        }
    }

    /// A process of the application hangs where no signal reaches it.
    pub(crate) fn hang(&self, length: Duration) {
        if let Some(guard) = self.guards.borrow().first() {
            guard.kernel.hang(length);
        }
    }

    /// The guard of `run` is stopped for a while.
    pub(crate) fn stop_guard(&self, length: Duration) {
        self.guard_stops.stop(length);
    }

    pub(crate) fn is_guard_stopped(&self) -> bool {
        self.guard_stops.is_stopped()
    }

    /// Somebody runs `lockkeeper guard -- CMD` in a container that has a guard.
    pub(crate) fn start_another_guard(self: &Rc<Self>) {
        let peer = self.stage.number();
        let connection = Connection::at(peer, &self.doorway);
        let guard = self.start_guard(peer, Mode::Subreaper, Duration::from_millis(300), connection);
        let pod = Rc::clone(self);
        spawn_local(async move { pod.wait_for_the_end(guard, peer).await });
    }

    /// Somebody connects to the guard's socket, writes bytes, and goes.
    pub(crate) fn visit(self: &Rc<Self>, bytes: Vec<u8>, stays: Duration) {
        let peer = self.stage.number();
        self.alive.borrow_mut().insert(peer);
        let end: Option<End> = self.doorway.connect(peer);
        let pod = Rc::clone(self);
        spawn_local(async move {
            if let Some(end) = &end {
                end.send(&bytes);
            }
            sleep(stays).await;
            drop(end);
            pod.ends(peer);
        });
    }

    /// The guard's connection breaks, and both live.
    pub(crate) fn disconnect_guard(&self) {
        self.doorway.hang_up();
    }
}
