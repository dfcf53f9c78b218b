//! A value that the tests of a program share while they run at the same time, such as servers that take
//! seconds to start.
//!
//! The last of these tests ends it. A test that breaks it for a while uses it alone.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Gives all tests that run at the same time the same value, which the first of them starts.
pub fn shared<T>(slot: &Mutex<Weak<T>>, start: impl FnOnce() -> T) -> Arc<T> {
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = slot.upgrade() {
        return running;
    }
    let started = Arc::new(start());
    *slot = Arc::downgrade(&started);
    started
}

/// The stays of tests with a shared value: any number together, or one alone.
#[derive(Debug)]
pub struct Stays(RwLock<()>);

/// A test's stay, until it is dropped.
#[derive(Debug)]
#[must_use]
pub enum Stay {
    Together(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

impl Stays {
    pub const fn new() -> Self {
        Self(RwLock::const_new(()))
    }

    /// Waits until no test stays alone.
    pub async fn together(&'static self) -> Stay {
        Stay::Together(self.0.read().await)
    }

    /// Waits until no test stays.
    pub async fn alone(&'static self) -> Stay {
        Stay::Alone(self.0.write().await)
    }

    /// [`Self::together`], for a test that is not asynchronous.
    pub fn blocking_together(&'static self) -> Stay {
        Stay::Together(self.0.blocking_read())
    }

    /// [`Self::alone`], for a test that is not asynchronous.
    pub fn blocking_alone(&'static self) -> Stay {
        Stay::Alone(self.0.blocking_write())
    }
}

impl Default for Stays {
    fn default() -> Self {
        Self::new()
    }
}

/// The state that a failing test prints.
pub trait Story {
    /// A description of the state, for a test whose condition was not met.
    fn story(&self) -> String;
}

/// A value that all tests share that run at the same time, and the stays with it.
#[derive(Debug)]
pub struct Shared<T> {
    stays: Stays,
    running: tokio::sync::Mutex<Weak<T>>,
}

/// A test's stay with a [`Shared`] value. A test that fails prints the value's [`Story`].
#[derive(Debug)]
pub struct Visit<T: Story> {
    value: Arc<T>,
    _stay: Stay,
}

impl<T: Story> Shared<T> {
    /// Without a value yet.
    pub const fn new() -> Self {
        Self {
            stays: Stays::new(),
            running: tokio::sync::Mutex::const_new(Weak::new()),
        }
    }

    /// The value, with other tests; `None` where it cannot be started.
    pub async fn together(&'static self, start: impl AsyncFnOnce() -> Option<T>) -> Option<Visit<T>> {
        let stay = self.stays.together().await;
        self.visit(stay, start).await
    }

    /// The value without other tests: for a test that breaks it for a while.
    pub async fn alone(&'static self, start: impl AsyncFnOnce() -> Option<T>) -> Option<Visit<T>> {
        let stay = self.stays.alone().await;
        self.visit(stay, start).await
    }

    async fn visit(&self, stay: Stay, start: impl AsyncFnOnce() -> Option<T>) -> Option<Visit<T>> {
        let mut running = self.running.lock().await;
        let value = match running.upgrade() {
            Some(value) => value,
            None => Arc::new(start().await?),
        };
        *running = Arc::downgrade(&value);
        Some(Visit { value, _stay: stay })
    }
}

impl<T: Story> Default for Shared<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Story> Deref for Visit<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Story> Drop for Visit<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.value.story());
        }
    }
}
