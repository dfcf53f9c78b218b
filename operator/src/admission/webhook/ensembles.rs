//! Which ensemble a pod is made for. Its sidecar queues in no other one.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_crds::DistributedLock;
use tokio::time::Instant;
use uuid::Uuid;

use crate::admission::inject::Refusal;
use crate::problem::Problem;
use crate::zookeeper::ensemble::Ensemble;
use crate::zookeeper::foreign::{OtherEnsembles, Source};

/// A lock that names an ensemble of its own may have been made a moment ago.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two looks meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// Knows the ensembles that this replica reaches.
pub trait Reached: Send + Sync {
    /// Whether the operator may talk to the ensemble of a lock.
    ///
    /// # Errors
    /// Why not, in one sentence.
    fn permit(&self, lock: Option<&DistributedLock>) -> Result<(), Problem>;

    /// The ID of the ensemble of a lock, or of one that does not exist; `None` while it is not known.
    fn id(&self, lock: Option<&DistributedLock>) -> Option<Uuid>;
}

/// The operator's own ensemble, and those that locks name.
pub(crate) struct Ensembles {
    pub(crate) own: Arc<Ensemble>,
    pub(crate) others: Arc<OtherEnsembles>,
}

impl Reached for Ensembles {
    fn permit(&self, lock: Option<&DistributedLock>) -> Result<(), Problem> {
        match lock.map(|lock| Source::of(lock, &self.own.connect)) {
            Some(Ok(Some(source))) => self.others.permit(&source),
            // What is wrong with the setting is said elsewhere.
            None | Some(Ok(None) | Err(_)) => Ok(()),
        }
    }

    fn id(&self, lock: Option<&DistributedLock>) -> Option<Uuid> {
        let source = lock.map_or(Ok(None), |lock| Source::of(lock, &self.own.connect));
        match source.ok()? {
            None => self.own.view.id(),
            Some(source) => self.others.id(&source),
        }
    }
}

/// The ID of the ensemble that a pod of this lock is made for. `may_name` says whether the caller may learn the names
/// of pods that are in the status.
///
/// # Errors
/// When the operator may not talk to it, when it is not known, and when the operator reaches another one than the lock
/// is in.
pub(crate) async fn id_for(
    reached: &dyn Reached,
    name: &str,
    lock: Option<&DistributedLock>,
    may_name: bool,
) -> Result<String, Refusal> {
    reached
        .permit(lock)
        .map_err(|problem| Refusal::EnsembleNotAllowed {
            lock: name.to_owned(),
            problem: problem.message,
        })?;
    let status = lock.and_then(|lock| lock.status.as_ref());
    if let Some(problem) = status.and_then(|status| status.dispute()) {
        return Err(Refusal::EnsembleChanged {
            lock: name.to_owned(),
            problem: match may_name {
                true => problem.to_owned(),
                false => format!("its ensemble has changed: see `kubectl describe dlock {name}`"),
            },
        });
    }
    let known = status.and_then(|status| Some(status.ensemble.as_ref()?.id.clone()));
    let begun = Instant::now();
    loop {
        match (&known, reached.id(lock).map(|id| id.to_string())) {
            (Some(known), Some(seen)) if *known != seen => {
                return Err(Refusal::EnsembleChanged {
                    lock: name.to_owned(),
                    problem: format!(
                        "it is in the ensemble {known}, and this replica of the operator reaches {seen}"
                    ),
                });
            }
            // The sidecar looks for itself.
            (Some(id), _) => return Ok(id.clone()),
            (None, Some(id)) => return Ok(id),
            (None, None) if begun.elapsed() >= PATIENCE => {
                return Err(Refusal::EnsembleUnknown(name.to_owned()));
            }
            (None, None) => tokio::time::sleep(LOOK).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zookeeper::allowed_hosts::Hosts;
    use serde_json::{Value, json};

    const A: Uuid = Uuid::from_u128(0xa);
    const B: Uuid = Uuid::from_u128(0xb);

    struct Reaches(Option<Uuid>);

    impl Reached for Reaches {
        fn permit(&self, lock: Option<&DistributedLock>) -> Result<(), Problem> {
            let spec = lock.and_then(|lock| lock.spec.zookeeper.as_ref());
            spec.map_or(Ok(()), |spec| {
                Hosts::default().check(&spec.connect.parse().unwrap())
            })
        }

        fn id(&self, _: Option<&DistributedLock>) -> Option<Uuid> {
            self.0
        }
    }

    fn lock(status: Value) -> DistributedLock {
        serde_json::from_value(json!({
            "apiVersion": "lockkeeper.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": "report"}, "spec": {}, "status": status,
        }))
        .unwrap()
    }

    async fn id(reached: Option<Uuid>, status: Option<Value>) -> Result<String, String> {
        let lock = status.map(lock);
        let id = id_for(&Reaches(reached), "report", lock.as_ref(), true).await;
        id.map_err(|refusal| refusal.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_made_for_the_ensemble_that_its_lock_is_in_and_for_no_other() {
        let in_a = || Some(json!({"ensemble": {"id": A.to_string()}}));
        for (reached, status) in [
            (Some(A), None),
            (Some(A), Some(json!({}))),
            (Some(A), in_a()),
            (None, in_a()),
        ] {
            assert_eq!(id(reached, status).await, Ok(A.to_string()));
        }
        let refusal = id(Some(B), in_a()).await.unwrap_err();
        assert!(
            refusal.contains(&A.to_string()) && refusal.contains(&B.to_string()),
            "{refusal}"
        );
        let refusal = id(None, None).await.unwrap_err();
        assert!(refusal.contains("has not reached the ensemble"), "{refusal}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_of_a_lock_whose_ensemble_the_administrator_has_not_allowed_is_refused_with_the_sentence_of_its_status()
     {
        // Also where its ensemble is known from the time when it was allowed.
        let mut lock = lock(json!({"ensemble": {"id": A.to_string()}}));
        let zookeeper = json!({"connect": "zk-0.team:2181"});
        lock.spec.zookeeper = serde_json::from_value(zookeeper).unwrap();
        let permitted = Reaches(Some(A)).permit(Some(&lock));
        let refusal = id_for(&Reaches(Some(A)), "report", Some(&lock), true)
            .await
            .unwrap_err();
        let sentence = permitted.unwrap_err().message;
        assert!(sentence.contains("zookeeper.otherEnsembles.hosts"), "{sentence}");
        assert_eq!(
            refusal.to_string(),
            format!("DistributedLock `report` admits no pod: {sentence}")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_ensemble_is_disputed_the_status_says_why_and_so_does_the_refusal() {
        let status = json!({"ensemble": {"id": A.to_string()}, "conditions": [{
            "type": "Ready", "status": "False", "reason": "EnsembleChanged", "message": "a was made for the former",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]});
        let refusal = id(Some(A), Some(status.clone())).await.unwrap_err();
        assert!(refusal.contains("a was made for the former"), "{refusal}");
        // The caller is not known.
        let refused = id_for(&Reaches(Some(A)), "report", Some(&lock(status)), false).await;
        let refusal = refused.unwrap_err().to_string();
        assert!(
            refusal.contains("kubectl describe dlock report") && !refusal.contains("former"),
            "{refusal}"
        );
    }
}
