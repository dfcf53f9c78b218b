//! Until when an answer has to be sent: a client that does not read would keep it in memory for ever.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The deadline of the answers over one connection, one at a time. A clone is the same one.
#[derive(Clone, Debug)]
pub struct SendDeadline(Arc<watch::Sender<Option<Instant>>>);

impl SendDeadline {
    /// Nothing is being sent.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    /// An answer is being sent, for which there is so much time.
    pub fn begin(&self, limit: Duration) {
        self.0.send_replace(Some(Instant::now() + limit));
    }

    /// It has been sent, or nobody sends it any more.
    pub fn end(&self) {
        self.0.send_replace(None);
    }

    /// Completes when an answer was not sent in time: then the connection has to be closed.
    pub async fn missed(&self) {
        let mut news = self.0.subscribe();
        loop {
            let until = *news.borrow_and_update();
            let passed = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                // First: an answer that was sent in time is not missed, however late we look. The sender is ours.
                biased;
                _ = news.changed() => {}
                () = passed => return,
            }
        }
    }
}

impl Default for SendDeadline {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_an_answer_that_is_under_way_for_too_long_misses_it() {
        let (deadline, second) = (SendDeadline::new(), Duration::from_secs(1));
        let mut missed = std::pin::pin!(deadline.missed());
        tokio::time::advance(60 * second).await;
        assert!(missed.as_mut().now_or_never().is_none(), "nothing is sent");
        deadline.begin(10 * second);
        assert!(missed.as_mut().now_or_never().is_none());
        deadline.end();
        tokio::time::advance(60 * second).await;
        assert!(missed.as_mut().now_or_never().is_none(), "it was sent");
        deadline.begin(10 * second);
        assert!(missed.as_mut().now_or_never().is_none());
        tokio::time::advance(11 * second).await;
        assert!(missed.as_mut().now_or_never().is_some());
    }
}
