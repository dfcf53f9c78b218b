//! The two types for users of a lock: [`LockView`] to observe it, [`Lock`] to act.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::Clock;
use crate::ensemble::Ensemble;
use crate::error::LockError;
use crate::loss::LossReason;
use crate::options::LockOptions;
use crate::participant::Participant;
use crate::record::Survivors;
use crate::state::{LockState, LockStatus};
use crate::task::{Command, Task, Word};
use crate::token::FencingToken;

/// A read-only view of a lock, cheap to clone.
#[derive(Clone, Debug)]
pub struct LockView<C> {
    clock: C,
    status: watch::Receiver<LockStatus>,
}

impl<C: Clock> LockView<C> {
    /// The lock as its task last saw it.
    pub fn status(&self) -> LockStatus {
        self.status.borrow().clone()
    }

    /// Whether the lock is held now: until [`LockStatus::deadline`]. False if the lock's task is gone, because then no
    /// task would report a loss.
    pub fn is_held(&self) -> bool {
        self.status.has_changed().is_ok() && self.status.borrow().is_held(self.clock.now())
    }

    /// Waits for the next change. [`LockError::Abandoned`] if there will be none.
    pub async fn changed(&mut self) -> Result<LockStatus, LockError> {
        self.status.changed().await.map_err(|_| LockError::Abandoned)?;
        Ok(self.status.borrow_and_update().clone())
    }

    /// How an attempt to acquire the lock has ended; `None` while it goes on.
    fn outcome(&self) -> Option<Result<FencingToken, LockError>> {
        let status = self.status();
        match (status.state, status.token, status.loss) {
            // A status from before the deadline counts only before it.
            (LockState::Held, Some(token), _) if status.is_held(self.clock.now()) => Some(Ok(token)),
            (LockState::Lost, _, Some(reason)) => Some(Err(LockError::Lost(reason))),
            (LockState::Released, ..) => Some(Err(status.refusal.unwrap_or(LockError::NotQueued))),
            _ => None,
        }
    }

    /// The channel itself, for servers that pass it on.
    pub fn receiver(&self) -> watch::Receiver<LockStatus> {
        self.status.clone()
    }
}

/// Our place in the queue of a lock, with a session of its own, served by a task.
///
/// On purpose there is no guard value that releases in its `Drop`: dropping a `Lock`, even by a panic, *abandons* it.
/// The contender stays until the session expires, so everything that still runs under the lock has until the end of its
/// lease. When all of that has ended, release with [`Lock::release`].
#[derive(Debug)]
pub struct Lock<C> {
    commands: mpsc::Sender<Command>,
    word: watch::Sender<Word>,
    view: LockView<C>,
}

impl<C: Clock> Lock<C> {
    /// Makes a lock, without a request to the ensemble yet.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new<E: Ensemble>(ensemble: E, clock: C, options: LockOptions) -> Self {
        let (lock, task) = Self::with_task(ensemble, clock, options);
        tokio::spawn(task);
        lock
    }

    /// Makes a lock, and returns the task that serves it for the caller to run.
    pub fn with_task<E: Ensemble>(
        ensemble: E,
        clock: C,
        options: LockOptions,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (status_sender, status) = watch::channel(LockStatus::new());
        let (commands, command_receiver) = mpsc::channel(8);
        let (word, heard) = watch::channel(Word::default());
        let task = Task::new(
            Arc::new(ensemble),
            clock.clone(),
            options,
            status_sender,
            command_receiver,
            heard,
        );
        (
            Self {
                commands,
                word,
                view: LockView { clock, status },
            },
            task.run(),
        )
    }

    /// A view of this lock, for code that only watches it.
    pub fn view(&self) -> LockView<C> {
        self.view.clone()
    }

    /// The lock as its task last saw it.
    pub fn status(&self) -> LockStatus {
        self.view.status()
    }

    /// Whether to keep the contender through a loss, until it is released or abandoned. This is for work that may still
    /// run after the loss. The task then renews in state `Lost` too: no contender holds the lock in that
    /// time, neither we nor those behind us, as long as the task reaches the ensemble. Off at first.
    pub fn retain(&self, is_retained: bool) {
        self.tell(|word| word.is_retained = is_retained);
    }

    /// Reports that, under this token, we have waited for the holders before us that did not release cleanly
    /// ([`LockStatus::predecessor_unclean`]). A holder that releases without this call leaves the wait to the next one.
    /// Idempotent, and a no-op for a lock that is lost.
    pub fn settle(&self, token: FencingToken) {
        self.tell(|word| word.settled = Some(token));
    }

    /// Reports what outlives SIGKILL under the lock, or that it has gone (`None`). While the lock is held, or kept through
    /// a loss ([`Lock::retain`]), its contender's data state that, so that others see why nobody gets the lock.
    pub fn survived(&self, survivors: Option<Survivors>) {
        self.tell(|word| word.survivors = survivors);
    }

    fn tell(&self, change: impl FnOnce(&mut Word)) {
        self.word.send_if_modified(|word| {
            let before = *word;
            change(word);
            *word != before
        });
    }

    /// Enters the queue at its end, unless already in it.
    ///
    /// # Errors
    /// When the ensemble refuses for good, and in state `Lost`. There a release has to come first: by releasing, the
    /// owner states that everything under the lost token has ended.
    pub async fn contend(&self) -> Result<(), LockError> {
        self.command(Command::Contend).await
    }

    /// Enters the queue and waits, without a limit, until the lock is held. A cancelled call leaves the contender in
    /// the queue.
    ///
    /// # Errors
    /// As [`Lock::contend`].
    pub async fn acquire(&self) -> Result<FencingToken, LockError> {
        self.contend().await?;
        let mut view = self.view();
        loop {
            match view.outcome() {
                Some(outcome) => return outcome,
                None => drop(view.changed().await?),
            }
        }
    }

    /// As [`Lock::acquire`], but leaves the queue and returns `None` after `limit`.
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

    /// Takes the lock if it is free; otherwise leaves the queue again and returns `None`.
    ///
    /// # Errors
    /// As [`Lock::contend`].
    pub async fn try_acquire(&self) -> Result<Option<FencingToken>, LockError> {
        self.contend().await?;
        let mut view = self.view();
        loop {
            let status = view.status();
            if status.state == LockState::Waiting && status.position.is_some_and(|position| position > 0) {
                self.release().await?;
                return Ok(None);
            }
            match view.outcome() {
                Some(outcome) => return outcome.map(Some),
                None => drop(view.changed().await?),
            }
        }
    }

    /// Leaves the queue: deletes the contender and returns when it is known to be gone. Call it only when everything
    /// under the lock has ended. It retries through lost connections; a caller that cannot wait abandons.
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

    /// The contenders in the queue, and which of them hold. Works outside the queue too.
    ///
    /// # Errors
    /// When the ensemble refuses for good.
    pub async fn participants(&self) -> Result<Vec<Participant>, LockError> {
        self.command(Command::Participants).await
    }

    /// Stops renewing and closes the connection, but keeps the contender: it ends with the session, and until then no
    /// other contender holds; or with its lease duration, if it states one ([`crate::Timing::lease`]). For an application
    /// that may still run.
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

    /// Runs `work` under the lock (the "template" of the lock recipes): acquires, runs, releases. At the deadline, and
    /// at a loss, `work` is cancelled: it is not polled any more, and it is dropped. It has to reach an `await` in
    /// time. A resource that it writes to should check the token, because data sent before the deadline may arrive
    /// after it.
    ///
    /// # Errors
    /// [`LockError::Lost`] when `work` was cancelled; the lock is released then too, since everything under it has
    /// ended.
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
            let deadline = match status.deadline() {
                Some(deadline) if status.token == Some(token) && status.is_held(now) => deadline,
                _ => {
                    break Err(LockError::Lost(
                        status.loss.unwrap_or(LossReason::DeadlineReached),
                    ));
                }
            };
            // The timer neither starts nor stops work: it does not count the time during which the machine was
            // suspended.
            let in_time = poll_fn(|context| match status.is_held(self.view.clock.now()) {
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
