//! Freezes the lock's task of one contender, as if its process were stopped.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use lockkeeper_lock::{BootClock, BootInstant, Clock};

/// Until when a task is frozen.
#[derive(Clone, Debug)]
pub(crate) struct Freezer(Arc<Mutex<BootInstant>>);

impl Default for Freezer {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(BootInstant::from_nanos(0))))
    }
}

impl Freezer {
    /// The task is not polled before `until`. What arrives for it meanwhile waits.
    pub(crate) fn freeze(&self, until: BootInstant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    fn until(&self) -> BootInstant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a task that can be frozen.
    pub(crate) async fn run<T>(&self, task: impl Future<Output = T>) -> T {
        let mut task = Box::pin(task);
        let mut thaw = None;
        poll_fn(|context| {
            loop {
                let (now, until) = (BootInstant::now(), self.until());
                if now >= until {
                    return task.as_mut().poll(context);
                }
                let sleep = thaw.insert(Box::pin(BootClock.sleep(until - now)));
                match sleep.as_mut().poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(()) => {}
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_frozen_task_does_nothing_until_it_thaws() {
        let freezer = Freezer::default();
        let until = BootInstant::now() + Duration::from_millis(50);
        freezer.freeze(until);
        let ran = freezer.run(async { BootInstant::now() }).await;
        assert!(ran >= until);
    }
}
