//! Nodes that crash, are cut off, or whose programs are restarted.

use lockkeeper_product::space::{Mend, Pair, Space, calm};
use lockkeeper_testbed::cluster::Node;
use serde_json::{Value, json};

#[test]
fn no_two_pods_overlap_under_random_faults_of_nodes_servers_and_the_control_plane() {
    lockkeeper_campaign::trials::as_test("nodes", 1);
}

/// Two pods, of which one runs, and the node that it runs on.
fn on_a_node(space: &Space, lock: &Value) -> (Pair, u8) {
    let pair = space.pair(lock, &["--ignore-sigterm"]);
    let node = space.node_of(&pair.holder);
    (pair, node)
}

fn node(space: &Space, number: u8) -> Node<'static> {
    space.cluster.node(number).unwrap()
}

#[test]
fn a_node_that_is_cut_off_loses_the_lock_to_the_other_one_and_its_application_is_gone_before() {
    let Some(space) = Space::alone("node-cut") else {
        return;
    };
    let (pair, number) = on_a_node(&space, &json!({}));
    let mended = Mend(|| {
        node(&space, number).restore()?;
        space.wait_for_nodes()
    });
    node(&space, number).cut().unwrap();
    space.assert_other_runs(&pair);
    drop(mended);
    space.assert_somebody_runs();
}

#[test]
fn a_node_that_reaches_everybody_but_the_ensemble_loses_the_lock_in_time() {
    let Some(space) = Space::alone("node-off-ensemble") else {
        return;
    };
    let (pair, number) = on_a_node(&space, &json!({}));
    let mended = Mend(|| Ok(space.installation.heal_to_ensemble(number)?));
    space.installation.cut_from_ensemble(number).unwrap();
    space.assert_other_runs(&pair);
    drop(mended);
    // The pod is in the queue again.
    space.wait_until_waiting("report", 1);
    space.assert_exclusive();
}

#[test]
fn a_node_that_crashes_loses_the_lock_to_the_other_one() {
    let Some(space) = Space::alone("node-crash") else {
        return;
    };
    let (pair, number) = on_a_node(&space, &json!({}));
    let mended = Mend(|| {
        node(&space, number).boot()?;
        space.wait_for_nodes()
    });
    node(&space, number).crash().unwrap();
    space.assert_other_runs(&pair);
    drop(mended);
    space.assert_somebody_runs();
}

#[test]
fn kubelet_and_containerd_can_be_restarted_without_a_loss() {
    let Some(space) = Space::alone("node-programs") else {
        return;
    };
    let (pair, number) = on_a_node(&space, &calm());
    for program in ["kubelet", "containerd"] {
        let started = Mend(|| node(&space, number).start_again(program));
        node(&space, number).kill(program).unwrap();
        space.assert_undisturbed(&pair);
        drop(started);
        space.assert_undisturbed(&pair);
    }
    space.wait_for_nodes().unwrap();
    // The kubelet knows its pods again: a deleted one hands over.
    space
        .kubectl(&["delete", "pod", &pair.holder, "--wait=false"])
        .unwrap();
    space.assert_other_runs(&pair);
}
