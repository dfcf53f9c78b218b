//! Size, speed and reliability of the ensemble and its network.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of all random choices.
    pub seed: u64,
    /// The number of servers. Server 0 leads at first.
    pub servers: usize,
    /// `tickTime`.
    pub tick: Duration,
    /// `syncLimit`: the number of ticks without its leader after which a follower stops serving.
    pub sync_limit: u32,
    /// The session timeout that clients request; servers limit it to 2 to 20 ticks.
    pub session_timeout: Duration,
    /// A message takes up to this long; whole milliseconds.
    pub delay: Duration,
    /// A message from the leader takes up to this long to a follower.
    pub lag: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            servers: 3,
            tick: Duration::from_secs(2),
            sync_limit: 5,
            session_timeout: Duration::from_secs(15),
            delay: Duration::from_millis(3),
            lag: Duration::from_millis(20),
        }
    }
}
