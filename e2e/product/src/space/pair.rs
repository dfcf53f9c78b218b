//! Two pods behind one lock, one on each node: the start of most tests.

use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::process::wait_for;
use serde_json::Value;

use super::{BOUND, Space};
use crate::DeletionWatch;

/// Two pods, of which one runs.
pub struct Pair {
    pub token: i64,
    pub holder: String,
    pub deletions: DeletionWatch,
    /// How many had begun, this one included: on a busy machine the lock may have moved while the second pod was starting.
    begins: usize,
}

impl Space {
    /// Creates a Deployment of two pods, one on each node, behind the lock `report` with these settings.
    /// Returns when one pod runs and the other one waits.
    pub fn pair(&self, lock: &Value, recorder: &[&str]) -> Pair {
        let pod = self.pod(&[self.recording(recorder)]);
        self.apply(&[
            self.lock("report", lock),
            self.workload("Deployment", "report", Some(2), pod),
        ]);
        self.started()
    }

    /// Waits until one of two pods behind the lock `report` runs, and the other one waits.
    pub fn started(&self) -> Pair {
        let path = format!("/lockkeeper/locks/{}/report", self.name);
        self.kubectl(&["wait", "--for=condition=Ready", "dlock/report", "--timeout=180s"])
            .unwrap_or_else(|error| panic!("{error:#}"));
        let deletions = DeletionWatch::begin(self.installation.ensemble(), &path).unwrap();
        let (token, holder) = self.wait_until_settled(1);
        Pair {
            begins: self.begins().len(),
            token,
            holder,
            deletions,
        }
    }

    /// Waits until the pod that holds the lock `report` has begun under the newest token, and so many wait. Returns its token
    /// and name.
    pub fn wait_until_settled(&self, waiting: usize) -> (i64, String) {
        let shown = "--output=jsonpath={.status.waiting} {.status.holders[*].pod}";
        let wanted = format!("{waiting} ");
        let settled = || {
            // It may fail on a busy machine.
            let shown = self.kubectl(&["get", "distributedlock", "report", shown]).ok()?;
            let holder = shown.strip_prefix(&wanted)?;
            let begins = self.begins();
            // Children of an application begin under names of their own.
            let (token, _) = begins.iter().rfind(|(_, name)| name == holder)?;
            let is_newest = begins.iter().all(|(other, _)| other <= token);
            is_newest.then(|| (*token, holder.to_owned()))
        };
        wait_for(BOUND, settled).unwrap_or_else(|| panic!("nobody runs\n{}", self.story()))
    }

    /// The runs that have begun after that of `pair`.
    pub fn begins_after(&self, pair: &Pair) -> Vec<(i64, String)> {
        self.begins().split_off(pair.begins)
    }

    /// Ends one application that runs [`UNTIL_TOLD`](super::UNTIL_TOLD).
    pub fn end_application(&self) {
        std::fs::write(self.records_directory().join("end"), "").unwrap_or_else(|error| panic!("{error}"));
    }

    /// [`Self::assert_handed_over`], to the other pod. Returns its token and name.
    pub fn assert_other_runs(&self, pair: &Pair) -> (i64, String) {
        let (token, next) = self.assert_handed_over(pair);
        assert_ne!(next, pair.holder);
        (token, next)
    }

    /// Asserts that a pod runs after the holder of `pair`, that no two ran at the same time, and that each
    /// stopped one was gone before the leader deleted its node. Returns token and name of the pod that runs
    /// now.
    pub fn assert_handed_over(&self, pair: &Pair) -> (i64, String) {
        let (token, next, _) = self.wait_until_it_runs(pair.token);
        let deleted = pair.deletions.wait_for_deletion(pair.token, BOUND);
        assert!(deleted.is_some(), "{}", self.story());
        let report = self.assert_exclusive();
        if pair.deletions.interrupted().is_none() {
            for spare in report.spares(&pair.deletions.lives()) {
                assert_eq!(spare.late, None, "{spare:?}");
            }
        }
        (token, next)
    }

    /// Deletes the pod that runs under a token. Asserts that another one runs then, and that no two ran at
    /// the same time. Returns its name.
    pub fn assert_replaced(&self, token: i64, holder: &str) -> String {
        self.kubectl(&["delete", "pod", holder, "--wait=false"])
            .unwrap_or_else(|error| panic!("{error:#}"));
        let others = || {
            let (newest, next) = self.begins().pop()?;
            (newest > token && next != holder).then_some(next)
        };
        let next = wait_for(BOUND, others).unwrap_or_else(|| panic!("no other one runs\n{}", self.story()));
        self.assert_exclusive();
        next
    }

    /// Asserts that the holder of `pair` still runs.
    pub fn assert_undisturbed(&self, pair: &Pair) {
        let since = BootInstant::now();
        let runs = || {
            let records = self.records();
            let last = records.iter().max_by_key(|record| record.at)?;
            (last.at > since).then_some(last.token)
        };
        let token = wait_for(BOUND, runs).unwrap_or_else(|| panic!("nobody runs\n{}", self.story()));
        assert_eq!(token, pair.token, "{}", self.story());
        assert_eq!(self.begins_after(pair), []);
    }
}
