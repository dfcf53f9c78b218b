//! The two sides that users see: [`LockView`] to look, [`Lock`] to act.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::{BootInstant, Clock};
use crate::ensemble::Ensemble;
use crate::error::LockError;
use crate::options::LockOptions;
use crate::participant::Participant;
use crate::state::{LockState, LockStatus};
use crate::task::{Command, Task};
use crate::token::FencingToken;

/// A look at a lock, cheap to clone.
#[derive(Clone, Debug)]
pub struct LockView<C> {
    clock: C,
    status: watch::Receiver<LockStatus>,
}

impl<C: Clock> LockView<C> {
    /// The lock as its task saw it last.
    pub fn status(&self) -> LockStatus {
        self.status.borrow().clone()
    }

    /// Whether the lock is held now. What is not known is not held: false when the lock's task is
    /// gone, for nobody would tell us about a loss.
    pub fn is_held(&self) -> bool {
        self.status.has_changed().is_ok() && self.status.borrow().is_held(self.clock.now())
    }

    /// Waits for the next change. [`LockError::Abandoned`] when there will be none.
    pub async fn changed(&mut self) -> Result<LockStatus, LockError> {
        self.status.changed().await.map_err(|_| LockError::Abandoned)?;
        Ok(self.status.borrow_and_update().clone())
    }

    /// The channel itself, for those who serve it to others.
    pub fn receiver(&self) -> watch::Receiver<LockStatus> {
        self.status.clone()
    }
}

/// One's own place in the queue of a lock, with a session of its own, served by a task.
///
/// There is no guard value that releases in its `Drop`, on purpose: dropping a `Lock`, also by a
/// panic, *abandons* it. The contender stays until the session expires, so whatever still runs under
/// the lock has until the end of its lease. Release with [`Lock::release`], when that is gone.
#[derive(Debug)]
pub struct Lock<C> {
    commands: mpsc::Sender<Command>,
    is_retained: watch::Sender<bool>,
    settled: watch::Sender<Option<FencingToken>>,
    view: LockView<C>,
}

impl<C: Clock> Lock<C> {
    /// Makes a lock; nothing is asked of the ensemble yet.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new<E: Ensemble>(ensemble: E, clock: C, options: LockOptions) -> Self {
        let (lock, task) = Self::with_task(ensemble, clock, options);
        tokio::spawn(task);
        lock
    }

    /// Makes a lock whose task runs where the caller puts it.
    pub fn with_task<E: Ensemble>(
        ensemble: E,
        clock: C,
        options: LockOptions,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (status_sender, status) = watch::channel(LockStatus::new());
        let (commands, command_receiver) = mpsc::channel(8);
        let (is_retained, retained) = watch::channel(false);
        let (settling, settled) = watch::channel(None);
        let task = Task::new(
            Arc::new(ensemble),
            clock.clone(),
            options,
            status_sender,
            command_receiver,
            retained,
            settled,
        );
        (
            Self {
                commands,
                is_retained,
                settled: settling,
                view: LockView { clock, status },
            },
            task.run(),
        )
    }

    /// A look at this lock.
    pub fn view(&self) -> LockView<C> {
        self.view.clone()
    }

    /// The lock as its task saw it last.
    pub fn status(&self) -> LockStatus {
        self.view.status()
    }

    /// Whether to keep the contender through a loss, until it is released or abandoned: for when work under the lock may
    /// have outlived it. The session is then served and renewed also in state `Lost`, in which nobody holds: neither we
    /// nor those behind us. At first it is not.
    pub fn retain(&self, is_retained: bool) {
        self.is_retained
            .send_if_modified(|before| std::mem::replace(before, is_retained) != is_retained);
    }

    /// Says that, under this token, whoever did not release cleanly before us has been waited for
    /// ([`LockStatus::predecessor_unclean`]). Who releases without having said so leaves the wait to the next holder.
    /// Saying it twice, or of a lock that is lost, does nothing.
    pub fn settle(&self, token: FencingToken) {
        self.settled
            .send_if_modified(|before| before.replace(token) != Some(token));
    }

    /// Stands in the queue, at its end unless already in it.
    ///
    /// # Errors
    /// When the ensemble refuses for good, and in state `Lost`, which wants a release first: that is
    /// where the owner says that nothing runs under the lost token any more.
    pub async fn contend(&self) -> Result<(), LockError> {
        self.command(Command::Contend).await
    }

    /// Stands in the queue and waits, for ever, until the lock is held. Cancelling leaves the
    /// contender in the queue.
    ///
    /// # Errors
    /// As [`Lock::contend`].
    pub async fn acquire(&self) -> Result<FencingToken, LockError> {
        self.contend().await?;
        let mut view = self.view();
        loop {
            let status = view.status();
            match (status.state, status.token, status.loss) {
                (LockState::Held, Some(token), _) => return Ok(token),
                (LockState::Lost, _, Some(reason)) => return Err(LockError::Lost(reason)),
                (LockState::Released, ..) => return Err(status.refusal.unwrap_or(LockError::NotQueued)),
                _ => drop(view.changed().await?),
            }
        }
    }

    /// As [`Lock::acquire`], but leaves the queue and answers `None` after `limit`.
    ///
    /// # Errors
    /// As [`Lock::contend`].
    pub async fn acquire_within(&self, limit: Duration) -> Result<Option<FencingToken>, LockError> {
        let limit = self.view.clock.sleep(limit);
        tokio::select! {
            biased;
            held = self.acquire() => held.map(Some),
            () = limit => {
                self.release().await?;
                Ok(None)
            }
        }
    }

    /// Takes the lock if nobody has it, else leaves the queue again and answers `None`.
    ///
    /// # Errors
    /// As [`Lock::contend`].
    pub async fn try_acquire(&self) -> Result<Option<FencingToken>, LockError> {
        self.contend().await?;
        let mut view = self.view();
        loop {
            let status = view.status();
            match (status.state, status.token, status.loss) {
                (LockState::Held, Some(token), _) => return Ok(Some(token)),
                (LockState::Lost, _, Some(reason)) => return Err(LockError::Lost(reason)),
                (LockState::Waiting, ..) if status.position.is_some_and(|position| position > 0) => {
                    self.release().await?;
                    return Ok(None);
                }
                (LockState::Released, ..) => return Err(status.refusal.unwrap_or(LockError::NotQueued)),
                _ => drop(view.changed().await?),
            }
        }
    }

    /// Leaves the queue: deletes the contender and returns when it is known to be gone. To be called
    /// only when nothing runs under the lock any more. Retries through lost connections; whoever
    /// cannot wait abandons.
    ///
    /// # Errors
    /// When the ensemble refuses for good.
    pub async fn release(&self) -> Result<(), LockError> {
        self.command(|reply| Command::Release {
            queue_again: false,
            reply,
        })
        .await
    }

    /// Releases, and queues again at the end.
    ///
    /// # Errors
    /// As [`Lock::release`].
    pub async fn step_down(&self) -> Result<(), LockError> {
        self.command(|reply| Command::Release {
            queue_again: true,
            reply,
        })
        .await
    }

    /// Who is in the queue, and who holds. Works for onlookers too.
    ///
    /// # Errors
    /// When the ensemble refuses for good.
    pub async fn participants(&self) -> Result<Vec<Participant>, LockError> {
        self.command(Command::Participants).await
    }

    /// Stops renewing and closes the connection, but keeps the contender: it ends with the session,
    /// and nobody holds before. For when it is not certain that the application is gone.
    pub fn abandon(self) {}

    /// Releases and ends the session.
    ///
    /// # Errors
    /// As [`Lock::release`].
    pub async fn close(self) -> Result<(), LockError> {
        self.release().await?;
        let (done, closed) = oneshot::channel();
        self.commands
            .send(Command::Close(done))
            .await
            .map_err(|_| LockError::Abandoned)?;
        closed.await.map_err(|_| LockError::Abandoned)
    }

    async fn command<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, LockError>>) -> Command,
    ) -> Result<T, LockError> {
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(command(reply))
            .await
            .map_err(|_| LockError::Abandoned)?;
        answer.await.map_err(|_| LockError::Abandoned)?
    }

    /// Runs `work` under the lock (the "template" of the lock recipes): acquires, runs, releases.
    /// At the deadline, and at a loss, `work` is cancelled: it is not polled any more and dropped.
    /// It has to come back to an `await` in time; a resource that it writes to should check the
    /// token, for what was sent before the deadline may arrive after it.
    ///
    /// # Errors
    /// [`LockError::Lost`] when `work` was cancelled; the lock is released then too, since nothing
    /// runs under it any more.
    pub async fn guarded<T, W: Future<Output = T>>(
        &self,
        work: impl FnOnce(FencingToken, LockView<C>) -> W,
    ) -> Result<T, LockError> {
        let token = self.acquire().await?;
        let mut work = Box::pin(work(token, self.view()));
        let mut view = self.view();
        let outcome = loop {
            let status = view.status();
            let now = self.view.clock.now();
            if let Some(reason) = lost(&status, token, now) {
                break Err(LockError::Lost(reason));
            }
            let deadline = status.deadline().unwrap_or(now);
            // The timer starts no work and stops none: it does not count the time in which the machine was suspended.
            let in_time = poll_fn(|context| match self.view.clock.now() < deadline {
                true => work.as_mut().poll(context).map(Some),
                false => Poll::Ready(None),
            });
            tokio::select! {
                biased;
                () = self.view.clock.sleep(deadline - now) => {}
                changed = view.changed() => drop(changed?),
                done = in_time => if let Some(done) = done {
                    break Ok(done);
                },
            }
        };
        drop(work);
        self.release().await?;
        outcome
    }
}

fn lost(status: &LockStatus, token: FencingToken, now: BootInstant) -> Option<crate::state::LossReason> {
    let is_past = status.deadline().is_none_or(|deadline| now >= deadline);
    if status.token == Some(token) && status.is_held(now) && !is_past {
        return None;
    }
    Some(status.loss.unwrap_or(crate::state::LossReason::DeadlineReached))
}
