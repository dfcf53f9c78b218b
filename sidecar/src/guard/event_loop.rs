//! The guard's event loop: it waits for events, passes them to the schedule, and carries out its actions.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use lockkeeper_lock::BootInstant;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::keepers::Keepers;
use super::schedule::{self, Action, EXIT_SOFTWARE, Event, Schedule};
use super::signals;
use super::stderr_lines::{Voice, refusal};
use super::target::Target;
use super::timer::Timer;
use super::unconnected::Unconnected;
use crate::link::guard_end::{GuardEnd, Received};
use crate::link::protocol::{FromGuard, ToGuard};
use crate::sys::{self, Caught, Precedence};
use crate::time_namespace;

/// Waits for events, passes them to the schedule, and carries out its actions.
pub(super) struct EventLoop<T> {
    target: T,
    keeper: GuardEnd,
    keepers: Keepers,
    schedule: Schedule,
    /// See [`Hello`](crate::link::protocol::Hello).
    instance: u64,
    /// Our time namespace.
    clock: u32,
    signals: OwnedFd,
    timer: Timer,
    precedence: Precedence,
    /// Set by work that touches far more pages of the binary than the waiting that follows: reading the command line,
    /// starting the application.
    has_touched_much: bool,
    /// The process that was last reported as doubtful.
    told_doubt: Option<u32>,
    unconnected: Unconnected,
    voice: Voice,
    /// Set once the schedule wants to end.
    exit: Option<u8>,
}

impl<T: Target> EventLoop<T> {
    /// `signals` are those that [`sys::take_signals`] has taken.
    pub(super) fn new(
        mut target: T,
        keeper: GuardEnd,
        keepers: Keepers,
        signals: OwnedFd,
        loss_code: u8,
    ) -> io::Result<Self> {
        target.keeper_is(keepers.first());
        let mut schedule = Schedule::new(target.mode(), keeper.reconnects(), BootInstant::now());
        schedule.set_loss_code(loss_code);
        Ok(Self {
            target,
            keeper,
            keepers,
            schedule,
            instance: fastrand::u64(..),
            clock: time_namespace::own(),
            signals,
            timer: Timer::new()?,
            precedence: Precedence::default(),
            has_touched_much: true,
            told_doubt: None,
            unconnected: Unconnected::default(),
            voice: Voice::new(),
            exit: None,
        })
    }

    /// Runs until the schedule wants to end, and returns the exit code.
    pub(super) fn run(mut self) -> u8 {
        let code = self.run_until_the_end().unwrap_or_else(|error| {
            self.voice.say(format_args!("{error}"));
            EXIT_SOFTWARE
        });
        self.say_what_was_kept();
        code
    }

    fn run_until_the_end(&mut self) -> io::Result<u8> {
        if self.keeper.socket().is_some() {
            self.greet();
        }
        loop {
            self.handle(Event::Tick);
            self.connect();
            self.replace_keeper();
            if let Some(code) = self.exit {
                return Ok(code);
            }
            if std::mem::take(&mut self.has_touched_much) {
                sys::unlock_memory();
                sys::forget_touched_code();
                sys::forget_deeper_stack();
                sys::lock_memory();
                self.rehearse();
            }
            self.say_what_was_kept();
            self.precedence.set(self.schedule.is_pressed(BootInstant::now()));
            self.wait()?;
            self.read_keeper();
            self.read_signals();
            self.read_target();
        }
    }

    fn say_what_was_kept(&mut self) {
        if self.schedule.is_idle() {
            self.voice.say_what_was_kept();
        }
    }

    fn connect(&mut self) {
        let now = BootInstant::now();
        let connected = self.keeper.connect(now);
        if let Some(sentence) = self.unconnected.after(now, connected) {
            self.voice.say(format_args!("{sentence}"));
        }
        if connected == Ok(true) {
            self.greet();
        }
    }

    /// Executes the code of a kill without any effect, so that its pages are in memory at a real kill.
    fn rehearse(&mut self) {
        schedule::rehearsal::rehearse(self.target.mode(), self.target.containment());
        self.target.rehearse();
    }

    /// Sleeps until something may have happened.
    fn wait(&self) -> io::Result<()> {
        let next_keeper = self
            .keepers
            .next_at()
            .filter(|_| self.target.keeper().is_none() && self.schedule.has_time_to_fork(BootInstant::now()));
        let times = [self.schedule.wake_at(), self.keeper.retry_at(), next_keeper];
        self.timer.arm(times.into_iter().flatten().min())?;
        let timer = PollFd::new(&self.timer, PollFlags::IN);
        // A place without a descriptor of its own watches the timer once more, which changes nothing.
        let or_timer =
            |fd: Option<_>| PollFd::from_borrowed_fd(fd.unwrap_or(self.timer.as_fd()), PollFlags::IN);
        let [first, second] = self.target.pipes();
        let mut fds = [
            timer,
            PollFd::new(&self.signals, PollFlags::IN),
            or_timer(self.keeper.socket()),
            or_timer(first),
            or_timer(second),
        ];
        // There is no signal for those that ended before.
        let at_once = self.target.has_more_to_reap().then(Timespec::default);
        match rustix::event::poll(&mut fds, at_once.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn greet(&mut self) {
        self.handle(Event::KeeperConnected);
        let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        let hello = self
            .schedule
            .hello(pid, self.instance, self.target.containment(), self.clock);
        self.send(&hello);
        for frame in self.schedule.after_hello() {
            self.send(&frame);
        }
    }

    fn read_keeper(&mut self) {
        loop {
            match self.keeper.receive() {
                Received::Frame(frame) => {
                    self.handle(Event::Frame(frame));
                    if let (ToGuard::Refuse { why }, Some(_)) = (frame, self.exit) {
                        self.voice.say(format_args!("{}", refusal(why)));
                    }
                }
                Received::Nothing => return,
                Received::Lost(error) => {
                    if let Some(error) = error {
                        self.voice
                            .say(format_args!("closed the connection to the keeper: {error}"));
                    }
                    self.lose_keeper();
                    return;
                }
            }
        }
    }

    fn lose_keeper(&mut self) {
        let now = BootInstant::now();
        // One that has sent its last frame is not missed.
        let returns = self.exit.is_none() && self.keepers.lost(now);
        if returns {
            self.voice
                .say(format_args!("the keeper has gone; starting another one"));
        }
        if let (true, Some(keeper)) = (returns, self.target.keeper()) {
            // It has mostly ended already. Two keepers must not have one session.
            let _ = sys::signal_process(keeper, libc::SIGKILL);
        }
        self.keeper.hang_up(now);
        self.handle(Event::KeeperLost { returns });
        if self.exit == Some(EXIT_SOFTWARE) {
            self.voice.say(format_args!(
                "the keeper has gone and nothing is running: nothing to guard"
            ));
        }
    }

    /// Starts another keeper in place of one that has ended, when it is time to.
    fn replace_keeper(&mut self) {
        let now = BootInstant::now();
        let is_due = self.keepers.next_at().is_some_and(|moment| moment <= now);
        let is_free = self.target.keeper().is_none() && self.schedule.has_time_to_fork(now);
        if !is_due || !is_free || self.exit.is_some() {
            return;
        }
        self.has_touched_much = true;
        match self.keepers.next(now) {
            Ok((end, pid)) => {
                self.target.keeper_is(Some(pid));
                self.keeper = end;
                self.greet();
            }
            Err(error) => {
                self.voice
                    .say(format_args!("cannot start another keeper: {error}"));
                if !self.keepers.lost(now) {
                    self.handle(Event::KeeperLost { returns: false });
                }
            }
        }
    }

    fn read_signals(&mut self) {
        let mut child_ended = false;
        for _ in 0..signals::MOST_AT_ONCE {
            let Some(Caught { signo, by_kernel }) = sys::next_signal(&self.signals) else {
                break;
            };
            if i32::from(signo) == libc::SIGCHLD {
                child_ended = true;
            } else if !signals::is_for_nobody(signo) {
                self.handle(Event::Signal {
                    signo,
                    to_group: by_kernel,
                });
            }
        }
        if child_ended || self.target.has_more_to_reap() {
            self.target.reap();
            self.read_target();
            self.handle(Event::ChildEnded);
        }
    }

    fn read_target(&mut self) {
        if let Some(code) = self.target.take_failed_hook() {
            self.voice.say(format_args!(
                "the postStart hook ended with {code}; ending the application"
            ));
        }
        while let Some(event) = self.target.news() {
            self.handle(event);
        }
    }

    /// Passes an event to the schedule and carries out its actions; what these see is an event, too.
    fn handle(&mut self, event: Event) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            if self.exit.is_some() {
                return;
            }
            let actions = self.schedule.handle(event, BootInstant::now());
            for action in actions.iter() {
                match action {
                    Action::Start(token) => {
                        self.has_touched_much = true;
                        if let Err(error) = self.target.start(token) {
                            let errno = error.raw_os_error().unwrap_or_default().unsigned_abs();
                            next = Some(Event::StartFailed { errno });
                        }
                    }
                    Action::RemoveLease => self.target.remove_lease(),
                    Action::Terminate => self.target.signal_main(libc::SIGTERM as u8),
                    Action::Forward(signo) => self.target.signal_main(signo),
                    Action::Sweep(sweep) => next = Some(Event::Saw(self.target.sweep(sweep))),
                    Action::Clear => next = Some(Event::Saw(self.target.clear())),
                    Action::Report(frame) => self.send(&frame),
                    Action::ReportSurvivors(token) => {
                        let (count, pid) = self.target.found();
                        self.tell_doubt();
                        self.send(&FromGuard::Survivors { token, count, pid });
                    }
                    Action::Exit(code) => self.exit = Some(code),
                }
            }
        }
    }

    /// Reports once for each doubtful process why the application does not count as gone while that process lives.
    fn tell_doubt(&mut self) {
        let Some(pid) = self.target.in_doubt() else { return };
        if self.told_doubt.replace(pid) != Some(pid) {
            self.voice.say(format_args!(
                "process {pid} of this pod shows no mount of any container (chroot?), so it may be of the guarded one: \
                 it is killed with that, and the lock is kept until it has ended"
            ));
        }
    }

    fn send(&mut self, frame: &FromGuard) {
        if !self.keeper.send(frame) {
            // The next round reads the end of the stream, and tells the schedule.
            if let Some(socket) = self.keeper.socket() {
                let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
            }
        }
    }
}
