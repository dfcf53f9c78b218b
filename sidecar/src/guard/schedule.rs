//! What the guard does and when: a pure state machine, without processes, sockets or clocks.
//!
//! [`Schedule::handle`] takes an [`Event`] and the moment at which it happened, and gives the
//! [`Action`]s to carry out; [`Schedule::wake_at`] says when it wants [`Event::Tick`]. Deadlines are
//! looked at before every event but a grant, or a frame that may lie between two grants, so that a late event cannot undo
//! one. After these the caller gives the next event or [`Event::Tick`]: a guard that stood still finds several grants, and
//! only the newest one counts.

mod actions;
mod container;
mod event;
mod exit;
mod frames;
mod gone;
mod phase;
pub(super) mod rehearsal;
#[cfg(test)]
mod tests;
mod times;
mod watch;

use std::time::Duration;

use lockkeeper_lock::{BootInstant, FencingToken, KILL_ALLOWANCE};

pub use self::actions::{Action, Actions, Sight, Sweep};
pub use self::event::{Event, Mode};
pub use self::exit::EXIT_LOST;
pub(crate) use self::exit::EXIT_SOFTWARE;
use self::phase::{Active, Killing, Outcome, Phase, Suspended};
use self::times::{PAUSED_LOOK, START_LOOK, TIME_TO_FORK, interval};
use self::watch::Watch;
use crate::link::protocol::{Containment, FromGuard, Hello, Kept, ToGuard, Tree};

#[derive(Debug)]
pub struct Schedule {
    mode: Mode,
    /// Whether the keeper is in another container. Then the guard connects to a path; otherwise it has inherited the
    /// socket.
    is_elsewhere: bool,
    /// Whether a lost keeper may come back, or another one in its place.
    returns: bool,
    /// Whether the keeper has said that it never takes this guard.
    is_refused: bool,
    connected: bool,
    /// Whether the keeper is a child of the guard, and not the first one.
    is_successor: bool,
    /// What the next keeper needs to go on.
    kept: Kept,
    /// Generation of the newest grant on this connection.
    newest_grant: Option<u32>,
    phase: Phase,
    /// The signal by which a user wants the guard to end.
    ending: Option<u8>,
    /// The exit code of the last tree, for a guard without a keeper.
    last_code: Option<u8>,
    /// The exit code of the last keeper that could not begin, for a guard without a keeper.
    cannot_begin: Option<u8>,
    /// The exit code after a loss.
    loss_code: u8,
    /// How the last tree has ended, for a keeper that the guard has started since. That keeper decides by this whether
    /// it has anything started again.
    ended: Option<FromGuard>,
    /// When the guard searches the container ([`Mode::Container`]).
    watch: Watch,
    /// Whether nothing is left in the container from before this guard ([`Mode::Container`]).
    has_cleared: bool,
}

impl Schedule {
    /// Returns the schedule of a guard that runs nothing yet. `is_elsewhere` says that its keeper is in another
    /// container, where it may start again.
    pub fn new(mode: Mode, is_elsewhere: bool, now: BootInstant) -> Self {
        Self {
            mode,
            is_elsewhere,
            returns: is_elsewhere,
            is_refused: false,
            connected: false,
            is_successor: false,
            kept: Kept::default(),
            newest_grant: None,
            phase: Phase::Idle,
            ending: None,
            last_code: None,
            cannot_begin: None,
            loss_code: EXIT_LOST,
            ended: None,
            watch: Watch::new(now),
            has_cleared: false,
        }
    }

    pub(crate) fn set_loss_code(&mut self, code: u8) {
        self.loss_code = code;
    }

    /// Returns the frame that opens a connection, for the guard of this process id and instance, whose clock is that of
    /// this [time namespace](crate::time_namespace).
    pub fn hello(&self, pid: u32, instance: u64, containment: Containment, clock: u32) -> FromGuard {
        let (token, is_paused) = match self.phase {
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
            has_ticket: self.kept.halves().is_some(),
            tree: token.map(|token| Tree { token, is_paused }),
            containment,
            clock,
        })
    }

    pub fn after_hello(&self) -> impl Iterator<Item = FromGuard> + use<> {
        let deadline = match self.phase {
            Phase::Active(active) => Some(FromGuard::Deadline {
                token: active.grant.token,
                kill_at: active.grant.kill_at,
            }),
            _ => None,
        };
        let halves = self.kept.halves().into_iter().flatten();
        // The keeper before may not have heard of it.
        let ending = self.ending.map(|signo| FromGuard::EndWanted { signo });
        let ended = self.ended.filter(|_| self.phase == Phase::Idle);
        let first = deadline.into_iter().chain(ended);
        first.chain(halves.map(FromGuard::Kept)).chain(ending)
    }

    /// Whether nothing runs, and nothing of what ran is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Whether nothing has to be stopped so soon that a fork of ours could make it late.
    pub(crate) fn has_time_to_fork(&self, now: BootInstant) -> bool {
        match self.phase {
            Phase::Idle | Phase::Paused { .. } => true,
            Phase::Active(active) => now + TIME_TO_FORK < active.grant.term_at.min(active.grant.kill_at),
            Phase::Pausing { .. } | Phase::Killing(_) => false,
        }
    }

    /// Whether the guard has to go before all other work of the machine, since two holders may run if it is late. It
    /// has to while it waits for a deadline, and then for the fixed part of the margin. A stop that takes longer must
    /// not hold up others, such as the keeper, which keeps the lock until it is done.
    pub(crate) fn is_pressed(&self, now: BootInstant) -> bool {
        let is_recent = |since: BootInstant| now.saturating_since(since) < KILL_ALLOWANCE;
        match self.phase {
            Phase::Idle | Phase::Paused { .. } => false,
            Phase::Active(active) => match active.suspended {
                Some(Suspended::Sweeping { since, .. }) => is_recent(since),
                // A container that is about to start is looked for all the time.
                _ => self.mode != Mode::Container || active.has_begun,
            },
            Phase::Pausing { since, .. } => is_recent(since),
            Phase::Killing(killing) => is_recent(killing.since),
        }
    }

    /// When [`Event::Tick`] is due.
    pub fn wake_at(&self) -> Option<BootInstant> {
        match self.phase {
            Phase::Idle => (self.mode == Mode::Container).then_some(self.watch.at()),
            Phase::Active(active) => {
                let deadline = if active.term_sent || active.grant.pause {
                    active.grant.kill_at
                } else {
                    active.grant.term_at.min(active.grant.kill_at)
                };
                let look_at = (self.mode == Mode::Container).then_some(self.watch.at());
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
        // Only a renewal of the same lease may come between a deadline and its actions, and what may lie before it.
        if !self.may_precede_a_renewal(&event) {
            self.tick(now, &mut out);
        }
        match event {
            Event::Tick => {}
            Event::Frame(frame) => self.frame(frame, now, &mut out),
            Event::KeeperConnected => {
                self.connected = true;
                // The next keeper may be another one, which counts its grants from 1.
                self.newest_grant = None;
            }
            Event::KeeperLost { returns } => {
                self.returns = self.is_elsewhere || returns;
                self.is_successor = !self.is_elsewhere;
                self.keeper_lost(now, &mut out);
            }
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
        out
    }

    /// Whether a renewal, behind which all deadlines are later, may be the next frame or is this one. None of these undoes
    /// a deadline that has passed.
    fn may_precede_a_renewal(&self, event: &Event) -> bool {
        let (Phase::Active(active), Event::Frame(frame)) = (self.phase, event) else {
            return false;
        };
        match frame {
            ToGuard::Grant(grant) => {
                active.grant.token == grant.token && grant.is_newer_than(self.newest_grant)
            }
            ToGuard::Suspect { .. } | ToGuard::Confirm { .. } | ToGuard::Keep(_) | ToGuard::Forget => true,
            _ => false,
        }
    }

    fn tick(&mut self, now: BootInstant, out: &mut Actions) {
        let mode = self.mode;
        match &mut self.phase {
            Phase::Idle => {
                if self.mode == Mode::Container && self.watch.is_due(now) {
                    self.watch.again(now);
                    // A guard before this one may have left something behind.
                    out.push(if self.has_cleared {
                        Action::Clear
                    } else {
                        Action::Sweep(Sweep::Kill)
                    });
                }
            }
            Phase::Active(active) => {
                let Active { grant, pid, .. } = *active;
                if now >= grant.kill_at {
                    // If no keeper can come back, nothing could ever resume a paused tree.
                    let may_resume = (self.connected || self.returns) && !self.is_refused;
                    if grant.pause && !active.is_stopping() && may_resume {
                        mode.remove_lease(out);
                        self.pause(grant.token, pid, now, out);
                    } else {
                        let held_until = active.held_until;
                        self.kill(grant.token, Outcome::Gone(None), now, out).held_until = held_until;
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
                if mode == Mode::Container && self.watch.is_due(now) {
                    self.watch.after(now, START_LOOK);
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

    /// Whether the keeper is in another container, and is no child of the guard.
    fn has_keeper_elsewhere(&self) -> bool {
        self.mode == Mode::Pid1 || self.is_elsewhere
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
        let had_sigterm = matches!(self.phase, Phase::Active(active) if active.told_to_end);
        self.mode.remove_lease(out);
        out.push(Action::Sweep(Sweep::Kill));
        self.phase = Phase::Killing(Killing {
            token,
            since: now,
            sweep_at: now + interval(Duration::ZERO),
            outcome,
            had_sigterm,
            held_until: None,
            tell_at: now,
            next: None,
            finish: None,
        });
        match &mut self.phase {
            Phase::Killing(killing) => killing,
            _ => unreachable!("the phase was set just above"),
        }
    }
}
