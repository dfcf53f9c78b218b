//! The record of what truly runs, in true time, and the invariants, which it checks at each start.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use lockkeeper_fake::{Happened, Record};
use lockkeeper_lock::FencingToken;

/// One tree of processes, from its first instruction to its last.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) pod: usize,
    pub(crate) token: FencingToken,
    pub(crate) start: Duration,
    pub(crate) end: Duration,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.start.as_secs_f64();
        write!(f, "pod {} under {} from {start:.3} s", self.pod, self.token)?;
        match self.end {
            Duration::MAX => Ok(()),
            end => write!(f, " to {:.3} s", end.as_secs_f64()),
        }
    }
}

/// All trees that ran or run. A tree does not run while all its processes are stopped.
#[derive(Default)]
pub(crate) struct Ledger {
    running: BTreeMap<u64, Work>,
    done: Vec<Work>,
    newest: Option<(FencingToken, usize)>,
    violation: Option<String>,
    /// How many may run at once, by the settings of each pod.
    limits: Vec<usize>,
}

impl Ledger {
    pub(crate) fn new(limits: Vec<usize>) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// The first violation.
    pub(crate) fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    pub(crate) fn violated(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Records that a tree begins to run, or goes on.
    pub(crate) fn begins(&mut self, tree: u64, pod: usize, token: FencingToken, now: Duration) {
        let work = Work {
            pod,
            token,
            start: now,
            end: Duration::MAX,
        };
        let pods = self.running.values().map(|other| other.pod).chain([pod]);
        // If they disagree, the strictest limit counts.
        let limit = pods.map(|pod| self.limits[pod]).min().unwrap_or(1);
        if self.running.len() >= limit {
            let others: Vec<_> = self.running.values().map(Work::to_string).collect();
            self.violated(format!("OVERLAP: {work}, while {} ran", others.join(" and ")));
        }
        if limit == 1 {
            match self.newest {
                Some((newest, owner)) if token < newest || (token == newest && owner != pod) => {
                    self.violated(format!("TOKEN: {work}, after token {newest} of pod {owner}"));
                }
                _ => self.newest = Some((token, pod)),
            }
        }
        self.running.insert(tree, work);
    }

    /// Records that no process of a tree runs any more.
    pub(crate) fn ends(&mut self, tree: u64, now: Duration) {
        if let Some(mut work) = self.running.remove(&tree) {
            work.end = now;
            self.done.push(work);
        }
    }

    pub(crate) fn is_running(&self, tree: u64) -> bool {
        self.running.contains_key(&tree)
    }

    /// How many trees began to run.
    pub(crate) fn starts(&self) -> usize {
        self.done.len() + self.running.len()
    }

    /// Whether a process of a pod runs, or has run since `moment`.
    pub(crate) fn ran_since(&self, pod: usize, moment: Duration) -> bool {
        let of = |work: &&Work| work.pod == pod;
        self.running.values().any(|work| of(&work))
            || self.done.iter().filter(of).any(|work| work.end > moment)
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Work> {
        self.running.values()
    }

    /// Compares with the ensemble: nothing may run under a token whose contender is gone.
    pub(crate) fn compare(&mut self, records: &[Record]) {
        let mut created = BTreeMap::new();
        let mut deleted = BTreeMap::new();
        for record in records {
            match &record.happened {
                Happened::Created { path, zxid, .. } => {
                    created.insert(*zxid, path.as_str());
                }
                Happened::Deleted { path } => {
                    deleted.insert(path.as_str(), record.at);
                }
                _ => {}
            }
        }
        let outlived = self.done.iter().find_map(|work| {
            let path = created.get(&work.token.0);
            let gone = path.and_then(|path| deleted.get(path));
            match (path, gone) {
                (None, _) => Some(format!("FORGED: {work}, for which no contender was created")),
                (_, Some(gone)) if *gone < work.end => Some(format!(
                    "OUTLIVED: {work}, whose contender was deleted at {:.3} s",
                    gone.as_secs_f64()
                )),
                _ => None,
            }
        });
        if let Some(outlived) = outlived {
            self.violated(outlived);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FencingToken = FencingToken(1);
    const B: FencingToken = FencingToken(2);
    const NOW: Duration = Duration::ZERO;

    #[test]
    fn two_at_once_are_seen_and_one_after_the_other_are_not() {
        let mut ledger = Ledger::new(vec![1, 1]);
        ledger.begins(0, 0, A, NOW);
        ledger.ends(0, NOW);
        ledger.begins(1, 1, B, NOW);
        assert_eq!(ledger.violation(), None);
        ledger.begins(2, 0, FencingToken(3), NOW);
        assert!(ledger.violation().unwrap().starts_with("OVERLAP"));
    }

    #[test]
    fn a_token_that_goes_back_is_seen() {
        let mut ledger = Ledger::new(vec![1, 1]);
        ledger.begins(0, 0, B, NOW);
        ledger.ends(0, NOW);
        ledger.begins(1, 1, A, NOW);
        assert!(ledger.violation().unwrap().starts_with("TOKEN"));
    }

    #[test]
    fn who_wants_to_be_alone_is_not_beside_who_would_share() {
        let mut ledger = Ledger::new(vec![1, 2, 2]);
        ledger.begins(1, 1, A, NOW);
        ledger.begins(2, 2, B, NOW);
        assert_eq!(ledger.violation(), None);
        ledger.ends(1, NOW);
        ledger.begins(0, 0, FencingToken(3), NOW);
        assert!(ledger.violation().unwrap().starts_with("OVERLAP"));
    }

    #[test]
    fn what_runs_on_after_its_contender_is_gone_is_seen() {
        let mut ledger = Ledger::new(vec![1]);
        ledger.begins(0, 0, A, NOW);
        ledger.ends(0, Duration::from_secs(3));
        let record = |seconds, happened| Record {
            at: Duration::from_secs(seconds),
            happened,
        };
        let path = || "/l/a".to_owned();
        ledger.compare(&[
            record(
                0,
                Happened::Created {
                    path: path(),
                    session: 1,
                    zxid: 1,
                },
            ),
            record(2, Happened::Deleted { path: path() }),
        ]);
        assert!(ledger.violation().unwrap().starts_with("OUTLIVED"));
    }
}
