//! Interruption by the user.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::options::Ending;

#[derive(Debug)]
pub(crate) struct Interrupted;

impl Interrupted {
    /// Fails once the user has interrupted the demonstration.
    pub(crate) fn check(flag: &AtomicBool) -> anyhow::Result<()> {
        if flag.load(Ordering::Relaxed) {
            Err(Self.into())
        } else {
            Ok(())
        }
    }
}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// The ending when the user has interrupted the demonstration; otherwise the error.
pub(crate) fn interrupted_or(error: anyhow::Error) -> anyhow::Result<Ending> {
    if error.downcast_ref::<Interrupted>().is_some() {
        eprintln!("Interrupted; everything that was started has been stopped.");
        return Ok(Ending::Interrupted);
    }
    Err(error)
}
