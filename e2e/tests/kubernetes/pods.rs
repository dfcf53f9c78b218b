//! Pods that are deleted, evicted or drained.

use std::io::Write;

use lockkeeper_product::space::{Mend, Space, short};
use serde_json::json;
use tempfile::NamedTempFile;

#[test]
fn the_lock_of_a_deleted_pod_goes_to_the_other_one() {
    let Some(space) = Space::new("deleted") else {
        return;
    };
    let pair = space.pair(&json!({}), &[]);
    space
        .kubectl(&["delete", "pod", &pair.holder, "--wait=false"])
        .unwrap();
    space.assert_other_runs(&pair);
}

#[test]
fn the_lock_of_a_pod_that_is_deleted_by_force_goes_to_the_other_one() {
    let Some(space) = Space::new("forced") else {
        return;
    };
    let pair = space.pair(&short(), &["--ignore-sigterm"]);
    space
        .kubectl(&[
            "delete",
            "pod",
            &pair.holder,
            "--grace-period=0",
            "--force",
            "--wait=false",
        ])
        .unwrap();
    space.assert_other_runs(&pair);
}

#[test]
fn the_lock_of_an_evicted_pod_goes_to_the_other_one() {
    let Some(space) = Space::new("evicted") else {
        return;
    };
    let pair = space.pair(&json!({}), &[]);
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pair.holder, "namespace": space.name },
    });
    let mut file = NamedTempFile::new().unwrap();
    write!(file, "{eviction}").unwrap();
    let path = format!("/api/v1/namespaces/{}/pods/{}/eviction", space.name, pair.holder);
    space
        .kubectl(&[
            "create",
            "--raw",
            &path,
            "--filename",
            file.path().to_str().unwrap(),
        ])
        .unwrap();
    space.assert_other_runs(&pair);
}

#[test]
fn a_drained_node_loses_its_lock_to_the_other_one() {
    let Some(space) = Space::alone("drained") else {
        return;
    };
    let pair = space.pair(&json!({}), &[]);
    let node = format!("n{}", space.node_of(&pair.holder));
    let open = Mend(|| space.kubectl(&["uncordon", &node]).map(drop));
    let drained = space.kubectl(&[
        "drain",
        &node,
        "--pod-selector=app=worker",
        "--delete-emptydir-data",
        "--timeout=120s",
    ]);
    drained.unwrap();
    let (_, next, _) = space.wait_until_it_runs(pair.token);
    drop(open);
    assert_ne!(next, pair.holder);
    space.assert_handed_over(&pair);
}

#[test]
fn a_holder_that_is_asked_to_step_down_hands_over_and_waits_at_the_end_of_the_queue() {
    let Some(space) = Space::new("asked") else {
        return;
    };
    let pair = space.pair(&json!({}), &[]);
    space.release(&pair.holder);
    space.assert_other_runs(&pair);
    space.wait_until_waiting("report", 1);
    space.wait_for_lock("report", "{.status.queue[*].pod}", |queue| queue == pair.holder);
}
