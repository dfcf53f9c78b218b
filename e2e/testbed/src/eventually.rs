//! Waiting for a condition in an asynchronous test; [`wait_for`](crate::process::wait_for) is for other
//! tests.

use std::time::Duration;

use crate::clock::since_boot;
use crate::process::pause;

/// Generous: the machine may be busy.
pub const BOUND: Duration = Duration::from_secs(60);

/// Calls `ask` until it returns a value.
///
/// # Panics
/// When it returns none within [`BOUND`].
pub async fn eventually<T>(what: &str, ask: impl AsyncFnMut() -> Option<T>) -> T {
    eventually_within(BOUND, what, ask).await
}

/// The same with a longer bound.
///
/// # Panics
/// When there is no answer in time.
pub async fn eventually_within<T>(bound: Duration, what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    /// Shorter than any event that a test waits for.
    const POLL: Duration = Duration::from_millis(20);
    let asking = async {
        loop {
            let asked = since_boot();
            if let Some(answer) = ask().await {
                return answer;
            }
            let took = since_boot().saturating_sub(asked);
            tokio::time::sleep(pause(took, POLL)).await;
        }
    };
    tokio::time::timeout(bound, asking)
        .await
        .unwrap_or_else(|_| panic!("not in time: {what}"))
}
