//! The overlap checker: it finds moments at which two holders ran.
//!
//! All processes with one token are one [`Hold`], from its first stamp to its last. The last stamp of a
//! killed program is at most one period before its end. So look at two holds that are closer together than
//! one period; see [`Report::least_gap`].
//!
//! The checker does not depend on the lock's implementation: it reads only the records of the programs.

use std::collections::BTreeMap;
use std::time::Duration;

use lockkeeper_lock::BootInstant;

use crate::record::{Access, Moment, Record};

mod report;

pub use report::table;

/// Which holders may hold at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    Exclusive,
    AtMost(usize),
    /// One writer, or any number of readers.
    ReadWrite,
}

/// The programs that ran under one grant of the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub token: i64,
    /// The name of the first program.
    pub name: String,
    pub access: Access,
    /// The first stamp of any of its processes.
    pub begin: BootInstant,
    /// The last stamp of any of its processes: it ran until then, and at most a period longer.
    pub end: BootInstant,
    /// Its processes, in the order of their ids.
    pub pids: Vec<u32>,
    /// True when the programs had held with the same token before, and were silent for long since then.
    pub resumed: bool,
    /// True when every process recorded its own end; false if one was killed.
    pub ended: bool,
}

/// A violation of a promise. The numbers are places in [`Report::holds`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// These ran at the same moment: two that exclude each other, or one more than allowed.
    Overlap {
        /// The holds, in the order of their begin.
        holds: Vec<usize>,
        /// The first moment of the overlap.
        from: BootInstant,
        lasted: Duration,
    },
    /// The later one has a lower token, so that a resource that checks tokens refuses the right one.
    TokenOrder {
        /// The one that began first.
        earlier: usize,
        /// The one that began later, with a lower token.
        later: usize,
    },
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// All holds, in the order of their begin.
    pub holds: Vec<Hold>,
    /// All violations, in the order of time.
    pub violations: Vec<Violation>,
    /// How long the lock was free before each hold that followed such a gap, as (place in `holds`, time).
    pub gaps: Vec<(usize, Duration)>,
}

/// The life of one child of a lock root, as the leader saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLife {
    /// The child's name, without the path.
    pub name: String,
    /// The transaction that made it: the fencing token.
    pub token: i64,
    /// When its creation was seen; `None` if it existed before the watch.
    pub created: Option<BootInstant>,
    /// When its deletion was seen; `None` while it exists. This is later than the deletion itself by one
    /// notification on this machine, well below a millisecond when it is not busy.
    pub deleted: Option<BootInstant>,
}

/// The time between the last stamp of a hold and the deletion of its node at the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spare {
    /// The token of both.
    pub token: i64,
    /// Time from the last stamp to the deletion; `None` when the node was deleted first.
    pub spare: Option<Duration>,
    /// Time from the deletion to the last stamp; `None` when the program ended first.
    pub late: Option<Duration>,
}

impl Report {
    /// True without violations.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// The shortest time for which the lock was free between two holds.
    pub(crate) fn least_gap(&self) -> Option<Duration> {
        self.gaps.iter().map(|&(_, gap)| gap).min()
    }

    /// Compares each hold with the life of its node at the leader. Holds whose node was not seen or
    /// still exists are left out.
    pub fn spares(&self, lives: &[NodeLife]) -> Vec<Spare> {
        let deleted: BTreeMap<i64, BootInstant> = lives
            .iter()
            .filter_map(|life| Some((life.token, life.deleted?)))
            .collect();
        self.holds
            .iter()
            .filter_map(|hold| {
                let deleted = *deleted.get(&hold.token)?;
                let late = deleted < hold.end;
                Some(Spare {
                    token: hold.token,
                    spare: (!late).then(|| deleted - hold.end),
                    late: late.then(|| hold.end - deleted),
                })
            })
            .collect()
    }
}

/// Checks the records of all programs, in any order.
pub fn check(records: &[Record], rule: Rule) -> Report {
    check_with_pauses(records, rule, Duration::MAX)
}

/// The same for programs that are paused and go on later (`--on-loss pause`): if a token has no stamp for
/// longer than `silence`, its programs did not run meanwhile. Make `silence` many times the period of the
/// programs' lines, or it hides overlaps.
///
/// A program keeps its first token in its environment when it goes on under a later one, so that
/// only the beginning of its first hold counts for the order of tokens.
pub fn check_with_pauses(records: &[Record], rule: Rule, silence: Duration) -> Report {
    let holds = holds(records, silence);
    let mut violations = overlaps(&holds, rule);
    violations.extend(token_disorder(&holds, rule));
    violations.sort_by_key(|violation| match violation {
        Violation::Overlap { from, .. } => *from,
        Violation::TokenOrder { later, .. } => holds[*later].begin,
    });
    Report {
        gaps: gaps(&holds),
        holds,
        violations,
    }
}

fn holds(records: &[Record], silence: Duration) -> Vec<Hold> {
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_by_key(|record| record.at);
    let mut by_token: BTreeMap<i64, Hold> = BTreeMap::new();
    let mut paused: Vec<Hold> = Vec::new();
    // The processes that have begun and not recorded their end.
    let mut open: BTreeMap<(i64, u32), bool> = BTreeMap::new();
    for record in sorted {
        let hold = by_token.entry(record.token).or_insert_with(|| Hold {
            token: record.token,
            name: String::new(),
            access: Access::Write,
            begin: record.at,
            end: record.at,
            pids: Vec::new(),
            resumed: false,
            ended: false,
        });
        if record.at - hold.end > silence {
            let resumed = Hold {
                begin: record.at,
                pids: Vec::new(),
                resumed: true,
                ..hold.clone()
            };
            paused.push(std::mem::replace(hold, resumed));
        }
        hold.end = record.at;
        if let Err(place) = hold.pids.binary_search(&record.pid) {
            hold.pids.insert(place, record.pid);
        }
        if let Moment::Begin { name, access } = &record.moment
            && hold.name.is_empty()
        {
            hold.name.clone_from(name);
            hold.access = *access;
        }
        open.insert((record.token, record.pid), record.moment != Moment::End);
    }
    for hold in by_token.values_mut() {
        hold.ended = hold.pids.iter().all(|&pid| !open[&(hold.token, pid)]);
        if hold.name.is_empty() {
            hold.name.push('?');
        }
    }
    let mut holds: Vec<Hold> = by_token.into_values().chain(paused).collect();
    holds.sort_by_key(|hold| (hold.begin, hold.token));
    holds
}

/// Sweeps over the begins. Two stamps at the same nanosecond are of the same moment: an overlap.
fn overlaps(holds: &[Hold], rule: Rule) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut running: Vec<usize> = Vec::new();
    for (index, hold) in holds.iter().enumerate() {
        running.retain(|&other| holds[other].end >= hold.begin);
        let groups: Vec<Vec<usize>> = match rule {
            Rule::AtMost(limit) if running.len() >= limit => vec![running.clone()],
            Rule::AtMost(_) => Vec::new(),
            Rule::Exclusive | Rule::ReadWrite => running
                .iter()
                .filter(|&&other| excludes(&holds[other], hold, rule))
                .map(|&other| vec![other])
                .collect(),
        };
        for mut group in groups {
            let end = match rule {
                // The overlap lasts until enough of them have ended.
                Rule::AtMost(limit) => {
                    let mut ends: Vec<_> = group.iter().map(|&other| holds[other].end).collect();
                    ends.sort();
                    ends[group.len() - limit].min(hold.end)
                }
                Rule::Exclusive | Rule::ReadWrite => holds[group[0]].end.min(hold.end),
            };
            group.push(index);
            found.push(Violation::Overlap {
                holds: group,
                from: hold.begin,
                lasted: end - hold.begin,
            });
        }
        running.push(index);
    }
    found
}

/// Only holds that exclude each other have to begin in the order of their tokens: of two that may run
/// together, the one that was granted later may start sooner.
fn token_disorder(holds: &[Hold], rule: Rule) -> Vec<Violation> {
    let mut found = Vec::new();
    for (later, hold) in holds.iter().enumerate().filter(|(_, hold)| !hold.resumed) {
        let earlier = (0..later)
            .filter(|&other| excludes(&holds[other], hold, rule))
            .filter(|&other| holds[other].token > hold.token)
            .max_by_key(|&other| holds[other].token);
        found.extend(earlier.map(|earlier| Violation::TokenOrder { earlier, later }));
    }
    found
}

fn excludes(a: &Hold, b: &Hold, rule: Rule) -> bool {
    match rule {
        Rule::Exclusive => true,
        Rule::AtMost(_) => false,
        Rule::ReadWrite => a.access == Access::Write || b.access == Access::Write,
    }
}

fn gaps(holds: &[Hold]) -> Vec<(usize, Duration)> {
    let mut gaps = Vec::new();
    let mut held_until: Option<BootInstant> = None;
    for (index, hold) in holds.iter().enumerate() {
        if let Some(until) = held_until.filter(|&until| until < hold.begin) {
            gaps.push((index, hold.begin - until));
        }
        held_until = held_until.max(Some(hold.end));
    }
    gaps
}

#[cfg(test)]
mod tests;
