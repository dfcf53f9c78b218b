//! A container that somebody else starts: the lease file lets it, and what is seen in it says the rest.

use std::time::Duration;

use lockkeeper_lock::{BootInstant, FencingToken};

use super::{Action, Actions, Active, Mode, Outcome, Phase, Schedule, Sight};
use crate::guard::protocol::FromGuard;

/// Limits of the interval at which a container without the lock is searched: short after something
/// was found in it, since a kubelet may be restarting it, and longer while it stays empty.
pub(super) const WATCH_SHORTEST: Duration = Duration::from_millis(20);
const WATCH_LONGEST: Duration = Duration::from_millis(200);

/// How often a container that may run is looked at until something is seen in it. What lives shorter, from the
/// making of a container's first process on, may go unseen: then nobody hears of its end...
pub(super) const START_LOOK: Duration = Duration::from_millis(50);
/// ...and from then on, beside the moments at which a process of it ends.
const END_LOOK: Duration = Duration::from_secs(1);

impl Mode {
    /// Nobody else is to start what is stopped now. The keeper does the same, if it can.
    pub(super) fn remove_lease(self, out: &mut Actions) {
        if self == Self::Container {
            out.push(Action::RemoveLease);
        }
    }
}

impl Schedule {
    /// What was seen while it is without the lock, or may run under it.
    pub(super) fn saw_a_container(&mut self, sight: Sight, now: BootInstant, out: &mut Actions) {
        match &mut self.phase {
            Phase::Active(active) => {
                let had_begun = active.has_begun;
                // What nobody can tell apart is no start and hides no end.
                active.has_begun |= sight.is_sure();
                self.watch_at = now + if active.has_begun { END_LOOK } else { START_LOOK };
                if had_begun && !sight.is_sure() {
                    self.container_ended(now, out);
                }
            }
            _ => {
                self.watch_every = if sight.is_sure() {
                    WATCH_SHORTEST
                } else {
                    (self.watch_every * 2).min(WATCH_LONGEST)
                };
                self.watch_at = now + self.watch_every;
            }
        }
    }

    /// Nothing is left of a container that ran. How it ended the kubelet knows, but not we.
    fn container_ended(&mut self, now: BootInstant, out: &mut Actions) {
        if let Phase::Active(Active { grant, .. }) = self.phase
            && !self.connected
        {
            // Without the keeper there is nobody to release the lock: the pod has to be gated anew.
            self.kill(grant.token, Outcome::Gone(None), now, out);
        } else {
            self.main_exited(0, now, out);
        }
    }

    /// Nothing runs under this token, and nothing will.
    pub(super) fn never_began(&mut self, token: FencingToken, now: BootInstant, out: &mut Actions) {
        if self.mode == Mode::Container && self.phase == Phase::Idle {
            // The lease file was there: the kubelet may have been faster.
            self.kill(token, Outcome::Gone(None), now, out);
        } else {
            out.push(Action::Report(FromGuard::Gone { token, code: None }));
        }
    }
}
