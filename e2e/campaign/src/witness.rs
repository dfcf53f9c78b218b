//! When the leaders deleted the nodes of holders, one leader after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkeeper_judge::checker::{self, NodeLife, Report};
use lockkeeper_lock::Timing;
use lockkeeper_product::DeletionWatch;
use lockkeeper_testbed::Ensemble;

use crate::figures::Violations;
use crate::spares::{Spare, Spares};

/// Between two looks whether the leader still leads.
const PAUSE: Duration = Duration::from_millis(50);

/// The deletions by all successive leaders. It does not see deletions while there is no leader.
pub(crate) struct Witness<'a> {
    ensemble: &'a Ensemble,
    root: String,
    watch: Option<DeletionWatch>,
    lives: BTreeMap<i64, NodeLife>,
    /// The tokens of contenders that were released.
    released: BTreeSet<i64>,
}

impl<'a> Witness<'a> {
    /// Watches everything below `root`, a path above all locks and their control nodes.
    pub(crate) fn new(ensemble: &'a Ensemble, root: &str) -> Self {
        let mut witness = Self {
            ensemble,
            root: root.to_owned(),
            watch: None,
            lives: BTreeMap::new(),
            released: BTreeSet::new(),
        };
        witness.keep_up();
        witness
    }

    /// What `work` returns, while a thread keeps up with the leaders.
    pub(crate) fn during<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    self.keep_up();
                    std::thread::sleep(PAUSE);
                }
            });
            // Also when `work` panics: else this waits for the thread for ever.
            let _over = Over(&over);
            work()
        })
    }

    /// Takes what the present watch has seen, and begins another one if that leader leads no more.
    pub(crate) fn keep_up(&mut self) {
        if let Some(watch) = &self.watch {
            // Before the deletions are read: afterwards it could hide some of them.
            let is_interrupted = watch.interrupted().is_some();
            for life in watch.deletions() {
                if watch.was_released(life.token) {
                    self.released.insert(life.token);
                }
                self.lives.insert(life.token, life);
            }
            if is_interrupted {
                self.watch = None;
            }
        }
        if self.watch.is_none() {
            // Without a leader, the next call tries again.
            self.watch = DeletionWatch::begin(self.ensemble, &self.root).ok();
        }
    }

    /// The times between the last instructions and the deletions, with their tokens.
    fn spares(&self, report: &Report, pauses: bool) -> Vec<(i64, Spare)> {
        // An application that went on after a pause records its first token, whose node is long gone.
        let first_holds = Report {
            holds: report
                .holds
                .iter()
                .filter(|hold| !(pauses && hold.resumed))
                .cloned()
                .collect(),
            ..Report::default()
        };
        let lives: Vec<_> = self.lives.values().cloned().collect();
        let spare = |spare: checker::Spare| {
            let seconds = match (spare.spare, spare.late) {
                (Some(spare), _) => spare.as_secs_f64(),
                (None, late) => -late?.as_secs_f64(),
            };
            let is_released = self.released.contains(&spare.token);
            Some((spare.token, Spare { seconds, is_released }))
        };
        first_holds.spares(&lives).into_iter().filter_map(spare).collect()
    }
}

impl Witness<'_> {
    /// Adds the spares of a round's holders, and records those that are too short. Returns how many are. `pauses`: an
    /// application that is stopped may go on later, and record under the token of its first hold.
    pub(crate) fn judge(
        &self,
        report: &Report,
        (round, pauses): (u32, bool),
        timing: &Timing,
        spares: &mut Spares,
        violations: &mut Violations,
    ) -> usize {
        let mut late = 0;
        for (token, spare) in self.spares(report, pauses) {
            let who = format!("round {round}: the holder of token {token}");
            late += usize::from(!spare.judge(&who, timing, violations));
            spares.add(spare, timing);
        }
        late
    }
}

/// Says at its end that something is over.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
