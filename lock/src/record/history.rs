//! The last holds of the lock, which the control node remembers. Pure.
//!
//! For people only: no decision depends on it. A holder writes itself down where it writes the control node anyway: when
//! it records itself, and when it releases. Of a holder that cannot do so any more, the next one writes what it knows.

use super::contender::{Identity, TookOver, now};
use super::control::{Control, Holder};
use super::hold::{HOLDS_KEPT, Hold, HoldEnd, is_who};
use super::holders::Claimant;
use crate::token::FencingToken;

/// What a contender knows of its own hold, and of those that ended while it waited.
#[derive(Clone, Copy)]
pub(crate) struct Witness<'a> {
    pub(crate) identity: &'a Identity,
    /// Since when it holds; `None` if it does not say so yet.
    pub(crate) since: Option<&'a str>,
    /// The holders that it has seen go.
    pub(crate) seen: &'a [Hold],
    /// The holder whose place it took.
    pub(crate) took_over: Option<&'a TookOver>,
}

impl Witness<'_> {
    /// Its own hold.
    fn own(&self, holder: Holder) -> Hold {
        Hold {
            since: self.since.map(str::to_owned),
            ..Hold::new(
                holder.contender,
                holder.token,
                self.identity.pod.as_ref(),
                self.identity.host.as_deref(),
            )
        }
    }

    /// The holds of others that have ended; how is open, unless it took the place.
    fn others(&self, own: &Hold) -> Vec<Hold> {
        let mut others = self.seen.to_vec();
        let Some(of) = self.took_over else { return others };
        let taken = match others.iter_mut().find(|one| one.contender == of.contender) {
            Some(taken) => taken,
            None => {
                others.push(Hold::new(of.contender.clone(), UNKNOWN, of.pod.as_ref(), None));
                others.last_mut().expect("one was pushed")
            }
        };
        taken.ended = Some(HoldEnd::TakenOver);
        taken.taken_by = Some(own.who()).filter(|who| is_who(who));
        taken.silent_millis = Some(of.silent_millis);
        others
    }

    /// What to write down when it releases.
    pub(crate) fn account(&self, own: Holder) -> Account {
        let own = self.own(own);
        Account {
            others: self.others(&own),
            own: self.since.is_some().then(|| Hold {
                until: Some(now()),
                ..own
            }),
        }
    }
}

/// The token of a hold of which only the contender is known.
const UNKNOWN: FencingToken = FencingToken(0);

/// The holds that a contender writes down when it releases.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    /// `None` if it has not held.
    own: Option<Hold>,
    others: Vec<Hold>,
}

impl Control {
    /// The same with the hold of `claimant`, which lasts, and the end of those that it has outlived.
    pub(crate) fn with_hold(mut self, claimant: &Claimant<'_>, witness: &Witness<'_>) -> Self {
        let mut own = witness.own(claimant.own.clone());
        // It is recorded at the moment at which it gets the lock, or shortly after that.
        own.since.get_or_insert_with(now);
        let others = witness.others(&own);
        for hold in others {
            self.note_end(hold);
        }
        // Nobody has seen these go: when that was is unknown.
        let outlived = self
            .holds
            .iter()
            .filter(|one| one.ended.is_none() && claimant.outlives(&one.contender, one.token));
        for hold in outlived.cloned().collect::<Vec<_>>() {
            self.note_end(hold);
        }
        if TookOver::can_name(&own.contender) && self.hold(&own.contender).is_none() {
            self.add(own);
        }
        self
    }

    /// The same with what a contender writes down when it releases.
    pub(crate) fn with_account(mut self, account: Account) -> Self {
        for hold in account.others {
            self.note_end(hold);
        }
        let Some(mut own) = account.own.filter(|own| TookOver::can_name(&own.contender)) else {
            return self;
        };
        own.ended = Some(match self.asks(&own.contender) {
            true => HoldEnd::HandedOver,
            false => HoldEnd::Released,
        });
        match self.hold(&own.contender) {
            Some(at) => self.holds[at] = own,
            None => self.add(own),
        }
        self
    }

    /// How a hold ended of which only this record can tell.
    pub fn hold_end(&self, contender: &str, token: FencingToken) -> HoldEnd {
        match self.released(contender) {
            true if self.asks(contender) => HoldEnd::HandedOver,
            true => HoldEnd::Released,
            false if self.was_lost(contender, token) => HoldEnd::Lost,
            false => HoldEnd::Unknown,
        }
    }

    fn hold(&self, contender: &str) -> Option<usize> {
        self.holds.iter().position(|hold| hold.contender == contender)
    }

    fn add(&mut self, hold: Hold) {
        self.holds.insert(0, hold);
        self.holds.truncate(HOLDS_KEPT);
    }

    /// Notes the end of a former holder. What is noted already stays: but that its place was taken explains a loss.
    fn note_end(&mut self, hold: Hold) {
        let ended = hold
            .ended
            .unwrap_or_else(|| self.hold_end(&hold.contender, hold.token));
        let hold = Hold {
            ended: Some(ended),
            ..hold
        };
        let Some(at) = self.hold(&hold.contender) else {
            // One that is older than all that are kept was forgotten.
            let is_forgotten =
                self.holds.len() >= HOLDS_KEPT && self.holds.iter().all(|one| one.token > hold.token);
            if hold.token != UNKNOWN && !is_forgotten {
                self.add(hold);
            }
            return;
        };
        let known = &mut self.holds[at];
        let is_explained =
            matches!(known.ended, Some(HoldEnd::Lost | HoldEnd::Unknown)) && ended == HoldEnd::TakenOver;
        if known.ended.is_none() || is_explained {
            known.ended = hold.ended;
            known.taken_by = hold.taken_by;
            known.silent_millis = hold.silent_millis;
            known.until = known.until.take().or(hold.until);
        }
    }
}

#[cfg(test)]
mod tests;
