//! Rounds of one queue: many contenders, each of which holds the lock for a moment and queues again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use tokio::sync::Notify;

/// How long each contender holds.
pub const HOLD: Duration = Duration::from_millis(5);

/// The times from a release to the next holder, shared by all contenders of a run.
#[derive(Clone)]
pub struct Rounds {
    shared: Arc<Shared>,
}

struct Shared {
    wanted: usize,
    warm_up: usize,
    state: Mutex<State>,
    done: Notify,
}

#[derive(Default)]
struct State {
    released: Option<BootInstant>,
    holders: usize,
    samples: Vec<Duration>,
}

impl Rounds {
    /// For this many samples, after one round of all contenders that does not count.
    pub fn new(contenders: usize, wanted: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                wanted,
                warm_up: contenders,
                state: Mutex::default(),
                done: Notify::new(),
            }),
        }
    }

    /// Called by a contender as soon as it holds. Two at a time are a failure of the lock.
    pub fn acquired(&self) {
        let now = BootInstant::now();
        let mut state = self.shared.state.lock().expect("no panic while it is locked");
        assert_eq!(state.holders, 0, "two holders");
        state.holders += 1;
        if let Some(released) = state.released.take() {
            state.samples.push(now - released);
        }
        if state.samples.len() >= self.shared.warm_up + self.shared.wanted {
            self.shared.done.notify_waiters();
        }
    }

    /// Called by a contender just before it releases.
    pub fn releasing(&self) {
        let mut state = self.shared.state.lock().expect("no panic while it is locked");
        state.holders -= 1;
        state.released = Some(BootInstant::now());
    }

    /// Waits until there are enough samples and returns them.
    pub async fn samples(&self) -> Vec<Duration> {
        loop {
            let done = self.shared.done.notified();
            {
                let state = self.shared.state.lock().expect("no panic while it is locked");
                if state.samples.len() >= self.shared.warm_up + self.shared.wanted {
                    return state.samples[self.shared.warm_up..].to_vec();
                }
            }
            done.await;
        }
    }
}
