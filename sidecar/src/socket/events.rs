//! The lock after every change, as server-sent events (WHATWG HTML, "Server-sent events").

use std::convert::Infallible;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use http_body_util::StreamBody;
use hyper::body::{Body, Bytes, Frame};
use lockkeeper_daemon::accept::Stopping;
use tokio::sync::OwnedSemaphorePermit;

use crate::view::{KeeperView, Snapshot};

/// A comment is sent after this time without an event, so that both sides notice when the other is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// One client's stream.
struct Events {
    view: KeeperView,
    stopping: Stopping,
    /// What was sent last.
    last: Option<Snapshot>,
    /// Its place among the streams that may be open at once.
    _slot: OwnedSemaphorePermit,
}

/// An event at once, one after every change, and the end when the keeper or the server ends.
///
/// A client that does not read costs no memory: it gets the newest state when it reads again, and
/// not those between.
pub(super) fn body(
    view: KeeperView,
    stopping: Stopping,
    slot: OwnedSemaphorePermit,
) -> impl Body<Data = Bytes, Error = Infallible> + Send + 'static {
    StreamBody::new(frames(Events {
        view,
        stopping,
        last: None,
        _slot: slot,
    }))
}

fn frames(events: Events) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + 'static {
    stream::unfold(events, |mut events| async {
        let text = events.next().await?;
        Some((Ok(Frame::data(Bytes::from(text))), events))
    })
}

impl Events {
    async fn next(&mut self) -> Option<String> {
        let Some(last) = &self.last else {
            return self.event();
        };
        if !self.view.is_alive() {
            // The client has been told, with the last event: or that is still to be done.
            return if *last == self.view.now() {
                None
            } else {
                self.event()
            };
        }
        // The deadline is an event of its own, even if no status is published in time. The remaining time is rounded
        // down to milliseconds, so one more avoids waking too early.
        let until_deadline = self
            .view
            .now()
            .remaining_millis
            .map_or(Duration::MAX, |millis| Duration::from_millis(millis + 1));
        let stopped = async {
            // An error means that the server is gone: the end as well.
            let _ = self.stopping.wait_for(|stopping| *stopping).await;
        };
        tokio::select! {
            biased;
            () = stopped => None,
            _ = self.view.changed() => self.event(),
            () = tokio::time::sleep(until_deadline.min(KEEP_ALIVE)) => {
                if self.view.now().state == last.state {
                    Some(": still here\n\n".to_owned())
                } else {
                    self.event()
                }
            }
        }
    }

    fn event(&mut self) -> Option<String> {
        let snapshot = self.view.take();
        let json = serde_json::to_string(&snapshot).ok()?;
        self.last = Some(snapshot);
        Some(format!("data: {json}\n\n"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockkeeper_lock::{LockState, LockStatus};
    use tokio::sync::{Semaphore, watch};

    use super::*;
    use crate::view::{About, Guarded};

    fn view(status: watch::Receiver<LockStatus>) -> KeeperView {
        KeeperView::new(
            status,
            watch::channel(Guarded::default()).1,
            About::exclusive("/l"),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_shows_every_fifteen_seconds_that_it_is_alive() {
        let (status, watched) = watch::channel(LockStatus::new());
        let (stop, stopping) = watch::channel(false);
        let slot = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let mut events = Events {
            view: view(watched),
            stopping,
            last: None,
            _slot: slot,
        };
        assert!(events.next().await.unwrap().contains(r#""state":"Released""#));
        for _ in 0..3 {
            let before = tokio::time::Instant::now();
            assert_eq!(events.next().await.as_deref(), Some(": still here\n\n"));
            let quiet = before.elapsed();
            assert!(quiet >= KEEP_ALIVE && quiet < KEEP_ALIVE * 2, "{quiet:?}");
        }
        status.send_modify(|status| status.state = LockState::Connecting);
        assert!(events.next().await.unwrap().contains(r#""state":"Connecting""#));
        stop.send_replace(true);
        assert_eq!(events.next().await, None);
    }
}
