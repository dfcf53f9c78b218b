//! Second step: whether the lock can be provided as it is asked for. Pure.

use lockkeeper_crds::lock::Reason;
use lockkeeper_crds::{ApiDuration, DistributedLockSpec};

use super::resolve::Resolved;
use super::situation::{Situation, Ticks};
use crate::identity::Identity;
use crate::identity::namespace_secret::{Identities, UnusableSecret};
use crate::problem::Problem;

/// What a lock needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Valid {
    /// The identities that may use it.
    pub(crate) identities: Vec<Identity>,
}

/// Checks what is known of a lock.
///
/// # Errors
/// Why the lock is not ready.
pub(crate) fn validate(resolved: &Resolved) -> Result<Valid, Problem> {
    match &resolved.situation {
        Situation::Followed {
            problem: Some(problem),
            ..
        }
        | Situation::Crowded { problem, .. }
        | Situation::OutOfReach { problem, .. } => Err(problem.clone()),
        Situation::Followed { is_own, ticks, .. } => {
            let identities = is_own.then_some(resolved.identities.as_ref());
            settings(&resolved.lock.spec, identities, *ticks)
        }
        Situation::Abandoned => Ok(Valid {
            identities: Vec::new(),
        }),
    }
}

/// Checks the settings and the namespace's identities; `None` for them where the ensemble is not the
/// operator's: only the owners of the lock's nodes use it there.
///
/// # Errors
/// The first thing that is wrong. Only a change of the object, of the Secret or of the ensemble can clear
/// it.
fn settings(
    spec: &DistributedLockSpec,
    identities: Option<Option<&Result<Identities, UnusableSecret>>>,
    ticks: Ticks,
) -> Result<Valid, Problem> {
    let timing = spec
        .validate(ticks.stated)
        .map_err(|error| Problem::new(Reason::InvalidSpec, error.to_string()))?;
    if let Some(told) = ticks.told.filter(|told| *told > timing.tick_time) {
        let (stated, told) = (ApiDuration::from(timing.tick_time), ApiDuration::from(told));
        let mend = match &spec.zookeeper {
            Some(_) => format!("write {told} into zookeeper.tickTime of the lock"),
            None => format!("start the operator with --tick-time {told} (zookeeper.tickTime of its chart)"),
        };
        let message = format!(
            "the tick time {stated} is shorter than the ensemble's tickTime, which is {told}, so leases would be \
             too long: {mend}"
        );
        return Err(Problem::new(Reason::InvalidSpec, message));
    }
    let unusable = |message: String| Err(Problem::new(Reason::SecretUnusable, message));
    let identities = match identities {
        None => Vec::new(),
        Some(Some(Ok(identities))) => identities.all.clone(),
        Some(Some(Err(error))) => return unusable(error.to_string()),
        Some(None) => {
            return unusable("the Secret of the namespace is missing, and is being made".to_owned());
        }
    };
    Ok(Valid { identities })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_crds::lock::ZooKeeperSpec;
    use std::time::Duration;

    const TICK: Duration = Duration::from_secs(2);

    fn ticks(told: Option<u64>) -> Ticks {
        Ticks {
            stated: TICK,
            told: told.map(Duration::from_millis),
        }
    }

    fn refused(spec: &DistributedLockSpec, told: Option<u64>) -> Problem {
        settings(spec, None, ticks(told)).unwrap_err()
    }

    #[test]
    fn a_tick_that_is_shorter_than_the_true_one_is_refused_with_what_to_write_and_where() {
        let mut spec = DistributedLockSpec::default();
        for told in [None, Some(1000), Some(2000)] {
            assert!(settings(&spec, None, ticks(told)).is_ok(), "{told:?}");
        }
        let problem = refused(&spec, Some(2500));
        assert_eq!(problem.reason, Reason::InvalidSpec);
        assert!(
            problem
                .message
                .ends_with("--tick-time 2500ms (zookeeper.tickTime of its chart)"),
            "{}",
            problem.message
        );
        spec.zookeeper = Some(ZooKeeperSpec {
            connect: "other:2181".into(),
            tick_time: Some(ApiDuration::from_millis(500)),
            credentials_secret: None,
            tls_secret: None,
        });
        let problem = refused(&spec, Some(1000));
        assert!(
            problem
                .message
                .starts_with("the tick time 500ms is shorter than the ensemble's tickTime, which is 1s"),
            "{}",
            problem.message
        );
        assert!(
            problem
                .message
                .ends_with("write 1s into zookeeper.tickTime of the lock"),
            "{}",
            problem.message
        );
    }

    #[test]
    fn times_that_do_not_fit_together_are_refused_with_the_arithmetic() {
        let spec = DistributedLockSpec {
            stop_grace: ApiDuration::from_secs(14),
            ..DistributedLockSpec::default()
        };
        let problem = refused(&spec, None);
        assert_eq!(problem.reason, Reason::InvalidSpec);
        assert!(problem.message.contains("14"), "{}", problem.message);
    }

    #[test]
    fn a_missing_secret_is_no_fault_of_the_settings() {
        let problem = settings(&DistributedLockSpec::default(), Some(None), ticks(None)).unwrap_err();
        assert_eq!(problem.reason, Reason::SecretUnusable);
    }
}
