//! The holders of the lock, and former holders that may still be writing: the control node remembers them for
//! `lockDelay`. Pure.
//!
//! A holder records itself, and removes itself when it releases cleanly. So a recorded holder without a contender has
//! died. Its record stays until a later holder has waited long enough; a holder that leaves before that leaves the
//! record to the next one.

use std::collections::BTreeSet;

use super::control::{CleanRelease, Control, Holder};
use crate::queue::{Ahead, Contender, Mode, excludes};
use crate::token::FencingToken;

/// How many holders the control node names: more than most semaphores have. Further holders are only counted.
const NAMED_HOLDERS: usize = 64;

/// Longest name that is recorded, in bytes: ours have 55, and other clients choose theirs. So all names together have
/// less than 20 KB; ZooKeeper accepts 1 MB.
const LONGEST_NAME: usize = 255;

/// The former holders that may still be writing when a contender gets the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Debts {
    /// Those whose names are known.
    pub(crate) holders: Vec<Holder>,
    /// The value of [`Control::more_holders`] with which the others are settled; 0 if there are no others.
    pub(crate) more: u32,
}

impl Debts {
    /// Nothing is known: a former holder may still be writing.
    pub(crate) fn unknown() -> Self {
        Self {
            holders: Vec::new(),
            more: 1,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.more == 0
    }
}

/// A contender that gets the lock, and what it knows of the queue.
pub(crate) struct Claimant<'a> {
    pub(crate) own: Holder,
    pub(crate) mode: Mode,
    /// The transaction that created the lock root. An older record belongs to an earlier root, whose sequence numbers
    /// mean nothing here.
    pub(crate) root: FencingToken,
    /// Contenders that are known to be before it.
    pub(crate) ahead: Option<&'a Ahead>,
    /// Contenders that were seen before it and may have held.
    pub(crate) suspects: &'a BTreeSet<String>,
}

impl Claimant<'_> {
    fn names_ahead(&self) -> impl Iterator<Item = &str> {
        self.ahead.into_iter().flat_map(Ahead::names)
    }

    fn is_there(&self, name: &str) -> bool {
        self.names_ahead().any(|ahead| ahead == name)
    }

    /// Whether a recorded holder has gone. If several contenders hold together, one that came later may still be there:
    /// it did not make room for us.
    fn sees_gone(&self, holder: &Holder) -> bool {
        let is_before = holds_alone(self.mode) || holder.token < self.own.token;
        is_before && *holder != self.own && !self.is_there(&holder.contender)
    }

    /// Whether this holder is gone for certain. [`Claimant::sees_gone`] counts those that are unknown as gone.
    pub(super) fn outlives(&self, contender: &str, token: FencingToken) -> bool {
        let holder = Holder {
            contender: contender.to_owned(),
            token,
        };
        self.sees_gone(&holder) && (holds_alone(self.mode) || self.ahead.is_some())
    }

    /// A reader need not wait for a former reader that still reads.
    fn minds(&self, name: &str) -> bool {
        self.mode != Mode::Read || !is_reader(name)
    }
}

fn is_reader(name: &str) -> bool {
    Contender::parse(name).is_some_and(|contender| contender.is_reader)
}

/// Whether a holder of this mode holds alone.
fn holds_alone(mode: Mode) -> bool {
    matches!(mode, Mode::Exclusive | Mode::Write)
}

impl Control {
    /// The former holders that may still be writing when `claimant` gets the lock.
    pub(crate) fn debts(&self, claimant: &Claimant) -> Debts {
        let named = self.holders.iter().flatten();
        let mut holders: Vec<Holder> = named
            .filter(|holder| claimant.sees_gone(holder) && claimant.minds(&holder.contender))
            .cloned()
            .collect();
        let suspected = claimant.suspects.iter().filter(|name| {
            claimant.minds(name)
                && !claimant.is_there(name)
                && !self.is_settled(name, claimant)
                && !holders.iter().any(|holder| holder.contender == **name)
        });
        let (short, long): (Vec<_>, Vec<_>) = suspected.partition(|name| name.len() <= LONGEST_NAME);
        let suspected: Vec<Holder> = short
            .into_iter()
            .map(|name| Holder {
                contender: name.clone(),
                token: FencingToken(0),
            })
            .collect();
        holders.extend(suspected);
        if holds_alone(claimant.mode) {
            // All of them have gone, and waiting for the newest covers all.
            holders = newest(holders).collect();
        }
        let is_unknown = self.holders.is_none() && !self.knows_all_before(claimant);
        Debts {
            holders,
            more: self.more_holders.max(u32::from(is_unknown || !long.is_empty())),
        }
    }

    /// The same with `claimant` among the holders.
    pub(crate) fn with_claim(mut self, claimant: &Claimant, debts: &Debts) -> Self {
        self.v = 1;
        let before = self.holders.take().unwrap_or_default();
        let before = before.into_iter().filter(|holder| *holder != claimant.own);
        let (gone, others): (Vec<_>, Vec<_>) = before.partition(|holder| claimant.sees_gone(holder));
        // If waiting for the newest covers all, only the newest is kept: of those that hold alone, and of readers, for
        // which only the next writer has to wait.
        let gone = gone.into_iter().chain(debts.holders.iter().cloned());
        let (alike, gone): (Vec<_>, Vec<_>) =
            gone.partition(|holder| holds_alone(claimant.mode) || is_reader(&holder.contender));
        let mut holders = vec![claimant.own.clone()];
        holders.extend(gone);
        holders.extend(newest(alike));
        holders.extend(others);
        self.more_holders = self.more_holders.max(debts.more);
        self.name(holders);
        self
    }

    /// Whether this contender is recorded, or counted because the list is full.
    pub(crate) fn names(&self, own: &Holder) -> bool {
        let is_full = |holders: &[Holder]| holders.len() >= NAMED_HOLDERS && self.more_holders > 0;
        self.holders
            .as_ref()
            .is_some_and(|holders| holders.contains(own) || is_full(holders))
    }

    /// The same after the wait for `debts`.
    pub(crate) fn without(mut self, debts: &Debts) -> Self {
        let is_settled = |holder: &Holder| {
            debts
                .holders
                .iter()
                .any(|debt| debt.contender == holder.contender)
        };
        if let Some(holders) = &mut self.holders {
            holders.retain(|holder| !is_settled(holder));
        }
        // If the number differs, another holder was left out meanwhile.
        if self.more_holders == debts.more {
            self.more_holders = 0;
        }
        self
    }

    /// The same after a clean release of a recorded holder. The next holder takes over its `debts`.
    pub(crate) fn without_holder(mut self, contender: &str, mode: Mode, debts: &Debts) -> Self {
        let is_lost = self.holders.is_none();
        let mut holders = self.holders.take().unwrap_or_default();
        holders.retain(|holder| holder.contender != contender);
        let missing = debts.holders.iter().filter(|debt| {
            let is_it = |holder: &Holder| holder.contender == debt.contender;
            !holders.iter().any(is_it)
        });
        let missing: Vec<_> = missing.cloned().collect();
        holders.splice(0..0, missing);
        let others_are_lost = is_lost && !holds_alone(mode);
        self.more_holders = self.more_holders.max(debts.more).max(u32::from(others_are_lost));
        self.name(holders);
        self
    }

    fn name(&mut self, mut holders: Vec<Holder>) {
        let mut known = BTreeSet::new();
        holders.retain(|holder| known.insert(holder.contender.clone()));
        if holders.len() > NAMED_HOLDERS {
            holders.truncate(NAMED_HOLDERS);
            self.more_holders = self.more_holders.saturating_add(1);
        }
        self.holders = Some(holders);
    }

    /// Whether a contender that did not record itself released cleanly, or a later one released cleanly that cannot
    /// have held beside it.
    fn is_settled(&self, name: &str, claimant: &Claimant) -> bool {
        let is_alone = !matches!(claimant.mode, Mode::Semaphore(_));
        let later = |release: &CleanRelease| is_alone && excludes(&release.contender, name);
        self.released(name) || self.releases_below(claimant.root).any(later)
    }

    fn releases_below(&self, root: FencingToken) -> impl Iterator<Item = &CleanRelease> {
        self.last_release
            .iter()
            .filter(move |release| release.token > root)
    }

    /// For a control node in which no contender has recorded holders yet: whether each contender before this one is
    /// accounted for, by its number. Then none of them can have died.
    fn knows_all_before(&self, claimant: &Claimant) -> bool {
        let Some(own) = Contender::parse(&claimant.own.contender) else {
            return false;
        };
        let releases: Vec<_> = self
            .releases_below(claimant.root)
            .filter_map(|release| Contender::parse(&release.contender))
            .collect();
        let alone = releases
            .iter()
            .filter(|release| !matches!(claimant.mode, Mode::Semaphore(_)) && !release.is_reader);
        // A contender that held alone was first.
        let first = alone.map(|release| release.sequence + 1).max().unwrap_or(0);
        let seen = claimant
            .names_ahead()
            .chain(claimant.suspects.iter().map(String::as_str));
        let known: BTreeSet<i32> = seen
            .filter_map(Contender::parse)
            .chain(releases.iter().cloned())
            .map(|contender| contender.sequence)
            .filter(|number| (first..own.sequence).contains(number))
            .collect();
        i64::from(own.sequence) - i64::from(first) <= known.len() as i64
    }
}

/// The newest reader, and the newest of the others: a reader does not wait for the first.
fn newest(holders: Vec<Holder>) -> impl Iterator<Item = Holder> {
    let (readers, others): (Vec<_>, Vec<_>) = holders
        .into_iter()
        .partition(|holder| is_reader(&holder.contender));
    let newest = |holders: Vec<Holder>| holders.into_iter().max_by_key(|holder| holder.token);
    newest(others).into_iter().chain(newest(readers))
}

#[cfg(test)]
mod tests;
