//! A queue of messages for one reader.

use std::cell::RefCell;
use std::collections::VecDeque;

use tokio::sync::Notify;

/// A queue with one reader.
pub(crate) struct Mailbox<T> {
    queue: RefCell<VecDeque<T>>,
    news: Notify,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self {
            queue: RefCell::default(),
            news: Notify::new(),
        }
    }
}

impl<T> Mailbox<T> {
    pub(crate) fn push(&self, message: T) {
        self.queue.borrow_mut().push_back(message);
        self.news.notify_one();
    }

    /// The oldest message, if there is one.
    pub(crate) fn take(&self) -> Option<T> {
        self.queue.borrow_mut().pop_front()
    }

    /// Waits until something was pushed since the last call; it may have been taken already.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// Waits until there is a message, and leaves it there.
    pub(crate) async fn arrived(&self) {
        while self.queue.borrow().is_empty() {
            self.news().await;
        }
    }

    /// Waits for the next message and takes it.
    pub(crate) async fn next(&self) -> T {
        loop {
            match self.take() {
                Some(message) => return message,
                None => self.news().await,
            }
        }
    }

    pub(crate) fn clear(&self) {
        self.queue.borrow_mut().clear();
    }
}
