//! What our owner wants of the lock.

use super::command::{Reply, answer};
use crate::error::LockError;
use crate::loss::LossReason;

/// Whether our owner wants the lock. A lock that was lost can only be given up, so the loss is noted here.
pub(super) struct Wishes {
    aim: Aim,
    /// Who waits for a place in the queue.
    waiting: Vec<Reply<()>>,
}

/// What our owner wants.
enum Aim {
    /// Nothing.
    Out,
    /// The lock.
    In,
    /// That it is kept from others: it was lost, and something may still run under it.
    Lost(LossReason),
    /// That it is given up.
    Release(Release),
}

/// A release under way.
struct Release {
    queue_again: bool,
    /// Whether the deletion of our contender was asked for, over the present connection.
    is_asked: bool,
    /// Whether our contender held, so that the control node has to record its release.
    was_held: bool,
    lost: Option<LossReason>,
    replies: Vec<Reply<()>>,
}

impl Wishes {
    pub(super) fn none() -> Self {
        Self {
            aim: Aim::Out,
            waiting: Vec::new(),
        }
    }

    pub(super) fn is_contending(&self) -> bool {
        matches!(self.aim, Aim::In)
    }

    pub(super) fn is_releasing(&self) -> bool {
        matches!(self.aim, Aim::Release(_))
    }

    /// Why the lock was lost, until it is released.
    pub(super) fn lost(&self) -> Option<LossReason> {
        match &self.aim {
            Aim::Lost(reason) => Some(*reason),
            Aim::Release(release) => release.lost,
            Aim::Out | Aim::In => None,
        }
    }

    /// Whether the lock was lost, or is being released: our contender is not to hold any more.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.aim, Aim::Lost(_) | Aim::Release(_))
    }

    /// Whether a caller waits for an answer that has to come from the ensemble.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_releasing() || !self.waiting.is_empty()
    }

    /// Our owner wants the lock, and waits for a place in the queue. During a release it wants the next place.
    pub(super) fn contend(&mut self, reply: Reply<()>) {
        match &mut self.aim {
            Aim::Release(release) => release.queue_again = true,
            aim => *aim = Aim::In,
        }
        self.waiting.push(reply);
    }

    /// Our contender is in the queue.
    pub(super) fn entered(&mut self) {
        answer(self.waiting.drain(..), &Ok(()));
    }

    /// The lock is given up. A release that is under way goes on, and the last word counts on whether to queue again.
    pub(super) fn release(&mut self, queue_again: bool, was_held: bool, reply: Option<Reply<()>>) {
        let lost = self.lost();
        let is_news = !self.is_releasing();
        match &mut self.aim {
            Aim::Release(release) => {
                release.queue_again = queue_again;
                release.replies.extend(reply);
            }
            aim => {
                *aim = Aim::Release(Release {
                    queue_again,
                    is_asked: false,
                    was_held,
                    lost,
                    replies: reply.into_iter().collect(),
                });
            }
        }
        if is_news || !queue_again {
            answer(self.waiting.drain(..), &Err(LockError::NotQueued));
        }
    }

    /// Whether our contender is to be deleted now, and whether it held; once over each connection.
    pub(super) fn begin_deletion(&mut self) -> Option<bool> {
        let Aim::Release(release) = &mut self.aim else {
            return None;
        };
        let is_asked = std::mem::replace(&mut release.is_asked, true);
        (!is_asked).then_some(release.was_held)
    }

    /// The connection is gone.
    pub(super) fn disconnected(&mut self) {
        if let Aim::Release(release) = &mut self.aim {
            release.is_asked = false;
        }
    }

    /// The contender is known to be gone: whether that ends a release.
    pub(super) fn released(&mut self) -> bool {
        let Aim::Release(release) = &mut self.aim else {
            return false;
        };
        let replies = std::mem::take(&mut release.replies);
        self.aim = if release.queue_again { Aim::In } else { Aim::Out };
        answer(replies, &Ok(()));
        true
    }

    /// The lock is lost.
    pub(super) fn lose(&mut self, reason: LossReason) {
        match &mut self.aim {
            Aim::Release(release) => release.lost = Some(reason),
            aim => *aim = Aim::Lost(reason),
        }
        answer(self.waiting.drain(..), &Err(LockError::Lost(reason)));
    }

    /// The ensemble refuses for good: no wish comes true.
    pub(super) fn refused(&mut self, error: &LockError) {
        let lost = self.lost();
        if let Aim::Release(release) = &mut self.aim {
            self.waiting.append(&mut release.replies);
        }
        self.aim = lost.map_or(Aim::Out, Aim::Lost);
        answer(self.waiting.drain(..), &Err(error.clone()));
    }
}
