//! The holds of a lock that the page has seen, and when it has not seen the lock. Pure.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use lockkeeper_daemon::duration;
use serde::Serialize;

use super::super::entry::{Entry, shown};

/// Most holds that are over and are remembered of a lock, as in the status of a `DistributedLock`.
const MOST_HOLDS: usize = 32;

/// Most times without sight that are told apart.
const MOST_UNSEEN: usize = 8;

/// A hold that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hold {
    pub(super) pod: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fencing_token: Option<i64>,
    /// RFC 3339, as are all times here, by the clock of this machine unless a hold is older than the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    until: String,
    ended: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    taken_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    silence: Option<String>,
}

/// A time in which the page did not see the lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Unseen {
    from: String,
    /// Nothing: it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
}

/// When contenders were told to have come and gone, since the queue was read last.
#[derive(Debug, Default)]
pub(super) struct Moments {
    /// When the nodes of holders were deleted.
    pub(super) gone: HashMap<String, SystemTime>,
    /// When contenders wrote first after that: who gets the lock says so at once.
    pub(super) said: HashMap<String, SystemTime>,
}

/// What is remembered of a lock.
#[derive(Debug, Default)]
pub(super) struct Past {
    present: Vec<Present>,
    /// The newest first.
    holds: VecDeque<Hold>,
    /// The oldest first. It lasts only for the last one.
    unseen: VecDeque<Unseen>,
    is_begun: bool,
}

#[derive(Debug)]
struct Present {
    entry: Entry,
    since: Option<SystemTime>,
}

impl Past {
    /// These hold now, as the queue says that was read just now.
    pub(super) fn see(&mut self, holding: &[&Entry], moments: &Moments, now: SystemTime) {
        let lost = self.resume(now);
        let is_there = |present: &Present| holding.iter().any(|one| one.contender == present.entry.contender);
        let (stay, left): (Vec<_>, Vec<_>) = self.present.drain(..).partition(is_there);
        self.present = stay;
        for one in left {
            let name = &one.entry.contender;
            let until = lost
                .clone()
                .unwrap_or_else(|| time(moments.gone.get(name).copied().unwrap_or(now)));
            let next = holding.iter().find(|next| {
                next.took_over
                    .as_ref()
                    .is_some_and(|from| from.contender == *name)
            });
            let took = next.and_then(|next| next.took_over.as_ref());
            self.holds.push_front(Hold {
                pod: shown(&one.entry.who()),
                node: one.entry.node(),
                fencing_token: one.entry.fencing_token,
                since: one.since.map(time),
                until,
                ended: match (next, &lost) {
                    (Some(_), _) => "taken over",
                    (None, Some(_)) => "not seen",
                    (None, None) => "left the queue",
                },
                taken_by: next.map(|next| shown(&next.who())),
                silence: took.map(|from| duration::format(Duration::from_millis(from.silent_millis))),
            });
        }
        self.holds.truncate(MOST_HOLDS);
        let is_seen = self.is_begun && lost.is_none();
        self.is_begun = true;
        for one in holding {
            // What it says about itself may be new.
            if let Some(present) = self
                .present
                .iter_mut()
                .find(|present| present.entry.contender == one.contender)
            {
                present.entry = (*one).clone();
                continue;
            }
            let since = match is_seen {
                true => Some(moments.said.get(&one.contender).copied().unwrap_or(now)),
                false => one.began().filter(|since| *since <= now),
            };
            self.present.push(Present {
                entry: (*one).clone(),
                since,
            });
        }
    }

    /// From now on the lock is not seen.
    pub(super) fn lose(&mut self, now: SystemTime) {
        if self.unseen.back().is_some_and(|last| last.until.is_none()) {
            return;
        }
        self.unseen.push_back(Unseen {
            from: time(now),
            until: None,
        });
        if self.unseen.len() > MOST_UNSEEN {
            // Nothing is claimed of the time between the two oldest.
            if let Some(oldest) = self.unseen.pop_front() {
                self.unseen[0].from = oldest.from;
            }
        }
    }

    /// The lock is seen again. Returns since when it was not, if that was so.
    fn resume(&mut self, now: SystemTime) -> Option<String> {
        let last = self.unseen.back_mut().filter(|last| last.until.is_none())?;
        last.until = Some(time(now));
        Some(last.from.clone())
    }

    /// Since when a contender holds, as far as that is known.
    pub(super) fn since(&self, contender: &str) -> Option<String> {
        let present = self.present.iter().find(|one| one.entry.contender == contender)?;
        present.since.map(time)
    }

    pub(super) fn holds(&self) -> &VecDeque<Hold> {
        &self.holds
    }

    pub(super) fn unseen(&self) -> &VecDeque<Unseen> {
        &self.unseen
    }
}

fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

#[cfg(test)]
mod tests;
