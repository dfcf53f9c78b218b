//! Waiting for a condition.

#![allow(dead_code, reason = "each test uses its part of it")]

use std::time::Duration;

use lockkeeper_lock::BootInstant;

/// What a test waits for at most: far beyond what it should take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Calls `ask` until it returns a value.
///
/// # Panics
/// When it returns none within [`PATIENCE`].
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = BootInstant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(BootInstant::now() < end, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The same for a condition without a value.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually(what, || is_so().then_some(()));
}
