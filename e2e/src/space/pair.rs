//! Two pods behind one lock, one on each node: what most tests begin with.

use lockkeeper_lock::BootInstant;
use serde_json::Value;

use super::{BOUND, Space};
use crate::ensemble::DeletionWatch;
use crate::process::wait_for;

/// Two pods, of which one runs.
pub struct Pair {
    /// Under this token.
    pub token: i64,
    /// The pod that runs.
    pub holder: String,
    /// What the leader deletes.
    pub deletions: DeletionWatch,
}

impl Space {
    /// A Deployment of two pods, one on each node, behind the lock `report` with these settings; what
    /// is there when one runs and the other one waits.
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
        let deletions = self.installation.ensemble().watch_deletions(&path).unwrap();
        self.wait_until_waiting("report", 1);
        let (token, holder, _) = self.wait_until_it_runs(0);
        Pair {
            token,
            holder,
            deletions,
        }
    }

    /// [`Self::assert_handed_over`], to the other pod. Tells who that is.
    pub fn assert_other_runs(&self, pair: &Pair) -> (i64, String) {
        let (token, next) = self.assert_handed_over(pair);
        assert_ne!(next, pair.holder);
        (token, next)
    }

    /// Somebody runs after the holder of `pair`; it and all others ran alone, and whoever was stopped
    /// was gone before the leader deleted its node. Tells who runs now.
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

    /// Deletes the pod that runs under a token; another one runs then, and nobody ran beside it. Tells who.
    pub fn assert_replaced(&self, token: i64, holder: &str) -> String {
        self.kubectl(&["delete", "pod", holder, "--wait=false"])
            .unwrap_or_else(|error| panic!("{error:#}"));
        let (_, next, _) = self.wait_until_it_runs(token);
        assert_ne!(next, holder);
        self.assert_exclusive();
        next
    }

    /// The holder of `pair` still runs, now.
    pub fn assert_undisturbed(&self, pair: &Pair) {
        let since = BootInstant::now();
        let runs = || {
            let records = self.records();
            let last = records.iter().max_by_key(|record| record.at)?;
            (last.at > since).then_some(last.token)
        };
        let token = wait_for(BOUND, runs).unwrap_or_else(|| panic!("nobody runs\n{}", self.story()));
        assert_eq!(token, pair.token, "{}", self.story());
        assert_eq!(self.begins(), [(pair.token, pair.holder.clone())]);
    }
}
