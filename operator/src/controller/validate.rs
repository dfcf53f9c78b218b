//! Second step: whether the lock can be provided as it is asked for. Pure.

use std::time::Duration;

use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_crds::lock::Reason;
use lockkeeper_lock::zookeeper::ConnectString;

use crate::identity::Identity;
use crate::secrets::{Identities, UnusableSecret};

/// What a lock needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Valid {
    /// Who may use it.
    pub identities: Vec<Identity>,
}

/// Why a lock cannot be provided, for its condition `Ready`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// One of the closed set.
    pub reason: Reason,
    /// One sentence.
    pub message: String,
}

/// Checks the settings and the namespace's identities.
///
/// # Errors
/// The first thing that is wrong. Only a change of the object or of the Secret can clear it.
pub fn validate(
    spec: &DistributedLockSpec,
    identities: Option<&Result<Identities, UnusableSecret>>,
    connect: &ConnectString,
    tick_time: Duration,
) -> Result<Valid, Invalid> {
    let invalid = |reason, message| Invalid { reason, message };
    spec.validate(tick_time)
        .map_err(|error| invalid(Reason::InvalidSpec, error.to_string()))?;
    if let Some(zookeeper) = &spec.zookeeper
        && zookeeper.connect.parse().as_ref() != Ok(connect)
    {
        let message = format!(
            "zookeeper.connect names another ensemble than the operator's, {connect}, which is the only one that it \
             looks after: leave it out"
        );
        return Err(invalid(Reason::InvalidSpec, message));
    }
    let identities = match identities {
        Some(Ok(identities)) => identities.all.clone(),
        Some(Err(error)) => return Err(invalid(Reason::SecretUnusable, error.to_string())),
        None => {
            let message = "the Secret of the namespace is missing, and is being made".to_owned();
            return Err(invalid(Reason::SecretUnusable, message));
        }
    };
    Ok(Valid { identities })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_crds::ApiDuration;
    use lockkeeper_crds::lock::ZooKeeperSpec;

    const TICK: Duration = Duration::from_secs(2);

    fn identities() -> Option<Result<Identities, UnusableSecret>> {
        Some(Ok(Identities {
            all: vec![Identity::generate("shop")],
            is_rotation_asked: false,
        }))
    }

    fn ensemble() -> ConnectString {
        "zk-0:2181,zk-1:2181/team".parse().unwrap()
    }

    fn reason(spec: &DistributedLockSpec) -> Option<Reason> {
        let valid = validate(spec, identities().as_ref(), &ensemble(), TICK);
        valid.err().map(|invalid| invalid.reason)
    }

    #[test]
    fn the_defaults_are_valid_and_so_is_the_operators_ensemble_by_its_own_name() {
        let mut spec = DistributedLockSpec::default();
        assert_eq!(reason(&spec), None);
        spec.zookeeper = Some(ZooKeeperSpec {
            connect: "zk-0:2181,zk-1:2181/team".into(),
            tick_time: None,
            credentials_secret: None,
            tls_secret: None,
        });
        assert_eq!(reason(&spec), None);
        spec.zookeeper.as_mut().unwrap().connect = "other:2181".into();
        assert_eq!(reason(&spec), Some(Reason::InvalidSpec));
    }

    #[test]
    fn times_that_do_not_fit_together_are_refused_with_the_arithmetic() {
        let spec = DistributedLockSpec {
            stop_grace: ApiDuration::from_secs(14),
            ..DistributedLockSpec::default()
        };
        let invalid = validate(&spec, identities().as_ref(), &ensemble(), TICK).unwrap_err();
        assert_eq!(invalid.reason, Reason::InvalidSpec);
        assert!(invalid.message.contains("14"), "{}", invalid.message);
    }

    #[test]
    fn a_missing_secret_is_no_fault_of_the_settings() {
        let invalid = validate(&DistributedLockSpec::default(), None, &ensemble(), TICK).unwrap_err();
        assert_eq!(invalid.reason, Reason::SecretUnusable);
    }
}
