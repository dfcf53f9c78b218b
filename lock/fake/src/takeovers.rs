//! Counts takeovers, for tests of many histories.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper_lock::Observer;

/// An observer that counts the places that were taken from silent contenders.
#[derive(Debug, Default)]
pub struct Takeovers(AtomicUsize);

impl Takeovers {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Observer for Takeovers {
    fn renewed(&self, _: Duration) {}
    fn session_moved(&self) {}
    fn took_over(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn connected(&self) {}
}
