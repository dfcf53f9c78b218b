//! The chart's own ensemble, and the chart beside another release of it.

use std::process::Command;

use serde_json::Value;

use crate::stage::{Stage, render, stage, stage_alone};
use crate::world::{CHART, SYSTEM};

const PAGE: &str = include_str!("../../../docs/lifecycle.md");

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_servers_of_the_charts_ensemble_does_not_change_while_it_is_there() {
    let Some(stage) = stage_alone().await else { return };
    let [one, three] = ["1", "3"].map(|number| format!("zookeeper.server.replicas={number}"));
    let sentence = "New and empty servers would be a majority without its locks";
    assert_refused_while_it_is_there(&stage, &one, &three, sentence).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tick_of_the_charts_ensemble_does_not_become_longer_while_it_is_there() {
    let Some(stage) = stage_alone().await else { return };
    let [two, four, short] = ["2s", "4s", "500ms"].map(|tick| format!("zookeeper.tickTime={tick}"));
    let sentence = "Pods that run count their leases by the shorter tick";
    assert_refused_while_it_is_there(&stage, &two, &four, sentence).await;
    // Shorter it may become.
    stage.cluster.apply(&ensemble(&stage, &two)).unwrap();
    stage.cluster.apply(&ensemble(&stage, &short)).unwrap();
    delete_as_the_page_says(&stage);
}

/// The chart's ensemble with a value.
fn ensemble(stage: &Stage, value: &str) -> String {
    render(
        stage.cluster,
        &["zookeeper"],
        &["zookeeper.server.enabled=true", value],
    )
}

/// The ensemble is there with one value, and refused with the other one: by the policy, and by helm. Then it is deleted.
async fn assert_refused_while_it_is_there(stage: &Stage, there: &str, refused: &str, sentence: &str) {
    stage.cluster.apply(&ensemble(stage, there)).unwrap();
    // As a tool does that renders the chart without a cluster. The policy counts from some moment on: what is tried
    // before that must not be done.
    let file = stage.folder("ensemble").join("refused.yaml");
    std::fs::write(&file, ensemble(stage, refused)).unwrap();
    let attempt = ["apply", "--dry-run=server", "--filename", file.to_str().unwrap()];
    crate::world::eventually("it is refused", async || {
        let words = stage.cluster.kubectl(&attempt).err()?.to_string();
        assert!(words.contains(sentence), "{words}");
        Some(())
    })
    .await;
    stage.cluster.apply(&ensemble(stage, there)).unwrap();
    // And by helm before it changes anything.
    let helm = |value: &str| {
        let mut helm = Command::new(stage.cluster.program("helm").unwrap());
        helm.args([
            "template",
            "lockkeeper",
            CHART,
            "--namespace",
            SYSTEM,
            "--dry-run=server",
        ])
        .args(["--set", "zookeeper.server.enabled=true", "--set", value])
        .env("KUBECONFIG", stage.cluster.kubeconfig());
        let done = helm.output().unwrap();
        (done.status.success(), String::from_utf8(done.stderr).unwrap())
    };
    let (is_done, words) = helm(refused);
    assert!(!is_done && words.contains(sentence), "{words}");
    // What is there is not a release's, so that helm finds something else to refuse here.
    let (_, words) = helm(there);
    assert!(!words.contains(sentence), "{words}");
    delete_as_the_page_says(stage);
}

/// So that the ensemble can be made with other settings.
fn delete_as_the_page_says(stage: &Stage) {
    let (_, command) = PAGE.split_once("`kubectl delete statefulset,pvc ").unwrap();
    let (rest, _) = command.split_once('`').unwrap();
    let words: Vec<_> = ["delete", "statefulset,pvc"]
        .into_iter()
        .chain(rest.split_whitespace())
        .collect();
    stage.cluster.kubectl(&words).unwrap();
    let left = ["get", "statefulsets", "--namespace", SYSTEM, "--output=name"];
    assert_eq!(stage.cluster.kubectl(&left).unwrap(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_release_in_a_cluster_is_refused_by_helm() {
    let Some(stage) = stage_alone().await else { return };
    stage.apply_chart(&["cluster"], &[]);
    let helm = Command::new(stage.cluster.program("helm").unwrap())
        .args(["install", "other", CHART, "--dry-run=server"])
        .args([
            "--namespace",
            "default",
            "--set",
            "zookeeper.connect=zookeeper:2181",
        ])
        .env("KUBECONFIG", stage.cluster.kubeconfig())
        .output()
        .unwrap();
    let words = String::from_utf8(helm.stderr).unwrap();
    assert!(!helm.status.success(), "{words}");
    assert!(
        words.contains("ClusterRole \"lockkeeper-one-per-cluster\"") && words.contains("exists"),
        "{words}"
    );
    let role = ["delete", "clusterrole", "lockkeeper-one-per-cluster"];
    stage.cluster.kubectl(&role).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_the_chart_purges_its_logs_and_takes_half_of_its_memory_as_heap() {
    let Some(stage) = stage().await else { return };
    let values = ["zookeeper.server.enabled=true", "zookeeper.server.replicas=3"];
    let rendered = render(stage.cluster, &["zookeeper"], &values);
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
    // What the pod starts, with an image that only says what it was told.
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
