//! The signals that end the operator.

use lockkeeper_daemon::exit::Failure;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// SIGTERM and SIGINT: the first asks for an orderly end, the second for one at once.
pub(crate) struct Signals {
    /// Becomes true with the first signal.
    pub(crate) first: watch::Receiver<bool>,
    second: watch::Receiver<bool>,
}

impl Signals {
    /// Listens.
    ///
    /// # Errors
    /// When the process cannot listen for signals.
    pub(crate) fn new() -> Result<Self, Failure> {
        let failed = |error| Failure::software(format!("cannot listen for signals: {error}"));
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let (first_sender, first) = watch::channel(false);
        let (second_sender, second) = watch::channel(false);
        tokio::spawn(async move {
            for sender in [first_sender, second_sender] {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                sender.send_replace(true);
            }
        });
        Ok(Self { first, second })
    }

    /// Completes with the second signal.
    pub(crate) async fn second(&mut self) {
        if self.second.wait_for(|is_true| *is_true).await.is_err() {
            std::future::pending().await
        }
    }
}
