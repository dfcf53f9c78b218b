//! The times of all locks that are traced.

use std::time::Duration;

use lockkeeper_lock::{KILL_ALLOWANCE, LeaseDuration, Timing};
use lockkeeper_testbed::Config;

/// T: the shortest that leaves time for lost answers beside four renewals (`Timing::check`), in whole seconds.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(4);

/// L: short, so that takeovers are many, and longer than the pauses of a busy machine.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// By how much two clocks may differ in rate: docs/safety.md, "The assumptions".
const CLOCK_RATE_ERROR: f64 = 0.01;

pub fn timing() -> Timing {
    Timing {
        tick_time: Config::default().tick,
        stop_grace: Duration::ZERO,
        lease_duration: LeaseDuration::Of(LEASE),
        ..Timing::new(SESSION_TIMEOUT)
    }
}

/// How long after the sending of a renewal a contender may hold: L less the margin (`TakeoverLease::deadline`).
pub fn until_the_deadline() -> Duration {
    LEASE.mul_f64(1.0 - CLOCK_RATE_ERROR) - KILL_ALLOWANCE
}

/// How long after an answer a contender waits before it takes over (`Sighting::silent_at`).
pub fn wait() -> Duration {
    LEASE.mul_f64(1.0 + CLOCK_RATE_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_accepts_the_times() {
        timing().check().unwrap();
    }
}
