//! A digest of the settings of a lock that a pod was made with: the annotation [`crate::keys::SETTINGS`].

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::Value;

use crate::lease::ApiLease;
use crate::lock::DistributedLockSpec;

/// Settings that only the operator uses: they make no difference to a pod.
const OF_THE_OPERATOR: [&str; 2] = ["deletionPolicy", "handoff"];

/// Bytes of the digest that are kept. They need not withstand an attack: a pod that claims other settings misleads only
/// its own users.
const KEPT: usize = 8;

/// The digest, equal for settings that produce equal pods. Values that do not count are left out, so the digest of a lock
/// stays the same when a release adds a field.
pub fn word_of(spec: &DistributedLockSpec) -> String {
    let left_out = fields(&left_out());
    let mut own = fields(spec);
    own.retain(|(name, value)| {
        !OF_THE_OPERATOR.contains(&name.as_str()) && !left_out.contains(&(name.clone(), value.clone()))
    });
    // JSON objects are sorted by key.
    let text = serde_json::to_vec(&own).expect("strings and values are JSON");
    let digest = digest(&SHA256, &text);
    let kept = &digest.as_ref()[..KEPT];
    kept.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The settings of a pod whose digest says nothing of them. They are the defaults of the release that added the field,
/// and do not change with a default: otherwise pods of an older release would count as made with the new default.
fn left_out() -> DistributedLockSpec {
    DistributedLockSpec {
        lease_duration: ApiLease::Off,
        ..DistributedLockSpec::default()
    }
}

fn fields(spec: &DistributedLockSpec) -> Vec<(String, Value)> {
    let value = serde_json::to_value(spec).expect("settings are JSON");
    let Value::Object(fields) = value else {
        return Vec::new();
    };
    let mut fields: Vec<_> = fields.into_iter().collect();
    fields.sort_by(|one, other| one.0.cmp(&other.0));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn word(spec: Value) -> String {
        word_of(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn what_makes_another_pod_makes_another_word_and_nothing_else_does() {
        let plain = word(json!({}));
        for same in [
            json!({"handoff": "Never"}),
            json!({"deletionPolicy": "Retain", "sessionTimeout": "15s"}),
        ] {
            assert_eq!(word(same), plain);
        }
        for other in [
            json!({"sessionTimeout": "30s"}),
            json!({"maxHolders": 2}),
            json!({"zookeeper": {"connect": "zk:2181"}}),
        ] {
            assert_ne!(word(other), plain);
        }
        assert_eq!(plain.len(), 16);
    }

    /// What every release before `leaseDuration`, and with `off` as its default, has written for a lock with the defaults.
    const WITHOUT_A_LEASE: &str = "4f53cda18c2baa0c";

    #[test]
    fn pods_of_a_release_without_a_lease_duration_are_outdated_where_the_lock_has_one_and_nowhere_else() {
        assert_eq!(word(json!({"leaseDuration": "off"})), WITHOUT_A_LEASE);
        for lease in [json!({}), json!({"leaseDuration": "auto"})] {
            assert_eq!(word(lease.clone()), word(json!({"leaseDuration": "auto"})));
            assert_ne!(word(lease), WITHOUT_A_LEASE);
        }
        assert_ne!(word(json!({"leaseDuration": "8s"})), word(json!({})));
    }

    /// This digest changes with a default, and with a field that is new. Then [`left_out`] has to name the value that pods
    /// of earlier releases have.
    #[test]
    fn a_new_release_does_not_report_the_pods_of_the_one_before_as_outdated() {
        assert_eq!(word(json!({})), "0de68700e4f1c73a");
    }
}
