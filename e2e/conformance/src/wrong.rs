//! Traces that are spoilt by one mistake each: the specification has to reject them.

use std::fmt;
use std::time::Duration;

use crate::times;
use crate::trace::{Event, Kind, Trace};

/// What the task would have done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A contender takes over after half of its wait.
    TooEarly,
    /// A contender takes over although it is not the next one.
    NotNext,
    /// A takeover succeeds although it names an old version.
    OldVersion,
    /// A renewal is acknowledged after its node was deleted at its version.
    RenewedAfterwards,
    /// An application runs for longer than its renewals allow.
    TooLong,
    /// A grant rests on a renewal that was not acknowledged.
    Unacknowledged,
    /// A contender holds before the one in front is gone.
    HoldsTooSoon,
    /// The deletion is sent before the application has stopped.
    ReleasedFirst,
}

impl Mistake {
    pub const ALL: [Self; 8] = [
        Self::TooEarly,
        Self::NotNext,
        Self::OldVersion,
        Self::RenewedAfterwards,
        Self::TooLong,
        Self::Unacknowledged,
        Self::HoldsTooSoon,
        Self::ReleasedFirst,
    ];
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooEarly => "a takeover after half of the wait",
            Self::NotNext => "a takeover by one that is not the next",
            Self::OldVersion => "a takeover on the condition of an old version",
            Self::RenewedAfterwards => "a renewal of a node that is deleted",
            Self::TooLong => "an application that runs beyond its deadline",
            Self::Unacknowledged => "a hold that rests on a renewal without an answer",
            Self::HoldsTooSoon => "a hold beside the one in front",
            Self::ReleasedFirst => "a release before the application has stopped",
        })
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// The trace with one mistake; `None` if it has no place for it.
pub fn spoil(trace: &Trace, mistake: Mistake) -> Option<Trace> {
    let mut spoilt = trace.clone();
    let events = &mut spoilt.events;
    match mistake {
        Mistake::TooEarly => {
            let (taking, acked, read) = takeover(trace)?;
            let earlier = trace.events[read].at + u64::try_from(micros(times::wait() / 2)).ok()?;
            events[acked].number = earlier.cast_signed();
            let mut taking = events.remove(taking);
            taking.at = earlier;
            insert(events, taking);
        }
        Mistake::NotNext => {
            let (taking, acked, _) = takeover(trace)?;
            let taking_event = trace.events[taking];
            // One that is in the queue behind it, and was not told that it is next.
            let behind = taking_event.who + 1;
            let is_there = |event: &Event| event.who == behind && event.kind == Kind::Acked;
            if !trace.events[..taking].iter().any(is_there) {
                return None;
            }
            let has_left = |event: &Event| event.kind == Kind::Gone && event.whom == behind;
            if trace.events.iter().any(has_left) {
                return None;
            }
            events[taking].who = behind;
            events[acked].who = behind;
        }
        Mistake::OldVersion => {
            let (taking, ..) = takeover(trace)?;
            events[taking].number -= 1;
        }
        Mistake::RenewedAfterwards => {
            let (taking, acked, _) = takeover(trace)?;
            let (whom, at) = (trace.events[taking].whom, trace.events[acked].at);
            if trace.events[..acked]
                .iter()
                .any(|event| event.who == whom && event.kind == Kind::Releasing)
            {
                return None;
            }
            let event = |at: u64, kind, number| Event {
                at,
                kind,
                who: whom,
                whom: 0,
                number,
            };
            events.insert(acked + 1, event(at, Kind::Sent, 0));
            events.insert(acked + 2, event(at, Kind::Acked, at.cast_signed()));
        }
        Mistake::TooLong => {
            let longest = events.iter_mut().filter(|event| event.kind == Kind::Granted);
            longest.last()?.number += micros(times::LEASE);
        }
        Mistake::Unacknowledged => {
            let granted = events.iter().rposition(|event| event.kind == Kind::Granted)?;
            let (who, until) = (events[granted].who, events[granted].number);
            let sent = until - micros(times::until_the_deadline());
            // That of the newest renewal, if the lease of the one before is clearly shorter.
            let is_it = |event: &Event| event.who == who && event.kind == Kind::Acked;
            let newest = events[..granted].iter().rposition(is_it)?;
            if events[newest].number > sent + 1_000 {
                return None;
            }
            let older = events[..newest]
                .iter()
                .filter(|event| is_it(event))
                .map(|event| event.number)
                .max();
            if older.is_some_and(|older| older + micros(times::LEASE / 20) > events[newest].number) {
                return None;
            }
            events.remove(newest);
        }
        Mistake::HoldsTooSoon => {
            let granted = events.iter().position(|event| event.kind == Kind::Granted)?;
            let holder = events[granted];
            let heir = |event: &Event| event.who > holder.who && event.kind == Kind::Acked;
            let gone = |event: &Event| event.kind == Kind::Gone && event.whom == holder.who;
            let end = events.iter().position(gone).unwrap_or(events.len());
            let acked = events[..end].iter().position(heir)?;
            let Event { at, who, .. } = events[acked];
            let number = at.cast_signed() + micros(times::LEASE / 10);
            let event = Event {
                at,
                kind: Kind::Granted,
                who,
                whom: 0,
                number,
            };
            let still_runs = events[..acked].iter().rev().find(|event| {
                event.who == holder.who && matches!(event.kind, Kind::Granted | Kind::Stopped)
            })?;
            if still_runs.kind == Kind::Stopped || still_runs.number < number {
                return None;
            }
            events.insert(acked + 1, event);
        }
        Mistake::ReleasedFirst => {
            let releasing = events.iter().position(|event| event.kind == Kind::Releasing)?;
            let who = events[releasing].who;
            let stopped = events[..releasing].iter().rposition(|event| event.who == who)?;
            if events[stopped].kind != Kind::Stopped {
                return None;
            }
            let granted = events[..stopped]
                .iter()
                .rfind(|event| event.who == who && event.kind == Kind::Granted)?;
            if granted.number <= events[releasing].at.cast_signed() {
                return None;
            }
            let mut stopped = events.remove(stopped);
            stopped.at = events[releasing - 1].at;
            events.insert(releasing, stopped);
        }
    }
    Some(spoilt)
}

/// An acknowledged takeover: its sending, its answer, and the answer from which it had waited.
fn takeover(trace: &Trace) -> Option<(usize, usize, usize)> {
    let acknowledged = |(index, event)| Some((trace.takeover_of(event)?, index));
    let (taking, acked) = trace.events.iter().enumerate().find_map(acknowledged)?;
    let Event {
        who, whom, number, ..
    } = trace.events[taking];
    let is_it = |event: &Event| {
        event.kind == Kind::Read && (event.who, event.whom, event.number) == (who, whom, number)
    };
    let read = trace.events[..taking].iter().position(is_it)?;
    Some((taking, acked, read))
}

/// Puts an event where its moment belongs.
fn insert(events: &mut Vec<Event>, event: Event) {
    let place = events.partition_point(|other| other.at <= event.at);
    events.insert(place, event);
}
