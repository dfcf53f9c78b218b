//! Waiting for a condition on the simulated clock.

use std::time::Duration;

/// Longer than anything takes that a test waits for; on the simulated clock it costs no time.
const BOUND: Duration = Duration::from_secs(60);

/// Waits until `is_so`.
///
/// # Panics
/// When it is not so within a simulated minute.
pub async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let poll = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(BOUND, poll).await.is_ok(), "never: {what}");
}
