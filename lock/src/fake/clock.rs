//! Clocks that run at different rates, and clients that stand still.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::Client;
use crate::clock::{BootInstant, Clock};

/// A clock on tokio's time that runs a little fast or slow, and that started at a moment of its
/// own: instants of two of them cannot be compared.
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

    /// The machine was suspended for so long: this clock and its copies have gone on, and no timer has.
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
        // Tokio rounds up to whole milliseconds; one nanosecond more is for the rounding here.
        let nanos = (duration.as_nanos() as f64 / self.rate).ceil() as u64;
        tokio::time::sleep(Duration::from_nanos(nanos.saturating_add(1)))
    }
}

/// Runs futures of a client as its process would: not at all while it is frozen
/// ([`super::World::freeze`]). What is sent to it meanwhile waits in its socket.
#[derive(Clone)]
pub struct Freezable {
    client: Client,
}

impl Freezable {
    /// For futures of `client`.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// `future`, that is not polled while the client is frozen.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        Frozen {
            client: self.client.clone(),
            thaw: None,
            future: Box::pin(future),
        }
    }
}

struct Frozen<F> {
    client: Client,
    thaw: Option<Pin<Box<Sleep>>>,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Frozen<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        while let Some(until) = self.client.frozen_until() {
            let mut thaw = Box::pin(tokio::time::sleep_until(until));
            if thaw.as_mut().poll(context).is_pending() {
                self.thaw = Some(thaw);
                return Poll::Pending;
            }
        }
        self.thaw = None;
        self.future.as_mut().poll(context)
    }
}
