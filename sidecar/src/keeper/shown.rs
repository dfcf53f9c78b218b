//! What probes, sockets and metrics see of the application, and its postStart hook.

use std::future::Future;
use std::pin::Pin;

use tokio::sync::watch;

use super::observer::Observer;
use crate::link::protocol::Containment;
use crate::probes::health::{Health, Running};
use crate::view::{Guarded, Survivors};

/// A postStart hook that is being sent.
pub(super) type Hook = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// What the probes see of the application.
pub(super) struct Probed {
    app: watch::Sender<Option<Running>>,
    health: Health,
    hook: Option<Hook>,
    /// The last start that a hook was sent for.
    last_start: u64,
}

impl Probed {
    /// Nothing runs yet. `health` looks at what is sent to `app`.
    pub(super) fn new(app: watch::Sender<Option<Running>>, health: Health) -> Self {
        Self {
            app,
            health,
            hook: None,
            last_start: 0,
        }
    }

    /// Tells the probes what runs, and sends the hook after a new start.
    pub(super) fn publish(&mut self, running: Option<Running>) {
        self.app
            .send_if_modified(|before| std::mem::replace(before, running) != running);
        match running {
            None => self.hook = None,
            // An application that is continued after a pause was not started anew.
            Some(Running { start, .. }) if start > self.last_start => {
                self.last_start = start;
                self.hook = self
                    .health
                    .post_start()
                    .map(|hook| -> Hook { Box::pin(async move { hook.send().await }) });
            }
            Some(_) => {}
        }
    }

    /// The hook that is being sent, to wait for. [`Probed::hook_sent`] removes it.
    pub(super) fn hook(&mut self) -> &mut Option<Hook> {
        &mut self.hook
    }

    /// The hook has ended. Returns whether the application has to be ended because of it.
    pub(super) fn hook_sent(&mut self, sent: Result<(), String>) -> bool {
        self.hook = None;
        if let Err(problem) = &sent {
            tracing::error!(problem, "The postStart hook has failed; ending the application");
        }
        sent.is_err()
    }
}

/// What sockets and metrics see of the application that is guarded.
pub(super) struct Shown {
    guarded: watch::Sender<Guarded>,
    metrics: Observer,
    /// Whether it was logged that something has outlived its deadline.
    has_told_survivors: bool,
}

impl Shown {
    /// Nothing is known yet.
    pub(super) fn new(guarded: watch::Sender<Guarded>, metrics: Observer) -> Self {
        Self {
            guarded,
            metrics,
            has_told_survivors: false,
        }
    }

    /// The guard says what holds the application together.
    pub(super) fn contained(&self, containment: Containment) {
        let is_news = self
            .guarded
            .send_if_modified(|guarded| guarded.containment.replace(containment) != Some(containment));
        if is_news {
            tracing::info!(by = containment.name(), "The application is held together");
        }
    }

    /// Updates what may have outlived its deadline; `is_seen` is true if that was seen.
    pub(super) fn survivors(&mut self, survivors: Option<Survivors>, is_seen: bool) {
        match survivors {
            Some(some) if is_seen && !self.has_told_survivors => {
                self.metrics.survived();
                tracing::error!(
                    processes = some.processes,
                    pid = some.pid,
                    "Something has outlived its deadline; the lock is kept until it has gone"
                );
            }
            Some(_) if self.guarded.borrow().survivors.is_none() => tracing::info!(
                "The guard does not know yet whether a process of the application is left; the lock is kept until it does"
            ),
            None if self.has_told_survivors => {
                tracing::info!("The processes that had outlived the deadline are gone")
            }
            _ => {}
        }
        self.has_told_survivors = is_seen;
        self.guarded
            .send_if_modified(|guarded| std::mem::replace(&mut guarded.survivors, survivors) != survivors);
    }

    /// Something of a killed guard outlives SIGKILL.
    pub(super) fn outlived(&self, survivors: Survivors) {
        self.guarded.send_if_modified(|guarded| {
            let before = guarded.survivors.replace(survivors);
            if before.is_none() {
                self.metrics.survived();
                tracing::error!(
                    processes = survivors.processes,
                    pid = survivors.pid,
                    "Something has outlived its guard; the lock is kept until it has gone"
                );
            }
            before != Some(survivors)
        });
    }
}
