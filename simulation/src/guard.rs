//! One guard process: the real schedule, in the loop of `sidecar/src/guard.rs`, on the simulated
//! kernel and socket.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use lockkeeper_lock::{BootInstant, Clock, FencingToken};
use lockkeeper_sidecar::guard::Containment;
use lockkeeper_sidecar::guard::protocol::{FromGuard, ToGuard};
use lockkeeper_sidecar::simulation::{Action, Event, Mode, Schedule};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::door::Peer;
use crate::guards::Doorway;
use crate::kernel::Kernel;
use crate::pod::Pod;
use crate::socket::{End, Received};

/// As in `sidecar/src/guard/keeper.rs`.
const RETRY_SHORTEST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(1);

/// The file with the token, which lets a kubelet start the application.
pub(crate) type LeaseFile = Cell<Option<FencingToken>>;

/// Signals that wait for a guard.
#[derive(Default)]
pub(crate) struct Inbox {
    signals: RefCell<VecDeque<u8>>,
    news: Notify,
}

impl Inbox {
    pub(crate) fn signal(&self, signo: u8) {
        self.signals.borrow_mut().push_back(signo);
        self.news.notify_one();
    }
}

/// A process that can be stopped (SIGSTOP) for a while.
#[derive(Default)]
pub(crate) struct Stops {
    until: Cell<Option<Instant>>,
}

impl Stops {
    pub(crate) fn stop(&self, length: Duration) {
        self.until.set(Some(Instant::now() + length));
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.until.get().is_some_and(|until| until > Instant::now())
    }

    /// `future`, which is not polled while the process is stopped.
    pub(crate) fn run<F: Future>(self: &Rc<Self>, future: F) -> Stoppable<F> {
        Stoppable {
            stops: Rc::clone(self),
            wake: None,
            future: Box::pin(future),
        }
    }
}

pub(crate) struct Stoppable<F> {
    stops: Rc<Stops>,
    wake: Option<Pin<Box<Sleep>>>,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Stoppable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        while let Some(until) = self.stops.until.get().filter(|until| *until > Instant::now()) {
            let mut wake = Box::pin(sleep_until(until));
            if wake.as_mut().poll(context).is_pending() {
                self.wake = Some(wake);
                return Poll::Pending;
            }
        }
        self.wake = None;
        self.future.as_mut().poll(context)
    }
}

/// The guard's way to its keeper.
pub(crate) struct Connection {
    end: Option<End>,
    /// Where to connect; an inherited socket has no second life.
    door: Option<Rc<Doorway>>,
    peer: Peer,
    retry_at: BootInstant,
    retry_after: Duration,
}

impl Connection {
    pub(crate) fn inherited(peer: Peer, end: End) -> Self {
        Self {
            end: Some(end),
            door: None,
            peer,
            retry_at: BootInstant::from_nanos(0),
            retry_after: RETRY_SHORTEST,
        }
    }

    pub(crate) fn at(peer: Peer, door: &Rc<Doorway>) -> Self {
        Self {
            end: None,
            door: Some(Rc::clone(door)),
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
    }
}

/// A guard, from its start to its end.
pub(crate) struct Guard {
    pod: Rc<Pod>,
    kernel: Rc<Kernel>,
    inbox: Rc<Inbox>,
    keeper: Connection,
    schedule: Schedule,
    exit: Option<u8>,
}

impl Guard {
    pub(crate) fn new(
        pod: &Rc<Pod>,
        mode: Mode,
        kernel: &Rc<Kernel>,
        inbox: &Rc<Inbox>,
        keeper: Connection,
    ) -> Self {
        let reconnects = keeper.door.is_some();
        Self {
            pod: Rc::clone(pod),
            kernel: Rc::clone(kernel),
            inbox: Rc::clone(inbox),
            keeper,
            schedule: Schedule::new(mode, reconnects, pod.clock.now()),
            exit: None,
        }
    }

    fn now(&self) -> BootInstant {
        self.pod.clock.now()
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
        let wake_at = [self.schedule.wake_at(), self.keeper.retry_at()]
            .into_iter()
            .flatten()
            .min();
        let sleep = wake_at.map(|moment| self.pod.clock.sleep(moment - self.now()));
        tokio::select! {
            biased;
            () = maybe(sleep) => {}
            () = maybe(self.keeper.end.as_ref().map(End::readable)) => {}
            () = self.inbox.news.notified() => {}
            () = self.kernel.news.notified() => {}
        }
    }

    fn greet(&mut self) {
        self.handle(Event::KeeperConnected);
        let peer = self.keeper.peer;
        let hello = self.schedule.hello(peer as u32, peer, Containment::Sweep, 0);
        self.send(&hello);
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
                    self.handle(Event::KeeperLost);
                }
            }
        }
    }

    fn read_signals(&mut self) {
        loop {
            let signal = self.inbox.signals.borrow_mut().pop_front();
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

    /// Gives an event to the schedule and does what it says; what that sees is an event, too.
    fn handle(&mut self, event: Event) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            if self.exit.is_some() {
                return;
            }
            let actions = self.schedule.handle(event, self.now());
            for action in actions.iter() {
                // What goes on after a pause does so under a new token, which is told last.
                if let Action::Report(FromGuard::Started { token, .. }) = action {
                    self.kernel.is_under(token);
                }
            }
            for action in actions.iter() {
                match action {
                    // It was started by a kubelet, or will be.
                    Action::Start(_) if self.kernel.is_container => next = Some(Event::Started { pid: 0 }),
                    Action::Start(token) => self.kernel.start(token),
                    Action::Terminate => self.kernel.terminate(),
                    Action::Forward(signo) if signo == SIGTERM => self.kernel.terminate(),
                    Action::Forward(_) => {}
                    Action::RemoveLease => self.pod.lease.set(None),
                    Action::Sweep(sweep) => next = Some(Event::Saw(self.kernel.sweep(sweep))),
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
        self.pod.stage.say(|| {
            format!(
                "pod {}: guard {} says {frame:?}",
                self.pod.number, self.keeper.peer
            )
        });
        // That nobody reads it shows in the next look at the socket.
        if let Some(end) = &self.keeper.end {
            end.send(&frame.encode());
        }
    }
}

/// SIGTERM.
pub(crate) const SIGTERM: u8 = 15;

/// Waits for a future, if there is one.
pub(crate) async fn maybe<T>(future: Option<impl Future<Output = T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
