//! The chart's own ensemble.

use std::process::Command;

use serde_json::Value;

use crate::stage::{render, stage, stage_alone};
use crate::world::{CHART, SYSTEM};

const SENTENCE: &str = "New and empty servers would be a majority without its locks";

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_servers_of_the_charts_ensemble_does_not_change_while_it_is_there() {
    let Some(stage) = stage_alone().await else { return };
    let of = |replicas: u8| {
        let replicas = format!("zookeeper.server.replicas={replicas}");
        let values = ["zookeeper.server.enabled=true", &replicas];
        render(stage.cluster, &["zookeeper"], &values)
    };
    stage.cluster.apply(&of(1)).unwrap();
    // As a tool does that renders the chart without a cluster. The policy counts from some moment on: what is tried
    // before that must not be done.
    let three = stage.folder("ensemble").join("three.yaml");
    std::fs::write(&three, of(3)).unwrap();
    let three = three.to_str().unwrap();
    let try_three = ["apply", "--dry-run=server", "--filename", three];
    crate::world::eventually("another number is refused", async || {
        let refused = stage.cluster.kubectl(&try_three).err()?.to_string();
        assert!(refused.contains(SENTENCE), "{refused}");
        Some(())
    })
    .await;
    stage.cluster.apply(&of(1)).unwrap();
    // And by helm before it changes anything.
    let helm = |replicas: &str| {
        let mut helm = Command::new(stage.cluster.program("helm").unwrap());
        helm.args([
            "template",
            "lockkeeper",
            CHART,
            "--namespace",
            SYSTEM,
            "--dry-run=server",
        ])
        .args(["--set", "zookeeper.server.enabled=true"])
        .args(["--set", &format!("zookeeper.server.replicas={replicas}")])
        .env("KUBECONFIG", stage.cluster.kubeconfig());
        let done = helm.output().unwrap();
        (done.status.success(), String::from_utf8(done.stderr).unwrap())
    };
    let (is_done, words) = helm("3");
    assert!(!is_done && words.contains(SENTENCE), "{words}");
    // What is there is not a release's, so that helm finds something else to refuse here.
    let (_, words) = helm("1");
    assert!(!words.contains(SENTENCE), "{words}");
    let sets = [
        "delete",
        "statefulset",
        "lockkeeper-zookeeper",
        "--namespace",
        SYSTEM,
    ];
    stage.cluster.kubectl(&sets).unwrap();
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
