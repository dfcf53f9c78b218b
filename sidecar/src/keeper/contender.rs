//! The place in the queue, and the request to the lock that is under way.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use lockkeeper_daemon::exit::Failure;
use lockkeeper_lock::{
    BootClock, FencingToken, Lock, LockError, LockOptions, LockState, LockStatus, LockView, Ticket,
};
use tokio::sync::watch;

use super::decider::{Ask, LeftLock};
use super::ensemble::{self, Identities};
use super::observer::Observer;
use crate::args::Settings;
use crate::view::Survivors;

/// A request to the lock, under way.
pub(super) type Asking = Pin<Box<dyn Future<Output = Result<(), LockError>>>>;

/// The lock of a keeper. A lock that is abandoned is replaced by a new one.
pub(super) struct Contender {
    source: Source,
    lock: Rc<Lock<BootClock>>,
    view: LockView<BootClock>,
    asking: Option<Asking>,
    /// What sockets and probes look at; it outlives an abandoned lock.
    published: watch::Sender<LockStatus>,
}

/// What it takes to make a lock.
pub(super) struct Source {
    pub(super) settings: Settings,
    pub(super) identities: Option<Identities>,
    /// Whether there is a lock delay, for which a holder has to know how the previous holder ended.
    pub(super) ask_for_predecessor: bool,
    pub(super) observer: Observer,
}

impl Source {
    fn lock(&self, ticket: Option<Ticket>) -> Result<Lock<BootClock>, Failure> {
        let options = LockOptions {
            ticket,
            ..ensemble::lock_options(&self.settings, self.ask_for_predecessor, &self.observer)
        };
        let zookeeper = ensemble::zookeeper(&self.settings, self.identities.as_ref())?;
        Ok(Lock::new(zookeeper, BootClock, options))
    }
}

impl Contender {
    /// Not in the queue yet. Its status goes to `published`.
    pub(super) fn new(source: Source, published: watch::Sender<LockStatus>) -> Result<Self, Failure> {
        let lock = source.lock(None)?;
        Ok(Self {
            source,
            view: lock.view(),
            lock: Rc::new(lock),
            asking: None,
            published,
        })
    }

    pub(super) fn path(&self) -> &str {
        &self.source.settings.lock
    }

    /// What to wait for: a new status, or the answer to [`Contender::ask`].
    pub(super) fn news(&mut self) -> (&mut LockView<BootClock>, &mut Option<Asking>) {
        (&mut self.view, &mut self.asking)
    }

    /// The status that sockets and probes look at, for use after the end of this contender.
    pub(super) fn published(&self) -> watch::Sender<LockStatus> {
        self.published.clone()
    }

    /// Shows a new status to sockets and probes.
    pub(super) fn publish(&self, status: &LockStatus) {
        self.published.send_replace(status.clone());
    }

    /// Shows sockets and probes a lock that was left to us, while it is on its way.
    pub(super) fn publish_left(&self, left: LeftLock) {
        let timing = self.source.settings.timing;
        let shown = LockStatus {
            state: LockState::Suspended,
            token: Some(left.token),
            lease_end: Some(timing.lease_end(left.until)),
            lease_duration: left.lease,
            session_timeout: Some(timing.session_timeout),
            ..LockStatus::new()
        };
        self.published.send_if_modified(|before| {
            let is_new = *before != shown;
            *before = shown;
            is_new
        });
    }

    /// The request was answered; gives the status after it.
    pub(super) fn answered(&mut self) -> LockStatus {
        self.asking = None;
        let status = self.view.status();
        self.publish(&status);
        status
    }

    /// See [`Lock::settle`].
    pub(super) fn settle(&self, token: FencingToken) {
        self.lock.settle(token);
    }

    /// See [`Lock::retain`].
    pub(super) fn retain(&self, is_retained: bool) {
        self.lock.retain(is_retained);
    }

    /// See [`Lock::survived`].
    pub(super) fn survived(&self, survivors: Option<Survivors>) {
        self.lock.survived(survivors.map(Into::into));
    }

    /// The same, for who does not have the contender at hand. While there is one of these, the lock is not abandoned.
    pub(super) fn survivors_teller(&self) -> impl Fn(Survivors) + use<> {
        let lock = Rc::clone(&self.lock);
        move |survivors| lock.survived(Some(survivors.into()))
    }

    /// Asks the lock, in place of what was asked before.
    pub(super) fn ask(&mut self, ask: Ask) {
        let lock = Rc::clone(&self.lock);
        self.asking = Some(match ask {
            Ask::Contend => Box::pin(async move { lock.contend().await }),
            Ask::Release => Box::pin(async move { lock.release().await }),
        });
    }

    /// Lets the contender expire, and makes a new lock.
    pub(super) fn abandon(&mut self) -> Result<(), Failure> {
        self.replace(None)
    }

    /// Goes on with the contender of another keeper, in a new lock.
    pub(super) fn resume(&mut self, ticket: Ticket) -> Result<(), Failure> {
        self.replace(Some(ticket))?;
        self.ask(Ask::Contend);
        Ok(())
    }

    fn replace(&mut self, ticket: Option<Ticket>) -> Result<(), Failure> {
        self.asking = None;
        let lock = self.source.lock(ticket)?;
        self.view = lock.view();
        self.lock = Rc::new(lock);
        self.published.send_replace(self.view.status());
        Ok(())
    }

    /// Cancels the request: nothing waits for the answer any more.
    pub(super) fn stop_asking(&mut self) {
        self.asking = None;
    }

    /// Shows the state of the lock for as long as its task runs.
    pub(super) async fn follow(&mut self) -> std::convert::Infallible {
        while let Ok(status) = self.view.changed().await {
            self.publish(&status);
        }
        std::future::pending().await
    }

    /// Whether it has left the queue, and did not lose the lock.
    pub(super) fn is_out(&self) -> bool {
        self.view.status().state == LockState::Released
    }

    /// Leaves the queue, if it is in there, and ends the session. False when the ensemble has not confirmed that within
    /// `patience`: then the session expires.
    pub(super) async fn close(self, patience: Duration) -> bool {
        let Self { lock, asking, .. } = self;
        drop(asking);
        let Ok(lock) = Rc::try_unwrap(lock) else {
            return false;
        };
        matches!(tokio::time::timeout(patience, lock.close()).await, Ok(Ok(())))
    }
}
