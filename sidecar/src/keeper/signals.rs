//! Signals to the keeper.

use lockkeeper_daemon::exit::Failure;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::policy::Kind;

/// Signals that ask this process to end. If the guard is our parent, it gets them, too, or tells us what they mean: a
/// service manager sends SIGTERM to all at once, and the lock has to be released after the application has ended.
pub(super) struct Terminations {
    signals: [Signal; 4],
    end_us: bool,
}

impl Terminations {
    pub(super) fn new(kind: Kind) -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::software(format!("cannot listen for signals: {error}")))
        };
        Ok(Self {
            signals: [
                listen(SignalKind::terminate())?,
                listen(SignalKind::interrupt())?,
                listen(SignalKind::quit())?,
                listen(SignalKind::hangup())?,
            ],
            end_us: kind == Kind::Wrap,
        })
    }

    pub(super) async fn next(&mut self) {
        if !self.end_us {
            return std::future::pending().await;
        }
        let [term, int, quit, hangup] = &mut self.signals;
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
            _ = quit.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
