//! Leader election: the replica that holds the operator's own lock writes.

use std::time::Duration;

use lockkeeper_lock::{BootClock, FencingToken, Lock, LockView};
use tokio::sync::watch;

/// Pause after the ensemble refused, so that a lasting refusal fills no log.
const PAUSE: Duration = Duration::from_secs(5);

/// Whether this replica leads. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Leadership {
    view: LockView<BootClock>,
}

/// A time for which this replica leads without a break. Only [`Leadership::term`] begins one, while the lease is valid.
/// It may be over a moment later: the writer asks [`Term::check`] before each write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term<'a> {
    of: &'a Leadership,
    token: FencingToken,
}

/// This replica does not lead, or not for long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this replica does not lead")]
pub(crate) struct NotLeading;

// === impl Leadership ===

impl Leadership {
    /// By the lock that the replicas share.
    pub(crate) fn of(lock: &Lock<BootClock>) -> Self {
        Self { view: lock.view() }
    }

    /// Whether this replica leads at this moment.
    pub(crate) fn is_leading(&self) -> bool {
        self.view.is_held()
    }

    /// The term that this replica is in at this moment.
    ///
    /// # Errors
    /// When this replica does not lead.
    pub(crate) fn term(&self) -> Result<Term<'_>, NotLeading> {
        // The token is read last: if another turn has begun meanwhile, this returns its token, which cannot be
        // mistaken for ours.
        let token = self.is_leading().then(|| self.view.status().token);
        let token = token.flatten().ok_or(NotLeading)?;
        Ok(Term { of: self, token })
    }
}

// === impl Term ===

impl Term<'_> {
    /// The token of the operator's lock, which is another one for each term.
    pub(crate) fn token(self) -> FencingToken {
        self.token
    }

    /// Whether the term goes on, without a break since it was begun.
    ///
    /// # Errors
    /// When the lease is over, also where this replica leads again since.
    pub(crate) fn check(self) -> Result<(), NotLeading> {
        let now = self.of.term()?;
        (now.token == self.token).then_some(()).ok_or(NotLeading)
    }
}

/// Stands in the queue of leaders until `stop`, and says in `leading` when this replica's turn begins
/// and ends. Then releases the lock; the caller has to have ended its writes by then.
pub(crate) async fn lead(
    lock: Lock<BootClock>,
    leading: watch::Sender<bool>,
    stop: impl Future<Output = ()>,
) {
    let mut stop = std::pin::pin!(stop);
    loop {
        let turn = lock.guarded(|token, _| {
            tracing::info!(lock.token = token.0, "Leading");
            leading.send_replace(true);
            std::future::pending::<()>()
        });
        let ended = tokio::select! {
            biased;
            () = &mut stop => break,
            ended = turn => ended,
        };
        leading.send_replace(false);
        if let Err(error) = ended {
            tracing::warn!(%error, "No longer leading");
        }
        tokio::select! {
            () = &mut stop => break,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
    leading.send_replace(false);
    if let Err(error) = lock.close().await {
        tracing::warn!(%error, "Failed to hand over; the next replica leads when our session expires");
    }
}
