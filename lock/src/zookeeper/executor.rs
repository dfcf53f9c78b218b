//! Runs the client's background task on tokio, and can delay and end it.
//!
//! `zookeeper-client` spawns one task per client and offers no way to end it. A client that is dropped while it waits
//! for an answer connects once more before it ends, and would take the session away from its successor.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Mutex;

use spawns_core::{Spawn, Task};
use tokio::task::AbortHandle;

/// Collects the tasks that are spawned inside [`Executor::enter`]. [`Executor::start`] runs them, and they end when the
/// executor is dropped.
#[derive(Default)]
pub(super) struct Executor {
    held_back: Mutex<Vec<Task>>,
    running: Mutex<Vec<AbortHandle>>,
}

impl Executor {
    /// Polls a future, and holds back the tasks that it spawns.
    pub(super) async fn enter<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            let _scope = spawns_core::enter(self);
            future.as_mut().poll(context)
        })
        .await
    }

    /// Runs the tasks that were held back.
    pub(super) fn start(&self) {
        let tasks = std::mem::take(&mut *self.held_back.lock().expect("no panic while it is locked"));
        let handles = tasks
            .into_iter()
            .map(|task| tokio::spawn(Box::into_pin(task.future)).abort_handle());
        self.running
            .lock()
            .expect("no panic while it is locked")
            .extend(handles);
    }

    /// Runs a future of our own beside them.
    pub(super) fn run(&self, future: impl Future<Output = ()> + Send + 'static) {
        let handle = tokio::spawn(future).abort_handle();
        self.running
            .lock()
            .expect("no panic while it is locked")
            .push(handle);
    }

    /// Ends all running tasks.
    pub(super) fn stop(&self) {
        let mut running = self.running.lock().expect("no panic while it is locked");
        running.drain(..).for_each(|handle| handle.abort());
    }
}

impl Spawn for Executor {
    fn spawn(&self, task: Task) {
        self.held_back
            .lock()
            .expect("no panic while it is locked")
            .push(task);
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.stop();
    }
}
