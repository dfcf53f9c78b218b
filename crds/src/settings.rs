//! A digest of the settings of a lock that a pod was made with: the annotation [`crate::keys::SETTINGS`].

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::Value;

use crate::lock::DistributedLockSpec;

/// Settings that only the operator uses: they make no difference to a pod.
const OF_THE_OPERATOR: [&str; 2] = ["deletionPolicy", "handoff"];

/// Bytes of the digest that are kept. They need not withstand an attack: a pod that claims other settings misleads only
/// its own users.
const KEPT: usize = 8;

/// The digest, equal for settings that produce equal pods. Defaults do not count, so the digest of a lock stays the
/// same when a release adds a field.
pub fn word_of(spec: &DistributedLockSpec) -> String {
    let defaults = fields(&DistributedLockSpec::default());
    let mut own = fields(spec);
    own.retain(|(name, value)| {
        !OF_THE_OPERATOR.contains(&name.as_str()) && !defaults.contains(&(name.clone(), value.clone()))
    });
    // JSON objects are sorted by key.
    let text = serde_json::to_vec(&own).expect("strings and values are JSON");
    let digest = digest(&SHA256, &text);
    let kept = &digest.as_ref()[..KEPT];
    kept.iter().map(|byte| format!("{byte:02x}")).collect()
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
}
