//! The chart's own ensemble, and the chart beside another release of it.

use std::process::Command;

use lockkeeper_product::chart::{CHART, Helm, SYSTEM, Said};
use lockkeeper_testbed::eventually::eventually;
use serde_json::Value;

use crate::webhooks::{Webhooks, alone, shared};

const PAGE: &str = include_str!("../../../docs/lifecycle.md");

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_servers_of_the_charts_ensemble_does_not_change_while_it_is_there() {
    let Some(webhooks) = alone().await else { return };
    let [one, three] = ["1", "3"].map(|number| format!("zookeeper.server.replicas={number}"));
    let sentence = "New and empty servers would be a majority without its locks";
    assert_refused_while_it_is_there(&webhooks, &one, &three, sentence).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tick_of_the_charts_ensemble_becomes_no_longer_than_its_pods_count_with_while_it_is_there() {
    let Some(webhooks) = alone().await else { return };
    let [two, four, short] = ["2s", "4s", "500ms"].map(|tick| format!("zookeeper.tickTime={tick}"));
    let sentence = "Pods that run count their leases by the shorter tick";
    assert_refused_while_it_is_there(&webhooks, &two, &four, sentence).await;
    // A shorter tick is admitted, and the way back: pods count with two seconds at least.
    for tick in [&two, &short, &two] {
        webhooks.cluster.apply(&ensemble(&webhooks, tick)).unwrap();
    }
    delete_as_the_page_says(&webhooks);
}

/// The chart's ensemble with a value.
fn ensemble(webhooks: &Webhooks, value: &str) -> String {
    webhooks.render(&["zookeeper"], &["zookeeper.server.enabled=true", value])
}

/// The ensemble exists with one value, and the policy and helm refuse the other value. Then it is deleted.
async fn assert_refused_while_it_is_there(webhooks: &Webhooks, there: &str, refused: &str, sentence: &str) {
    webhooks.cluster.apply(&ensemble(webhooks, there)).unwrap();
    // Apply it as a tool that renders the chart without a cluster. The policy works only after a moment, so
    // earlier tries must change nothing.
    let file = webhooks.folder("ensemble").join("refused.yaml");
    std::fs::write(&file, ensemble(webhooks, refused)).unwrap();
    let attempt = ["apply", "--dry-run=server", "--filename", file.to_str().unwrap()];
    eventually("it is refused", async || {
        let words = webhooks.cluster.kubectl(&attempt).err()?.to_string();
        assert!(words.contains(sentence), "{words}");
        Some(())
    })
    .await;
    webhooks.cluster.apply(&ensemble(webhooks, there)).unwrap();
    // Helm refuses it before it changes anything.
    let helm = |value: &str| {
        let helm = Helm::of(webhooks.cluster).unwrap();
        let (system, value) = (format!("--namespace={SYSTEM}"), format!("--set={value}"));
        let template = ["template", "lockkeeper", CHART, &system, "--dry-run=server"];
        let values = ["--set=zookeeper.server.enabled=true", &value];
        helm.run(&[&template[..], &values].concat()).unwrap()
    };
    let Said { is_done, words, .. } = helm(refused);
    assert!(!is_done && words.contains(sentence), "{words}");
    // The existing objects belong to no release, so here helm refuses for another reason.
    let words = helm(there).words;
    assert!(!words.contains(sentence), "{words}");
    delete_as_the_page_says(webhooks);
}

/// Deletes the ensemble, so that it can be made with other settings.
fn delete_as_the_page_says(webhooks: &Webhooks) {
    let (_, command) = PAGE.split_once("`kubectl delete statefulset,pvc ").unwrap();
    let (rest, _) = command.split_once('`').unwrap();
    let words: Vec<_> = ["delete", "statefulset,pvc"]
        .into_iter()
        .chain(rest.split_whitespace())
        .collect();
    webhooks.cluster.kubectl(&words).unwrap();
    let left = ["get", "statefulsets", "--namespace", SYSTEM, "--output=name"];
    assert_eq!(webhooks.cluster.kubectl(&left).unwrap(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_release_in_a_cluster_is_refused_by_helm() {
    let Some(webhooks) = alone().await else { return };
    webhooks.apply_chart(&["cluster"], &[]);
    let install = [
        "install",
        "other",
        CHART,
        "--dry-run=server",
        "--namespace=default",
        "--set=zookeeper.connect=zookeeper:2181",
    ];
    let Said { is_done, words, .. } = Helm::of(webhooks.cluster).unwrap().run(&install).unwrap();
    assert!(!is_done, "{words}");
    assert!(
        words.contains("ClusterRole \"lockkeeper-one-per-cluster\"") && words.contains("exists"),
        "{words}"
    );
    let role = ["delete", "clusterrole", "lockkeeper-one-per-cluster"];
    webhooks.cluster.kubectl(&role).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_the_chart_purges_its_logs_and_takes_half_of_its_memory_as_heap() {
    let Some(webhooks) = shared().await else { return };
    let values = ["zookeeper.server.enabled=true", "zookeeper.server.replicas=3"];
    let rendered = webhooks.render(&["zookeeper"], &values);
    let set = rendered
        .split("\n---\n")
        .find(|one| one.contains("kind: StatefulSet"));
    let set: Value = serde_saphyr::from_str(set.unwrap()).unwrap();
    let server = &set["spec"]["template"]["spec"]["containers"][0];
    let variables = server["env"].as_array().unwrap();
    let variable = |name: &str| variables.iter().find(|one| one["name"] == *name).unwrap();
    assert_eq!(variable("ZOO_AUTOPURGE_PURGEINTERVAL")["value"], "1");
    assert_eq!(variable("ZOO_AUTOPURGE_SNAPRETAINCOUNT")["value"], "3");
    let memory = &variable("MEMORY_MIB")["valueFrom"]["resourceFieldRef"];
    assert_eq!(memory["resource"], "limits.memory");
    assert_eq!(memory["divisor"], "1Mi");
    // Run the pod's command up to the image's script, and print the variables that it sets.
    let script = server["command"][2].as_str().unwrap();
    let (before, _) = script.split_once("exec /docker-entrypoint.sh").unwrap();
    let done = Command::new("sh")
        .args(["-c", &format!("{before} echo $ZOO_MY_ID $ZK_SERVER_HEAP")])
        .env("HOSTNAME", "lockkeeper-zookeeper-2")
        .env("MEMORY_MIB", "512")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(done.stdout).unwrap(), "3 256\n");
}
