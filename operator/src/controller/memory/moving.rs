//! How far a lock is on its way from one ensemble to another, as this replica has seen it.

use std::time::Duration;

use lockkeeper_lock::FencingToken;
use tokio::time::Instant;

#[derive(Clone, Debug, Default)]
pub(crate) struct Moving {
    /// The token of the time for which this replica has led without a break.
    term: Option<FencingToken>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// It stays where it is.
    #[default]
    Still,
    /// Since then nothing of it is left in the ensemble before.
    Left(Instant),
    /// Since then it is in this ensemble, after another one.
    Arrived(Instant),
}

// === impl Moving ===

impl Moving {
    /// This replica leads under this token. What it saw under another one is forgotten: others may have led and written
    /// meanwhile.
    pub(crate) fn enter(&mut self, term: FencingToken) {
        if self.term != Some(term) {
            self.term = Some(term);
            self.stage = Stage::Still;
        }
    }

    /// Nothing of it is left in the ensemble before. For how long that has been so.
    pub(crate) fn leave(&mut self) -> Duration {
        let since = match self.stage {
            Stage::Left(since) => since,
            Stage::Still | Stage::Arrived(_) => Instant::now(),
        };
        self.stage = Stage::Left(since);
        since.elapsed()
    }

    /// It is in the ensemble before still, or again.
    pub(crate) fn stay(&mut self) {
        if matches!(self.stage, Stage::Left(_)) {
            self.stage = Stage::Still;
        }
    }

    /// It is in this ensemble after another one. For how long that has been so.
    pub(crate) fn arrive(&mut self) -> Duration {
        let since = match self.stage {
            Stage::Arrived(since) => since,
            Stage::Still | Stage::Left(_) => Instant::now(),
        };
        self.stage = Stage::Arrived(since);
        since.elapsed()
    }

    /// Its arrival is over, or does not count.
    pub(crate) fn settle(&mut self) {
        if matches!(self.stage, Stage::Arrived(_)) {
            self.stage = Stage::Still;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn what_was_seen_of_a_move_is_forgotten_when_another_replica_may_have_led_meanwhile() {
        let looks: [fn(&mut Moving) -> Duration; 2] = [Moving::leave, Moving::arrive];
        for see in looks {
            let mut seen = Moving::default();
            seen.enter(FencingToken(1));
            assert_eq!(see(&mut seen), Duration::ZERO);
            tokio::time::advance(SECOND).await;
            let (mut same, mut other) = (seen.clone(), seen);
            same.enter(FencingToken(1));
            other.enter(FencingToken(2));
            assert_eq!((see(&mut same), see(&mut other)), (SECOND, Duration::ZERO));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_times_before_and_after_a_move_begin_anew_when_it_is_broken_off() {
        let mut moving = Moving::default();
        moving.leave();
        tokio::time::advance(SECOND).await;
        moving.settle();
        assert_eq!(moving.leave(), SECOND, "it has not arrived");
        moving.stay();
        assert_eq!(moving.leave(), Duration::ZERO);
        assert_eq!(moving.arrive(), Duration::ZERO);
        tokio::time::advance(SECOND).await;
        moving.stay();
        assert_eq!(moving.arrive(), SECOND, "it is there");
        moving.settle();
        assert_eq!(moving.arrive(), Duration::ZERO);
    }
}
