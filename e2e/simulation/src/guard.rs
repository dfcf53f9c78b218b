//! One guard process: the real schedule, in the loop of `sidecar/src/guard/event_loop.rs`, on the simulated
//! kernel and socket.

use std::rc::Rc;
use std::time::Duration;

use lockkeeper_lock::{BootInstant, Clock};
use lockkeeper_sidecar::link::protocol::{Containment, FromGuard, ToGuard};
use lockkeeper_sidecar::simulation::{Action, Event, Mode, Schedule, Sweep};

use crate::door::Peer;
use crate::doorway::Doorway;
use crate::kernel::Kernel;
use crate::machine::{Inbox, Machine, SIGTERM};
use crate::maybe::maybe;
use crate::simulation::up_to;
use crate::socket::{End, Received};

/// As in `sidecar/src/link/guard_end.rs`.
const RETRY_SHORTEST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(1);

/// Starts another keeper in place of a guard's child that has ended.
pub(crate) type NextKeeper = Box<dyn Fn() -> Option<End>>;

/// How long the start of a process takes at most, as long as the machine is well.
const LONGEST_START: Duration = Duration::from_millis(200);

/// The guard's connection to its keeper.
pub(crate) struct Connection {
    end: Option<End>,
    /// The path to connect to; `None` for an inherited socket, which cannot be opened again.
    door: Option<Rc<Doorway>>,
    /// Starts the next keeper, and gives the socket to it; `None` when there will be no other.
    next: Option<NextKeeper>,
    /// When that is due.
    next_at: Option<BootInstant>,
    peer: Peer,
    retry_at: BootInstant,
    retry_after: Duration,
}

impl Connection {
    pub(crate) fn inherited(peer: Peer, end: End, next: NextKeeper) -> Self {
        Self {
            end: Some(end),
            door: None,
            next: Some(next),
            next_at: None,
            peer,
            retry_at: BootInstant::from_nanos(0),
            retry_after: RETRY_SHORTEST,
        }
    }

    pub(crate) fn at(peer: Peer, door: &Rc<Doorway>) -> Self {
        Self {
            end: None,
            door: Some(Rc::clone(door)),
            next: None,
            next_at: None,
            peer,
            retry_at: BootInstant::from_nanos(0),
            retry_after: RETRY_SHORTEST,
        }
    }

    fn retry_at(&self) -> Option<BootInstant> {
        (self.end.is_none() && self.door.is_some()).then_some(self.retry_at)
    }

    fn connect(&mut self, now: BootInstant) -> bool {
        let Some(door) = &self.door else { return false };
        if self.end.is_some() || now < self.retry_at {
            return false;
        }
        self.end = door.connect(self.peer);
        if self.end.is_some() {
            self.retry_after = RETRY_SHORTEST;
            return true;
        }
        self.retry_at = now + self.retry_after;
        self.retry_after = (self.retry_after * 2).min(RETRY_LONGEST);
        false
    }

    fn hang_up(&mut self, now: BootInstant) {
        self.end = None;
        self.retry_at = now + self.retry_after;
        self.next_at = self.next.as_ref().map(|_| now + up_to(LONGEST_START));
    }

    /// Replaces a child that has ended. False when there will be no other.
    fn replace(&mut self) -> bool {
        self.next_at = None;
        self.end = self.next.as_ref().and_then(|next| next());
        if self.end.is_none() {
            self.next = None;
        }
        self.end.is_some()
    }
}

/// A guard, from its start to its end.
pub(crate) struct Guard {
    machine: Rc<Machine>,
    kernel: Rc<Kernel>,
    inbox: Rc<Inbox>,
    keeper: Connection,
    schedule: Schedule,
    exit: Option<u8>,
}

impl Guard {
    pub(crate) fn new(
        machine: &Rc<Machine>,
        mode: Mode,
        kernel: &Rc<Kernel>,
        inbox: &Rc<Inbox>,
        keeper: Connection,
    ) -> Self {
        let reconnects = keeper.door.is_some();
        Self {
            machine: Rc::clone(machine),
            kernel: Rc::clone(kernel),
            inbox: Rc::clone(inbox),
            keeper,
            schedule: Schedule::new(mode, reconnects, machine.clock.now()),
            exit: None,
        }
    }

    fn now(&self) -> BootInstant {
        self.machine.clock.now()
    }

    /// Runs until the schedule wants to end, and returns the exit code.
    pub(crate) async fn run(mut self) -> u8 {
        if self.keeper.end.is_some() {
            self.greet();
        }
        loop {
            self.handle(Event::Tick);
            if self.keeper.connect(self.now()) {
                self.greet();
            }
            self.replace_keeper();
            if let Some(code) = self.exit {
                return code;
            }
            self.wait().await;
            self.read_keeper();
            self.read_signals();
            self.read_kernel();
        }
    }

    async fn wait(&self) {
        let wake_at = [
            self.schedule.wake_at(),
            self.keeper.retry_at(),
            self.keeper.next_at,
        ]
        .into_iter()
        .flatten()
        .min();
        let sleep = wake_at.map(|moment| self.machine.clock.sleep(moment - self.now()));
        tokio::select! {
            biased;
            () = maybe(sleep) => {}
            () = maybe(self.keeper.end.as_ref().map(End::readable)) => {}
            () = self.inbox.news() => {}
            () = self.kernel.news.notified() => {}
        }
    }

    fn greet(&mut self) {
        self.handle(Event::KeeperConnected);
        let peer = self.keeper.peer;
        let hello = self.schedule.hello(peer as u32, peer, Containment::Sweep, 0);
        self.send(&hello);
        for frame in self.schedule.after_hello() {
            self.write(&frame);
        }
    }

    fn replace_keeper(&mut self) {
        let now = self.now();
        if self.exit.is_some() || self.keeper.next_at.is_none_or(|moment| moment > now) {
            return;
        }
        if self.keeper.replace() {
            self.greet();
        } else {
            self.handle(Event::KeeperLost { returns: false });
        }
    }

    fn read_keeper(&mut self) {
        while let Some(end) = &self.keeper.end {
            let frame = match end.receive() {
                Received::Nothing => return,
                Received::Over => None,
                Received::Frame(bytes) => ToGuard::decode(&bytes).ok(),
            };
            match frame {
                Some(frame) => self.handle(Event::Frame(frame)),
                None => {
                    self.keeper.hang_up(self.now());
                    let returns = self.keeper.next.is_some();
                    self.handle(Event::KeeperLost { returns });
                }
            }
        }
    }

    fn read_signals(&mut self) {
        loop {
            let signal = self.inbox.take();
            let Some(signo) = signal else { return };
            self.handle(Event::Signal {
                signo,
                to_group: false,
            });
        }
    }

    fn read_kernel(&mut self) {
        while let Some(event) = self.kernel.event() {
            self.handle(event);
        }
    }

    /// Gives an event to the schedule and carries out its actions; their result is an event too.
    fn handle(&mut self, event: Event) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            if self.exit.is_some() {
                return;
            }
            let actions = self.schedule.handle(event, self.now());
            for action in actions.iter() {
                // After a pause the application goes on under a new token; report it last.
                if let Action::Report(FromGuard::Started { token, .. }) = action {
                    self.kernel.is_under(token);
                }
            }
            for action in actions.iter() {
                match action {
                    // The kubelet starts it.
                    Action::Start(_) if self.kernel.is_container => next = Some(Event::Started { pid: 0 }),
                    Action::Start(token) => self.kernel.start(token),
                    Action::Terminate => self.kernel.terminate(),
                    Action::Forward(signo) if signo == SIGTERM => self.kernel.terminate(),
                    Action::Forward(_) => {}
                    Action::RemoveLease => self.machine.lease.set(None),
                    Action::Sweep(sweep) => next = Some(Event::Saw(self.kernel.sweep(sweep))),
                    Action::Clear => next = Some(Event::Saw(self.kernel.sweep(Sweep::Kill))),
                    Action::Report(frame) => self.send(&frame),
                    Action::ReportSurvivors(token) => {
                        let (count, pid) = self.kernel.found();
                        self.send(&FromGuard::Survivors { token, count, pid });
                    }
                    Action::Exit(code) => self.exit = Some(code),
                }
            }
        }
    }

    fn send(&mut self, frame: &FromGuard) {
        self.machine.simulation.say(|| {
            format!(
                "pod {}: guard {} says {frame:?}",
                self.machine.number, self.keeper.peer
            )
        });
        self.write(frame);
    }

    fn write(&self, frame: &FromGuard) {
        // If the keeper does not read it, the next read from the socket shows that.
        if let Some(end) = &self.keeper.end {
            end.send(&frame.encode());
        }
    }
}
