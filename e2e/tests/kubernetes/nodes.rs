//! Nodes that crash, are cut off, or whose programs are restarted.

use lockkeeper_lock::ContenderData;
use lockkeeper_product::chart::SYSTEM;
use lockkeeper_product::installation::operators;
use lockkeeper_product::space::{Mend, Pair, Space, calm, short};
use lockkeeper_testbed::cluster::Node;
use lockkeeper_testbed::ensemble::{SUPER, block_on, connector};
use lockkeeper_testbed::eventually::eventually;
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

/// Waits until what a contender says of itself is as it should be.
fn wait_for_data(
    space: &Space,
    contender: &str,
    pleases: impl Fn(&ContenderData) -> bool + Send + Sync,
) -> ContenderData {
    let path = format!("/lockkeeper/locks/{}/report/{contender}", space.name);
    let ensemble = space.installation.ensemble();
    let server = ensemble.address(0).to_string();
    let said = block_on(ensemble.observer(), || async {
        let client = connector().with_auth("digest", SUPER.as_bytes());
        let client = client.connect(&server).await.expect("a server that works");
        eventually(&format!("{path} says so"), async || {
            let (data, _) = client.get_data(&path).await.expect("the contender is there");
            Some(ContenderData::parse(&data)).filter(|said| pleases(said))
        })
        .await
    });
    said.unwrap()
}

#[test]
fn a_node_that_is_cut_off_loses_the_lock_to_the_other_one_and_its_application_is_gone_before() {
    let Some(space) = Space::alone("node-cut") else {
        return;
    };
    let (pair, number) = on_a_node(&space, &short());
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
    let (pair, number) = on_a_node(&space, &short());
    let mended = Mend(|| Ok(space.installation.heal_to_ensemble(number)?));
    space.installation.cut_from_ensemble(number).unwrap();
    space.assert_other_runs(&pair);
    drop(mended);
    // The pod is in the queue again.
    space.wait_until_waiting("report", 1);
    space.assert_exclusive();
}

#[test]
fn a_node_that_crashes_loses_the_lock_after_the_lease_duration_while_its_session_lives() {
    let Some(space) = Space::alone("node-crash") else {
        return;
    };
    let (pair, number) = on_a_node(&space, &json!({ "sessionTimeout": "15s", "leaseDuration": "6s" }));
    // The holder states its lease with its first renewal.
    let lives = pair.deletions.lives();
    let dead = lives.iter().find(|life| life.token == pair.token).unwrap();
    wait_for_data(&space, &dead.name, |said| said.lease().is_some());
    let mended = Mend(|| {
        node(&space, number).boot()?;
        space.wait_for_nodes()
    });
    node(&space, number).crash().unwrap();
    let (token, _) = space.assert_other_runs(&pair);
    let lives = pair.deletions.lives();
    let next = lives.iter().find(|life| life.token == token).unwrap();
    let said = wait_for_data(&space, &next.name, |said| said.took_over.is_some());
    let took_over = said.took_over.unwrap();
    println!("{took_over:?}");
    assert_eq!(took_over.contender, dead.name);
    assert_eq!(took_over.pod.map(|pod| pod.name), Some(pair.holder.clone()));
    drop(mended);
    space.assert_somebody_runs();
}

/// Waits until each replica of the operator knows the machines of so many contenders.
fn wait_until_machines_are_known(space: &Space, count: usize) {
    let names = space
        .cluster
        .kubectl(&operators("--output=jsonpath={.items[*].metadata.name}"));
    for name in names.unwrap().split_whitespace() {
        let page = format!("/api/v1/namespaces/{SYSTEM}/pods/{name}:9809/proxy/metrics");
        let line = format!("lockkeeper_operator_contenders_on_known_machines {count}");
        space.wait_for(&["get", "--raw", &page], |metrics| {
            metrics.lines().any(|one| one == line)
        });
    }
}

#[test]
fn a_node_that_was_powered_off_and_is_marked_so_loses_the_lock_while_its_session_lives() {
    let Some(space) = Space::alone("node-off") else {
        return;
    };
    let installation = space.installation;
    let distrusted = Mend(|| installation.install(&json!({})));
    installation
        .install(&json!({ "trustOutOfServiceTaint": true }))
        .unwrap();
    // Only a replica that has seen both contenders on a running node can know that one of them is dead.
    installation.assert_spread();
    // Longer than Kubernetes needs until it knows that the node is silent, and the operator until it has a leader again.
    let (pair, number) = on_a_node(
        &space,
        &json!({ "sessionTimeout": "120s", "leaseDuration": "off" }),
    );
    let name = node(&space, number).name();
    wait_until_machines_are_known(&space, 2);
    let taint = |taint: &str| space.cluster.kubectl(&["taint", "node", &name, taint]).map(drop);
    let mended = Mend(|| {
        taint("node.kubernetes.io/out-of-service-")?;
        node(&space, number).boot()?;
        space.wait_for_nodes()
    });
    node(&space, number).crash().unwrap();
    taint("node.kubernetes.io/out-of-service=nodeshutdown:NoExecute").unwrap();
    space.assert_other_runs(&pair);
    let events = [
        "get",
        "events",
        "--field-selector=reason=NodeFenced",
        "--output=jsonpath={.items[*].message}",
    ];
    let removed = format!(
        "removed the contender of {}: its node {name} is out of service",
        pair.holder
    );
    space.wait_for(&events, |notes| notes.contains(&removed));
    drop(mended);
    space.assert_somebody_runs();
    drop(distrusted);
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
