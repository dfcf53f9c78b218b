use serde_json::{Value, json};

use super::*;

/// What the sidecar gets beside containers with these resources, the last of them an init container.
fn beside(containers: Value, own: Option<&str>) -> Value {
    let mut containers: Vec<Value> = containers
        .as_array()
        .unwrap()
        .iter()
        .map(|resources| json!({ "name": "app", "resources": resources }))
        .collect();
    let init = containers.pop().unwrap();
    let pod = json!({ "spec": { "containers": containers, "initContainers": [init] } });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let configured =
        json!({ "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "memory": "64Mi" } });
    let configured = serde_json::from_value(configured).unwrap();
    let own = own.map(|json| json.parse().unwrap());
    serde_json::to_value(for_sidecar(&pod, own.as_ref(), &configured)).unwrap()
}

#[test]
fn a_sidecar_has_limits_and_requests_of_the_kinds_that_all_containers_have_so_that_a_quota_takes_it() {
    let full = json!({
        "requests": { "cpu": "1", "memory": "1Gi" },
        "limits": { "cpu": "2", "memory": "1Gi", "ephemeral-storage": "1Gi" },
    });
    assert_eq!(
        beside(json!([full, full]), None),
        json!({
            "requests": { "cpu": "10m", "memory": "16Mi", "ephemeral-storage": "1Mi" },
            "limits": { "cpu": "100m", "memory": "64Mi", "ephemeral-storage": "128Mi" },
        })
    );
    // One without a limit, an init container too: no quota wants it, and a limit of the CPU would only do harm.
    let without = json!({ "requests": { "cpu": "1", "ephemeral-storage": "1Gi" } });
    for all in [json!([full, without]), json!([without, full])] {
        assert_eq!(
            beside(all, None),
            json!({
                "requests": { "cpu": "10m", "memory": "16Mi", "ephemeral-storage": "1Mi" },
                "limits": { "memory": "64Mi" },
            })
        );
    }
}

#[test]
fn a_limit_that_is_chosen_for_the_sidecar_is_never_below_its_request() {
    let full = json!({ "requests": { "cpu": "1" }, "limits": { "cpu": "2", "memory": "1Gi" } });
    let own = r#"{"requests":{"cpu":"300m"},"limits":{"memory":"8Mi"}}"#;
    assert_eq!(
        beside(json!([full, full]), Some(own)),
        json!({
            "requests": { "cpu": "300m", "memory": "8Mi" },
            "limits": { "cpu": "300m", "memory": "8Mi" },
        })
    );
}

#[test]
fn a_workload_may_say_itself_what_its_sidecar_asks_for_and_a_guaranteed_pod_stays_so() {
    let own = r#"{"requests":{"cpu":"50m","memory":"32Mi"},"limits":{"memory":"96Mi"}}"#;
    let guaranteed = json!({ "limits": { "cpu": "2", "memory": "1Gi" } });
    let both = json!({ "cpu": "100m", "memory": "96Mi" });
    assert_eq!(
        beside(json!([guaranteed, guaranteed]), Some(own)),
        json!({ "requests": both, "limits": both })
    );
    let stated: Value = serde_json::from_str(own).unwrap();
    // Its user has chosen to leave the class BestEffort.
    for other in [json!({ "requests": { "cpu": "1" } }), json!({})] {
        assert_eq!(beside(json!([other, other]), Some(own)), stated);
    }
    assert_eq!(beside(json!([{}, {}]), None), json!({}));
}
