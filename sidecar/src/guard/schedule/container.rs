//! A container that a kubelet starts: the lease file lets it start, and looking at its processes tells the rest.

use lockkeeper_lock::{BootInstant, FencingToken};

use super::Schedule;
use super::actions::{Action, Actions, Sight};
use super::event::Mode;
use super::phase::{Active, Outcome, Phase};
use super::times::{END_LOOK, START_LOOK};
use crate::link::protocol::FromGuard;

impl Schedule {
    /// Handles what was seen of the container while it is without the lock, or may run under it.
    pub(super) fn saw_a_container(&mut self, sight: Sight, now: BootInstant, out: &mut Actions) {
        match &mut self.phase {
            Phase::Active(active) => {
                let had_begun = active.has_begun;
                // Doubtful processes neither count as a start, nor hide an end.
                active.has_begun |= sight.is_sure();
                let pause = if active.has_begun { END_LOOK } else { START_LOOK };
                self.watch.after(now, pause);
                if had_begun && !sight.is_sure() {
                    self.container_ended(now, out);
                }
            }
            _ => {
                self.has_cleared |= !sight.alive;
                if sight.is_sure() {
                    self.watch.shortest(now);
                } else {
                    self.watch.longer(now);
                }
            }
        }
    }

    /// Nothing is left of a container that ran. Only the kubelet knows how it ended.
    fn container_ended(&mut self, now: BootInstant, out: &mut Actions) {
        if let Phase::Active(Active { grant, .. }) = self.phase
            && !self.connected
        {
            // Without the keeper nothing releases the lock: the pod has to be gated anew.
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
            out.push(Action::Report(FromGuard::Gone {
                token,
                code: None,
                had_sigterm: false,
            }));
        }
    }
}
