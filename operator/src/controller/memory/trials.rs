//! The handoffs of rollouts whose outcome this replica waits for.

use std::time::Duration;

use lockkeeper_crds::lock::Trial;
use tokio::time::Instant;

/// How long a revision on trial has to hold the lock in one go. As long as the kubelet takes until it forgets that a
/// container ended (twice its longest back-off of five minutes).
pub(crate) const TRIAL: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, Default)]
pub(crate) struct Trials {
    /// The one that was requested last, until the status that is seen has it.
    requested: Option<Trial>,
    /// The contender of the revision on trial that holds, and since when it was seen to.
    holding: Option<(String, Instant)>,
}

// === impl Trials ===

impl Trials {
    /// This handoff was requested.
    pub(crate) fn request(&mut self, trial: Trial) {
        self.requested = Some(trial);
    }

    /// The one that was requested last.
    pub(crate) fn requested(&self) -> Option<&Trial> {
        self.requested.as_ref()
    }

    /// The status has this trial, and this contender of its revision holds. Whether the trial is over: the contender has
    /// held for long enough.
    pub(crate) fn see(&mut self, written: Option<&Trial>, holder: Option<&str>) -> bool {
        let is_over = self
            .holding
            .as_ref()
            .is_some_and(|(_, since)| since.elapsed() >= TRIAL);
        if is_over || self.requested.as_ref() == written {
            self.requested = None;
        }
        let is_same = matches!((&self.holding, holder), (Some((before, _)), Some(now)) if before == now);
        if !is_same || is_over {
            self.holding = holder.map(|holder| (holder.to_owned(), Instant::now()));
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_trial_is_over_when_one_contender_has_held_for_ten_minutes_in_one_go() {
        let mut trials = Trials::default();
        let half = TRIAL / 2;
        assert!(!trials.see(None, Some("a")));
        tokio::time::advance(half).await;
        assert!(!trials.see(None, Some("b")), "another one of the revision");
        tokio::time::advance(half).await;
        assert!(!trials.see(None, Some("b")));
        tokio::time::advance(half).await;
        assert!(trials.see(None, Some("b")));
        assert!(!trials.see(None, Some("b")), "the next one has begun");
    }
}
