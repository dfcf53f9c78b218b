//! Clocks that run at different rates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper_lock::{BootInstant, Clock};
use tokio::time::Instant;

/// A clock on tokio's time that runs a little fast or slow, and that started at a moment of its own. Instants of two
/// such clocks cannot be compared.
#[derive(Clone, Debug)]
pub struct SkewedClock {
    rate: f64,
    offset: Arc<AtomicU64>,
    start: Instant,
}

impl SkewedClock {
    /// `rate` seconds of this clock pass in one second of tokio's time; it shows `offset` now.
    pub fn new(rate: f64, offset: Duration) -> Self {
        Self {
            rate,
            offset: Arc::new(AtomicU64::new(offset.as_nanos() as u64)),
            start: Instant::now(),
        }
    }

    /// Suspends the machine for `duration`: this clock and its copies advance, and no timer does.
    pub fn suspend(&self, duration: Duration) {
        self.offset
            .fetch_add(duration.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for SkewedClock {
    fn now(&self) -> BootInstant {
        let elapsed = self.start.elapsed().as_nanos() as f64 * self.rate;
        BootInstant::from_nanos(self.offset.load(Ordering::SeqCst) + elapsed as u64)
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + 'static {
        // Tokio rounds up to whole milliseconds; the extra nanosecond is for the rounding here.
        let nanos = (duration.as_nanos() as f64 / self.rate).ceil() as u64;
        tokio::time::sleep(Duration::from_nanos(nanos.saturating_add(1)))
    }
}
