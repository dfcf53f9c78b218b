//! What the data of our contender say.

use std::time::Duration;

use crate::record::{ContenderData, Said, Survivors, TookOver, now};

pub(super) struct Statement {
    /// Whether they say that we hold, or held.
    is_marked: bool,
    /// Since when we wait, or hold; for people.
    since: String,
    /// The survivors that they were last to state.
    survivors: Option<Survivors>,
    /// Whether they may state others: a write that changes them is under way, or its answer was lost.
    is_unsure: bool,
    /// The holder whose place we have taken.
    took_over: Option<TookOver>,
    /// Whose place we have asked to take, until we know whether that was carried out: through a lost connection, too.
    taking: Option<Taking>,
}

struct Taking {
    of: TookOver,
    /// Whether it said that it holds. Otherwise it waited, and we got no lock from it.
    is_from_holder: bool,
}

impl Statement {
    /// Of a contender that waits.
    pub(super) fn of_waiter() -> Self {
        Self {
            is_marked: false,
            since: now(),
            survivors: None,
            is_unsure: false,
            took_over: None,
            taking: None,
        }
    }

    /// These data were left to us.
    pub(super) fn left(data: ContenderData) -> Self {
        Self {
            is_marked: data.is_held(),
            since: data.since.unwrap_or_else(now),
            survivors: data.survivors,
            is_unsure: false,
            took_over: data.took_over,
            taking: None,
        }
    }

    /// Whether they have to be written now, to say that we hold; true only once.
    pub(super) fn mark(&mut self) -> bool {
        let is_news = !std::mem::replace(&mut self.is_marked, true);
        if is_news {
            self.since = now();
        }
        is_news
    }

    /// Since when they say that we hold; `None` if they do not.
    pub(super) fn held_since(&self) -> Option<&str> {
        self.is_marked.then_some(self.since.as_str())
    }

    /// Whether they state these survivors for certain.
    pub(super) fn states(&self, survivors: Option<Survivors>) -> bool {
        self.survivors == survivors && !self.is_unsure
    }

    /// With what to write them now: with these survivors, with `lease` as L, and with the contender whose place we are
    /// about to take.
    pub(super) fn say(
        &mut self,
        survivors: Option<Survivors>,
        lease: Option<Duration>,
        taking: Option<&TookOver>,
        stop_budget: Duration,
    ) -> Said {
        self.is_unsure |= self.survivors != survivors;
        self.survivors = survivors;
        Said {
            is_held: self.is_marked,
            since: self.since.clone(),
            stop_budget,
            lease,
            took_over: taking.or(self.took_over.as_ref()).cloned(),
            survivors,
        }
    }

    /// The last write of them is acknowledged.
    pub(super) fn acknowledged(&mut self) {
        self.is_unsure = false;
    }

    pub(super) fn took_over(&self) -> Option<&TookOver> {
        self.took_over.as_ref()
    }

    pub(super) fn taking(&self) -> Option<&TookOver> {
        self.taking.as_ref().map(|taking| &taking.of)
    }

    /// We ask to take this place, of a contender that holds or that waits.
    pub(super) fn take(&mut self, of: TookOver, is_from_holder: bool) {
        self.taking = Some(Taking { of, is_from_holder });
    }

    /// We have the place that we asked for. Returns whose it was.
    pub(super) fn taken(&mut self) -> Option<TookOver> {
        let Taking { of, is_from_holder } = self.taking.take()?;
        if is_from_holder {
            self.took_over = Some(of.clone());
        }
        Some(of)
    }

    /// We have not got it. Returns whose it is.
    pub(super) fn not_taken(&mut self) -> Option<TookOver> {
        self.taking.take().map(|taking| taking.of)
    }
}
