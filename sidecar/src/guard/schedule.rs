//! What the guard does and when: a pure state machine, without processes, sockets or clocks.
//!
//! [`Schedule::handle`] takes an [`Event`] and the moment at which it happened, and gives the
//! [`Action`]s to carry out; [`Schedule::wake_at`] says when it wants [`Event::Tick`]. Deadlines are
//! looked at before every event but a grant, so that nothing that comes late undoes one.

mod actions;
mod container;
mod frames;
mod phase;
mod rehearsal;
#[cfg(test)]
mod tests;

use std::time::Duration;

use lockkeeper_lock::{BootInstant, FencingToken};

pub use self::actions::{Action, Actions, Sight, Sweep};
use self::container::{START_LOOK, WATCH_SHORTEST};
pub use self::phase::exit_code_of_errno;
use self::phase::{Active, Killing, Outcome, Phase, Suspended, interval};
pub(super) use self::rehearsal::rehearse;
use super::containment::Containment;
use super::protocol::{FromGuard, Hello, ToGuard};

/// Exit code when the lock was lost and the application was stopped (`EX_TEMPFAIL`).
pub const EXIT_LOST: u8 = 75;

/// Exit code when the guard cannot go on and nothing was running (`EX_SOFTWARE`).
pub const EXIT_SOFTWARE: u8 = 70;

/// Exit code when the keeper does not take this guard (`EX_NOPERM`).
pub const EXIT_REFUSED: u8 = 77;

/// How long SIGKILL or SIGSTOP may take to be seen to work, before the guard takes the next
/// harsher measure. Half of the fixed part of the margin between deadline and end of the lease
/// (`lockkeeper_lock::KILL_ALLOWANCE`), so that the harsher measure still has the other half.
const PATIENCE: Duration = Duration::from_millis(100);

/// How often a keeper that is our child is told that we are at work: it takes a guard for stopped that says nothing
/// for [`PATIENCE`].
const AT_WORK_EVERY: Duration = Duration::from_millis(20);

/// How often it is told that something outlives SIGKILL.
const SURVIVORS_EVERY: Duration = Duration::from_secs(5);

/// How often a paused tree is looked at: somebody else may have sent it SIGCONT.
const PAUSED_LOOK: Duration = Duration::from_millis(50);

/// What kind of guard this is, as far as its decisions depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// PID 1 of the application's container: its own exit ends everything.
    Pid1,
    /// Parent of an anchor, which is the parent of the application.
    Subreaper,
    /// Beside a container that it does not start.
    Container,
}

/// What happens to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// The keeper says.
    Frame(ToGuard),
    /// The connection to the keeper is up.
    KeeperConnected,
    /// The connection to the keeper is down.
    KeeperLost,
    /// `exec` of the application succeeded.
    Started {
        /// Its number; 0 for a container.
        pid: u32,
    },
    /// `exec` of the application failed.
    StartFailed {
        /// Why, as of `errno(3)`.
        errno: u32,
    },
    /// The main process of the application has ended.
    MainExited {
        /// As a shell counts.
        code: u8,
    },
    /// Some child has ended: a good moment to look again.
    ChildEnded,
    /// What a sweep saw.
    Saw(Sight),
    /// A signal came in; `to_group` when a terminal sent it to the application as well.
    Signal {
        /// Its number.
        signo: u8,
        /// The application got it as well.
        to_group: bool,
    },
}

/// The state machine.
#[derive(Debug)]
pub struct Schedule {
    mode: Mode,
    /// A lost keeper may come back: the guard connects to a path, it did not inherit the socket.
    reconnects: bool,
    connected: bool,
    /// Generation of the newest grant on this connection.
    newest_grant: Option<u32>,
    phase: Phase,
    /// A user wants the guard to end, and this is the signal.
    ending: Option<u8>,
    /// The exit code that the last tree left to a guard without a keeper.
    last_code: Option<u8>,
    /// Container: when it is searched next, and the interval after that while it is without the lock.
    watch_at: BootInstant,
    watch_every: Duration,
}

impl Schedule {
    /// A guard that runs nothing yet. `reconnects`: a lost keeper may come back.
    pub fn new(mode: Mode, reconnects: bool, now: BootInstant) -> Self {
        Self {
            mode,
            reconnects,
            connected: false,
            newest_grant: None,
            phase: Phase::Idle,
            ending: None,
            last_code: None,
            watch_at: now,
            watch_every: WATCH_SHORTEST,
        }
    }

    /// The frame that opens a connection, for the guard of this process id and instance, whose clock is that of this
    /// [time namespace](crate::time_namespace).
    pub fn hello(&self, pid: u32, instance: u64, containment: Containment, clock: u32) -> FromGuard {
        let (token, paused) = match self.phase {
            Phase::Idle => (None, false),
            // Stopped on suspicion or not: it still has its deadlines, and gets SIGTERM for them.
            Phase::Active(active) => (Some(active.grant.token), false),
            Phase::Pausing { token, .. } => (Some(token), false),
            Phase::Paused { token, .. } => (Some(token), true),
            Phase::Killing(killing) => (Some(killing.token), false),
        };
        FromGuard::Hello(Hello {
            pid,
            instance,
            is_first: self.mode == Mode::Pid1,
            token,
            paused,
            containment: Some(containment),
            clock,
        })
    }

    /// When [`Event::Tick`] is due.
    pub fn wake_at(&self) -> Option<BootInstant> {
        match self.phase {
            Phase::Idle => (self.mode == Mode::Container).then_some(self.watch_at),
            Phase::Active(active) => {
                let deadline = if active.term_sent || active.grant.pause {
                    active.grant.kill_at
                } else {
                    active.grant.term_at.min(active.grant.kill_at)
                };
                let look_at = (self.mode == Mode::Container).then_some(self.watch_at);
                let sweep_at = match active.suspended {
                    Some(Suspended::Sweeping { sweep_at, .. }) => Some(sweep_at),
                    _ => None,
                };
                [look_at, sweep_at].into_iter().flatten().chain([deadline]).min()
            }
            Phase::Pausing { sweep_at, .. } => Some(sweep_at),
            Phase::Paused { look_at, .. } => Some(look_at),
            Phase::Killing(killing) => Some(killing.sweep_at),
        }
    }

    /// Takes `event`, which happened at `now`, and says what to do.
    pub fn handle(&mut self, event: Event, now: BootInstant) -> Actions {
        let mut out = Actions::default();
        // Only news of the same lease may come between a deadline and what it demands.
        let renewal = self.is_renewal(&event);
        if !renewal {
            self.tick(now, &mut out);
        }
        match event {
            Event::Tick => {}
            Event::Frame(frame) => self.frame(frame, now, &mut out),
            Event::KeeperConnected => {
                self.connected = true;
                // It may be another keeper, which counts from 1.
                self.newest_grant = None;
            }
            Event::KeeperLost => self.keeper_lost(now, &mut out),
            Event::Started { pid } => self.started(pid, &mut out),
            Event::StartFailed { errno } => {
                if let Phase::Active(active) = self.phase {
                    self.kill(active.grant.token, Outcome::StartFailed(errno), now, &mut out);
                }
            }
            Event::MainExited { code } => self.main_exited(code, now, &mut out),
            Event::ChildEnded => match &mut self.phase {
                Phase::Killing(killing) => {
                    killing.sweep_at = now + killing.interval(now);
                    out.push(Action::Sweep(Sweep::Kill));
                }
                Phase::Active(_) if self.mode == Mode::Container => out.push(Action::Sweep(Sweep::Look)),
                _ => {}
            },
            Event::Saw(sight) => self.saw(sight, now, &mut out),
            Event::Signal { signo, to_group } => self.signal(signo, to_group, now, &mut out),
        }
        if renewal {
            self.tick(now, &mut out);
        }
        out
    }

    fn is_renewal(&self, event: &Event) -> bool {
        match (self.phase, event) {
            (Phase::Active(active), Event::Frame(ToGuard::Grant(grant))) => {
                active.grant.token == grant.token && grant.is_newer_than(self.newest_grant)
            }
            _ => false,
        }
    }

    /// Does what is due.
    fn tick(&mut self, now: BootInstant, out: &mut Actions) {
        let mode = self.mode;
        match &mut self.phase {
            Phase::Idle => {
                if self.mode == Mode::Container && now >= self.watch_at {
                    self.watch_at = now + self.watch_every;
                    out.push(Action::Sweep(Sweep::Kill));
                }
            }
            Phase::Active(active) => {
                let Active { grant, pid, .. } = *active;
                if now >= grant.kill_at {
                    // Without a keeper to come back nobody could ever resume a paused tree.
                    if grant.pause && !active.stopping && (self.connected || self.reconnects) {
                        mode.remove_lease(out);
                        self.pause(grant.token, pid, now, out);
                    } else {
                        self.kill(grant.token, Outcome::Gone(None), now, out);
                    }
                    return;
                }
                if now >= grant.term_at && !grant.pause && !active.term_sent {
                    mode.remove_lease(out);
                    active.terminate(out);
                }
                if let Some(Suspended::Sweeping { since, sweep_at }) = &mut active.suspended
                    && now >= *sweep_at
                {
                    *sweep_at = now + interval(now - *since);
                    out.push(Action::Sweep(Sweep::Stop));
                }
                if mode == Mode::Container && now >= self.watch_at {
                    self.watch_at = now + START_LOOK;
                    out.push(Action::Sweep(Sweep::Look));
                }
            }
            Phase::Pausing { since, sweep_at, .. } => {
                if now >= *sweep_at {
                    *sweep_at = now + interval(now - *since);
                    out.push(Action::Sweep(Sweep::Stop));
                }
            }
            Phase::Paused { look_at, .. } => {
                if now >= *look_at {
                    *look_at = now + PAUSED_LOOK;
                    out.push(Action::Sweep(Sweep::Look));
                }
            }
            Phase::Killing(killing) => {
                if now >= killing.sweep_at {
                    killing.sweep_at = now + killing.interval(now);
                    out.push(Action::Sweep(Sweep::Kill));
                }
            }
        }
    }

    /// Whether the keeper is in another container, and not our child: PID 1 of one, and who connects to a path.
    fn has_keeper_elsewhere(&self) -> bool {
        self.mode == Mode::Pid1 || self.reconnects
    }

    /// Stops everything from now on until it is seen to be stopped.
    fn pause(&mut self, token: FencingToken, pid: u32, now: BootInstant, out: &mut Actions) {
        self.phase = Phase::Pausing {
            token,
            pid,
            since: now,
            sweep_at: now + interval(Duration::ZERO),
            tell_at: now,
        };
        out.push(Action::Sweep(Sweep::Stop));
    }

    /// Kills everything from now on until it is seen to be gone.
    fn kill(
        &mut self,
        token: FencingToken,
        outcome: Outcome,
        now: BootInstant,
        out: &mut Actions,
    ) -> &mut Killing {
        self.mode.remove_lease(out);
        out.push(Action::Sweep(Sweep::Kill));
        self.phase = Phase::Killing(Killing {
            token,
            since: now,
            sweep_at: now + interval(Duration::ZERO),
            outcome,
            tell_at: now,
            next: None,
            finish: None,
        });
        match &mut self.phase {
            Phase::Killing(killing) => killing,
            _ => unreachable!("the phase was set just above"),
        }
    }

    fn started(&mut self, pid: u32, out: &mut Actions) {
        if let Phase::Active(active) = &mut self.phase {
            active.pid = pid;
            out.push(Action::Report(FromGuard::Started {
                token: active.grant.token,
                pid,
            }));
        }
    }

    fn main_exited(&mut self, code: u8, now: BootInstant, out: &mut Actions) {
        match &mut self.phase {
            Phase::Active(active) => {
                let by_itself = !active.told_to_end;
                let outcome = if by_itself {
                    Outcome::Exited(code)
                } else {
                    Outcome::Gone(Some(code))
                };
                let token = active.grant.token;
                self.kill(token, outcome, now, out);
            }
            // Somebody else's SIGKILL: the rest must not stay behind.
            Phase::Pausing { token, .. } | Phase::Paused { token, .. } => {
                let token = *token;
                self.kill(token, Outcome::Exited(code), now, out);
            }
            Phase::Idle | Phase::Killing(_) => {}
        }
    }

    fn saw(&mut self, sight: Sight, now: BootInstant, out: &mut Actions) {
        match &mut self.phase {
            Phase::Idle => {
                if self.mode == Mode::Container {
                    self.saw_a_container(sight, now, out);
                }
            }
            Phase::Active(active) => {
                if let Some(Suspended::Sweeping { since, .. }) = active.suspended {
                    // Nothing is lost yet: the deadline will deal with what goes on.
                    if !sight.unstopped || now - since >= PATIENCE {
                        active.suspended = Some(Suspended::Settled);
                    }
                }
                if self.mode == Mode::Container {
                    self.saw_a_container(sight, now, out);
                }
            }
            Phase::Pausing {
                token,
                pid,
                since,
                tell_at,
                ..
            } => {
                let (token, pid, since) = (*token, *pid, *since);
                if !sight.unstopped && sight.alive {
                    self.phase = Phase::Paused {
                        token,
                        pid,
                        look_at: now + PAUSED_LOOK,
                    };
                    out.push(Action::Report(FromGuard::Paused { token }));
                } else if !sight.alive || now - since >= PATIENCE {
                    self.kill(token, Outcome::Gone(None), now, out);
                } else if self.mode != Mode::Pid1 && now >= *tell_at {
                    *tell_at = now + AT_WORK_EVERY;
                    out.push(Action::Report(FromGuard::AtWork { token }));
                }
            }
            Phase::Paused { token, pid, .. } => {
                let (token, pid) = (*token, *pid);
                if sight.has_woken() || !sight.alive {
                    self.kill(token, Outcome::Gone(None), now, out);
                } else if sight.unstopped {
                    // A probe that is a command, or what a user executes there: it is stopped like the rest.
                    self.pause(token, pid, now, out);
                }
            }
            Phase::Killing(killing) => {
                if !sight.alive {
                    let killing = *killing;
                    self.gone(killing, now, out);
                } else if now - killing.since >= PATIENCE {
                    if now >= killing.tell_at {
                        killing.tell_at = now + SURVIVORS_EVERY;
                        out.push(Action::ReportSurvivors(killing.token));
                    }
                    if self.mode == Mode::Pid1 {
                        // The kernel then kills all that is left in the PID namespace, whoever it
                        // belongs to. Nothing else is as sure.
                        out.push(Action::Exit(killing.finish.unwrap_or(EXIT_LOST)));
                    }
                } else if self.mode != Mode::Pid1 && now >= killing.tell_at {
                    killing.tell_at = (now + AT_WORK_EVERY).min(killing.since + PATIENCE);
                    out.push(Action::Report(FromGuard::AtWork { token: killing.token }));
                }
            }
        }
    }

    /// The tree is gone: report it, and go on or end.
    fn gone(&mut self, killing: Killing, now: BootInstant, out: &mut Actions) {
        let token = killing.token;
        self.phase = Phase::Idle;
        self.watch_every = WATCH_SHORTEST;
        self.watch_at = now + WATCH_SHORTEST;
        let (report, own_code, code) = match killing.outcome {
            Outcome::Gone(code) => {
                let ended = self.ending.map(|signo| code.unwrap_or(128 + signo));
                (FromGuard::Gone { token, code }, None, ended.unwrap_or(EXIT_LOST))
            }
            Outcome::Exited(code) => (FromGuard::Exited { token, code }, Some(code), code),
            Outcome::StartFailed(errno) => {
                let code = exit_code_of_errno(errno);
                (FromGuard::StartFailed { token, errno }, Some(code), code)
            }
        };
        out.push(Action::Report(report));
        self.last_code = Some(code);

        // Whose keeper lives in another container ends by itself: that one
        // does not wait for this exit code. In `run` it still has a lock to give back.
        let ends_on_signal = self.ending.is_some() && (self.has_keeper_elsewhere() || !self.connected);
        let nobody_to_ask = !self.connected && (own_code.is_some() || !self.reconnects);
        if let Some(code) = killing.finish {
            out.push(Action::Exit(code));
        } else if ends_on_signal || (nobody_to_ask && killing.next.is_none()) {
            out.push(Action::Exit(code));
        } else if let Some(next) = killing.next {
            self.begin(next, now, out);
        }
    }
}
