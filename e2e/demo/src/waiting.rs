//! Waiting while users watch.

use std::time::Duration;

use anyhow::bail;
use lockkeeper_lock::BootInstant;

/// Time between two looks at the records.
pub(crate) const POLL: Duration = Duration::from_millis(10);

/// The programs of an act, and the picture of them.
pub(crate) trait Watched {
    /// Bound for every step that has to happen.
    const BOUND: Duration;

    /// Reads what the programs have written since the last call, and draws it.
    ///
    /// # Errors
    /// When the user has interrupted the demonstration, or the records cannot be read.
    fn look(&mut self) -> anyhow::Result<()>;

    /// Waits until `condition` returns a value.
    ///
    /// # Errors
    /// When it does not within [`Self::BOUND`]; the message says that `what` did not happen.
    fn wait<T>(
        &mut self,
        what: &str,
        mut condition: impl FnMut(&mut Self) -> Option<T>,
    ) -> anyhow::Result<T> {
        let end = BootInstant::now() + Self::BOUND;
        loop {
            self.look()?;
            if let Some(value) = condition(self) {
                return Ok(value);
            }
            if BootInstant::now() >= end {
                bail!("{what}: it did not happen within {} s", Self::BOUND.as_secs());
            }
            std::thread::sleep(POLL);
        }
    }
}
