//! One contender: its [`Machine`], and the kubelet that restarts its processes, or the service manager for
//! `lockkeeper run`.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use lockkeeper_fake::{Freezable, SkewedClock};
use lockkeeper_lock::LockOptions;
use lockkeeper_sidecar::simulation::{Kind, Mode, Policy};
use tokio::task::{AbortHandle, JoinHandle, spawn_local};
use tokio::time::sleep;

use crate::door::Peer;
use crate::guard::{Connection, Guard, NextKeeper};
use crate::guards::Guards;
use crate::keeper::Keeper;
use crate::kernel::Kernel;
use crate::machine::{Inbox, LOOK, Machine, Process};
use crate::simulation::{Simulation, up_to};
use crate::socket::pair;

/// The longest time until an ended process is started again.
const LONGEST_RESTART: Duration = Duration::from_secs(2);

/// A contender, and its processes.
pub(crate) struct Pod {
    pub(crate) machine: Rc<Machine>,
    /// The longest time until an application ends by itself.
    longest_work: Duration,
    /// The name by which the world stops the guard of `lockkeeper run`.
    guard_of_run: String,
    keeper: RefCell<Option<AbortHandle>>,
}

impl Pod {
    pub(crate) fn new(
        simulation: &Rc<Simulation>,
        number: usize,
        clock: SkewedClock,
        policy: Policy,
        options: LockOptions,
        longest_work: Duration,
        tells_ends: bool,
    ) -> Rc<Self> {
        let container =
            (policy.kind == Kind::Signal).then(|| Kernel::new(simulation, number, true, longest_work));
        Rc::new(Self {
            machine: Machine::new(simulation, number, clock, policy, options, container, tells_ends),
            longest_work,
            guard_of_run: format!("guard of pod {number}"),
            keeper: RefCell::default(),
        })
    }

    /// Lets it run until the history is over.
    pub(crate) fn start(self: &Rc<Self>) {
        let pod = Rc::clone(self);
        match self.machine.policy.kind {
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
        while !self.machine.simulation.is_over.get() {
            let (guards, keepers) = pair();
            let peer = self.machine.simulation.number();
            let connection = Connection::inherited(peer, guards, self.next_keeper());
            let guard = self.start_guard(peer, mode, self.longest_work, connection);
            drop(self.start_keeper(Guards::Parent(Some(keepers))));
            self.wait_for_the_end(guard, peer).await;
            if mode == Mode::Container {
                // All other processes of a container end with its first one.
                self.kill_keeper();
            }
            sleep(up_to(LONGEST_RESTART)).await;
        }
    }

    /// What a guard does when its keeper has ended. It gives up now and then, as one does whose keepers end too soon.
    fn next_keeper(self: &Rc<Self>) -> NextKeeper {
        let pod = Rc::clone(self);
        Box::new(move || {
            pod.kill_keeper();
            let is_given_up = fastrand::u8(..8) == 0;
            if is_given_up || pod.machine.simulation.is_over.get() {
                return None;
            }
            let (guards, keepers) = pair();
            drop(pod.start_keeper(Guards::Parent(Some(keepers))));
            Some(guards)
        })
    }

    /// The kubelet of a container that takes its environment from the lease file: without the file there is
    /// no start. Here it reads the file and starts the container at one moment. docs/safety.md bounds the
    /// time that a real kubelet may take in between, which the simulation does not model.
    async fn start_by_the_lease_file(self: Rc<Self>) {
        let Some(container) = &self.machine.container else {
            return;
        };
        while !self.machine.simulation.is_over.get() {
            sleep(LOOK).await;
            if !container.is_empty() {
                continue;
            }
            sleep(up_to(LONGEST_RESTART)).await;
            if let (Some(token), true) = (self.machine.lease.get(), container.is_empty()) {
                container.start(token);
            }
        }
    }

    async fn keep_the_keeper(self: Rc<Self>) {
        while !self.machine.simulation.is_over.get() {
            let keeper = self.start_keeper(Guards::listen(&self.machine));
            let _ = keeper.await;
            sleep(up_to(LONGEST_RESTART)).await;
        }
    }

    async fn keep_the_container(self: Rc<Self>) {
        while !self.machine.simulation.is_over.get() {
            let peer = self.machine.simulation.number();
            let connection = Connection::at(peer, &self.machine.doorway);
            let guard = self.start_guard(peer, Mode::Pid1, self.longest_work, connection);
            self.wait_for_the_end(guard, peer).await;
            // All processes that were started beside the first one end with it.
            self.machine.kill_guards();
            self.machine.cleared().await;
            sleep(up_to(LONGEST_RESTART)).await;
        }
    }

    fn start_keeper(self: &Rc<Self>, guards: Guards) -> JoinHandle<()> {
        let client = self.machine.simulation.world.client(self.machine.name.clone());
        // The freeze applied to the former process.
        self.machine
            .simulation
            .world
            .freeze(&self.machine.name, Duration::ZERO);
        let keeper = Keeper::new(&self.machine, guards);
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
        let kernel = match &self.machine.container {
            Some(container) => Rc::clone(container),
            None => Kernel::new(&self.machine.simulation, self.machine.number, false, longest_work),
        };
        let inbox = Rc::<Inbox>::default();
        let guard = Guard::new(&self.machine, mode, &kernel, &inbox, keeper);
        let task = match mode {
            Mode::Subreaper => {
                let process = self.machine.simulation.world.client(self.guard_of_run.clone());
                spawn_local(Freezable::new(process).run(guard.run()))
            }
            // The first process of a container cannot be stopped from within.
            Mode::Pid1 | Mode::Container => spawn_local(guard.run()),
        };
        self.machine.started(Process {
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
        self.machine.simulation.say(|| {
            format!(
                "pod {}: guard {peer} has ended: {:?}",
                self.machine.number,
                code.ok()
            )
        });
        self.machine.buried(peer);
    }

    // Faults.

    pub(crate) fn has_keeper(&self) -> bool {
        let keeper = self.keeper.borrow();
        keeper.as_ref().is_some_and(|keeper| !keeper.is_finished())
    }

    pub(crate) fn kill_keeper(&self) {
        if let Some(keeper) = &*self.keeper.borrow() {
            keeper.abort();
        }
    }

    /// Stops the guard of `run` (SIGSTOP) for a while.
    pub(crate) fn stop_guard(&self, length: Duration) {
        self.machine.simulation.world.freeze(&self.guard_of_run, length);
    }

    pub(crate) fn is_guard_stopped(&self) -> bool {
        self.machine.simulation.world.is_frozen(&self.guard_of_run)
    }

    /// A user runs `lockkeeper guard -- CMD` in a container that has a guard.
    pub(crate) fn start_another_guard(self: &Rc<Self>) {
        let peer = self.machine.simulation.number();
        let connection = Connection::at(peer, &self.machine.doorway);
        let guard = self.start_guard(peer, Mode::Subreaper, Duration::from_millis(300), connection);
        let pod = Rc::clone(self);
        spawn_local(async move { pod.wait_for_the_end(guard, peer).await });
    }
}
