//! An application's own probes, called by a real kubelet.

use lockkeeper_product::space::{BOUND, Space, calm};
use lockkeeper_testbed::process::wait_for;
use serde_json::{Value, json};

/// A port at which no process listens.
const NOBODY: u16 = 9;
/// How often the application's container was restarted.
const RESTARTS: &str =
    "--output=jsonpath={.items[*].status.containerStatuses[?(@.name=='app')].restartCount}";

#[test]
fn a_standby_is_not_restarted_by_its_own_probes_and_is_once_it_runs_and_does_not_answer() {
    let Some(space) = Space::new("probes") else {
        return;
    };
    let first = space.pod(&[space.recording(&[])]);
    space.apply(&[
        space.lock("report", &calm()),
        space.workload("Deployment", "report", Some(1), first),
    ]);
    let (first, holder, _) = space.wait_until_it_runs(0);

    let pods = |kind: &str, probes: Value| {
        let mut container = space.recording(&[]);
        for (name, probe) in probes.as_object().unwrap() {
            container[name] = probe.clone();
        }
        let mut workload = space.workload("Deployment", kind, Some(1), space.pod(&[container]));
        workload["metadata"]["annotations"]["lockkeeper.io/lock"] = json!("report");
        workload["spec"]["selector"]["matchLabels"]["app"] = json!(kind);
        workload["spec"]["template"]["metadata"]["labels"]["app"] = json!(kind);
        workload
    };
    // A wrong answer comes at once. Wait for a right one: executing a command in a container may take seconds
    // on a busy machine.
    let probe = |mut check: Value| {
        check["periodSeconds"] = json!(1);
        check["timeoutSeconds"] = json!(20);
        check["failureThreshold"] = json!(1);
        check
    };
    let network = probe(json!({ "tcpSocket": { "port": NOBODY } }));
    let command = probe(json!({ "exec": { "command": ["/no/such/check"] } }));
    let mut passes = probe(json!({ "exec": { "command": ["/program", "--help"] } }));
    // The startup budget is this many periods, however long a check takes.
    passes["failureThreshold"] = json!(60);
    space.apply(&[
        pods("network", json!({ "livenessProbe": network })),
        pods("command", json!({ "livenessProbe": command })),
        pods(
            "started",
            json!({ "livenessProbe": network, "startupProbe": passes }),
        ),
        pods(
            "unstarted",
            json!({ "livenessProbe": network, "startupProbe": command }),
        ),
    ]);
    space.wait_until_waiting("report", 4);
    let kinds = ["network", "command", "started", "unstarted"];
    for kind in kinds {
        wait_for_probes(&space, kind, 10);
        let selector = format!("--selector=app={kind}");
        let restarts = space.kubectl(&["get", "pods", &selector, RESTARTS]).unwrap();
        assert_eq!(restarts, "0", "{kind}");
    }
    assert_eq!(space.begins(), [(first, holder)]);

    // One pod after the other holds, and does not answer.
    space.kubectl(&["delete", "deployment", "report"]).unwrap();
    for kind in kinds {
        let selector = format!("--selector=app={kind}");
        space.wait_for(&["get", "pods", &selector, RESTARTS], |count| count != "0");
        space
            .kubectl(&["delete", "deployment", kind, "--timeout=60s"])
            .unwrap();
    }
    space.assert_exclusive();
}

/// Waits until the kubelet has seen the liveness probe of this application's pod pass this often.
fn wait_for_probes(space: &Space, app: &str, count: u64) {
    let selector = format!("--selector=app={app}");
    let name = "--output=jsonpath={.items[0].metadata.name}";
    let pod = space.kubectl(&["get", "pods", &selector, name]).unwrap();
    wait_for(BOUND, || {
        (liveness_probes(space, &pod, "app", "successful") >= count).then_some(())
    })
    .unwrap_or_else(|| panic!("{}", space.story()));
}

/// How often the liveness probe of a container had a result, `successful` or `failed`, as its kubelet says.
pub fn liveness_probes(space: &Space, pod: &str, container: &str, result: &str) -> u64 {
    let place = "--output=jsonpath={.metadata.uid} {.spec.nodeName}";
    let place = space.wait_for(&["get", "pod", pod, place], |place| place.contains(' '));
    let (uid, node) = place.split_once(' ').unwrap();
    let probes = format!("/api/v1/nodes/{node}/proxy/metrics/probes");
    let metrics = space.wait_for(&["get", "--raw", &probes], |metrics| !metrics.is_empty());
    let labels = [
        format!("\"{uid}\""),
        "\"Liveness\"".to_owned(),
        format!("\"{result}\""),
        format!("container=\"{container}\""),
    ];
    let ours = metrics.lines().find(|line| {
        line.starts_with("prober_probe_total{") && labels.iter().all(|label| line.contains(label))
    });
    // A kubelet counts in floating point, and has no line before the first one.
    ours.map_or(0, |line| {
        let (_, count) = line.rsplit_once(' ').unwrap();
        count.parse::<f64>().unwrap() as u64
    })
}
