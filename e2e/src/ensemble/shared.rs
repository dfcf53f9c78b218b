//! One ensemble for all tests of a program that run at the same time.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Config, Ensemble};

/// Servers that tests share which run at the same time; the last one of them ends them.
///
/// # Panics
/// When the servers do not start.
pub fn shared() -> Arc<Ensemble> {
    static SHARED: Mutex<Weak<Ensemble>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = shared.upgrade() {
        return running;
    }
    let started = Arc::new(Ensemble::start(Config::default()).expect("the servers start"));
    *shared = Arc::downgrade(&started);
    started
}
