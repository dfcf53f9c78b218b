//! The states of the guarded tree, and what is true of each by itself.

use std::time::Duration;

use lockkeeper_lock::{BootInstant, FencingToken};

use super::actions::{Action, Actions, Sweep};
use super::times::{PATIENCE, PATIENCE_WHILE_HELD, interval};
use crate::link::protocol::Grant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing runs, or nothing that may run.
    Idle,
    Active(Active),
    /// SIGSTOP was sent at the deadline; not yet seen to work.
    Pausing {
        token: FencingToken,
        pid: u32,
        since: BootInstant,
        sweep_at: BootInstant,
        /// When the keeper is told next that the guard is at work.
        tell_at: BootInstant,
    },
    Paused {
        token: FencingToken,
        pid: u32,
        look_at: BootInstant,
    },
    Killing(Killing),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Active {
    pub grant: Grant,
    pub pid: u32,
    /// The keeper was told that it runs.
    pub is_started: bool,
    /// SIGTERM was sent for the deadline that stands now.
    pub term_sent: bool,
    /// The guard sent SIGTERM some time: the end that follows is not "by itself".
    pub told_to_end: bool,
    /// A user's SIGTERM was passed on: the application could take a second one for a request to end at once.
    pub term_forwarded: bool,
    /// `Stop` was received: nothing moves the deadline later any more. This is that of the lease, which may be later.
    pub held_until: Option<BootInstant>,
    pub suspended: Option<Suspended>,
    /// What the keeper said of its connection when a deadline had passed that the next grant may move.
    pub late: Option<Doubt>,
    /// Something of the container was seen ([`Mode::Container`](super::Mode)).
    pub has_begun: bool,
}

/// What the keeper says of its connection to the ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    Suspected,
    Confirmed,
}

/// Stopped on suspicion, within the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspended {
    Sweeping {
        since: BootInstant,
        sweep_at: BootInstant,
    },
    Settled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Killing {
    pub token: FencingToken,
    pub since: BootInstant,
    pub sweep_at: BootInstant,
    pub outcome: Outcome,
    pub had_sigterm: bool,
    /// Before this deadline nobody else can get the lock, if it is known.
    pub held_until: Option<BootInstant>,
    /// When the keeper is told next that something is still there.
    pub tell_at: BootInstant,
    pub next: Option<Grant>,
    pub finish: Option<u8>,
}

/// What the keeper is told once the tree is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Gone(Option<u8>),
    Exited(u8),
    StartFailed(u32),
}

impl Grant {
    /// Whether there is time left to start anything.
    pub(super) fn can_start(&self, now: BootInstant) -> bool {
        now < self.term_at && now < self.kill_at
    }

    /// Whether it is newer than the grant of this generation, by fewer than 2^31 grants.
    pub(super) fn is_newer_than(&self, newest: Option<u32>) -> bool {
        newest.is_none_or(|newest| self.generation.wrapping_sub(newest).cast_signed() > 0)
    }

    /// Takes over a newer grant of the same token. A server may grant less time than the one before, so
    /// that its deadlines are earlier.
    pub(super) fn renew(&mut self, newer: &Grant) {
        *self = Self {
            start: self.start,
            ..*newer
        };
    }
}

impl Active {
    pub(crate) fn new(grant: Grant) -> Self {
        Self {
            grant,
            pid: 0,
            is_started: false,
            term_sent: false,
            told_to_end: false,
            term_forwarded: false,
            held_until: None,
            suspended: None,
            late: None,
            has_begun: false,
        }
    }

    pub(crate) fn renew(&mut self, newer: &Grant, now: BootInstant, out: &mut Actions) {
        if let Some(until) = self.held_until.as_mut() {
            self.grant.kill_at = self.grant.kill_at.min(newer.kill_at);
            *until = (*until).min(newer.kill_at);
            return;
        }
        self.grant.renew(newer);
        // An application that shrugged off SIGTERM gets it again before the new deadline.
        if now < self.grant.term_at {
            self.term_sent = false;
        }
        if let Some(doubt) = self.late.take() {
            self.doubt(doubt, now, out);
        }
    }

    /// Whether a deadline has passed that was not acted upon.
    fn is_overdue(&self, now: BootInstant) -> bool {
        let is_to_be_told = !self.grant.pause && !self.term_sent && now >= self.grant.term_at;
        is_to_be_told || now >= self.grant.kill_at
    }

    /// SIGSTOP while the keeper's connection is in doubt, SIGCONT when the same session is confirmed. After a deadline
    /// nothing is resumed; a guard that stood still may find a grant next that moves the deadline.
    pub(crate) fn doubt(&mut self, doubt: Doubt, now: BootInstant, out: &mut Actions) {
        if self.is_overdue(now) {
            self.late = Some(doubt);
            return;
        }
        match doubt {
            Doubt::Suspected if self.suspended.is_some() || self.ends() => {}
            Doubt::Suspected => {
                let sweep_at = now + interval(Duration::ZERO);
                self.suspended = Some(Suspended::Sweeping { since: now, sweep_at });
                out.push(Action::Sweep(Sweep::Stop));
            }
            Doubt::Confirmed => self.resume(out),
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.held_until.is_some()
    }

    /// Whether it has been asked to end, so that pausing it would only take its time away.
    pub(crate) fn ends(&self) -> bool {
        self.is_stopping() || self.term_sent || self.term_forwarded
    }

    /// SIGTERM, once, and SIGCONT so that it can act on it.
    pub(crate) fn terminate(&mut self, out: &mut Actions) {
        if !self.term_sent {
            self.term_sent = true;
            self.told_to_end = true;
            if !self.term_forwarded {
                out.push(Action::Terminate);
            }
        }
        self.resume(out);
    }

    pub(crate) fn resume(&mut self, out: &mut Actions) {
        if self.suspended.take().is_some() {
            out.push(Action::Sweep(Sweep::Continue));
        }
    }
}

impl Killing {
    /// When the harsher measure is taken.
    pub(crate) fn last_resort_at(&self) -> BootInstant {
        let soonest = self.since + PATIENCE;
        self.held_until.map_or(soonest, |until| {
            soonest.max(until.min(self.since + PATIENCE_WHILE_HELD))
        })
    }

    pub(crate) fn interval(&self, now: BootInstant) -> Duration {
        interval(now - self.since)
    }
}
