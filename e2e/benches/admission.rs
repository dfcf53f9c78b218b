//! The time to admit a pod, fifty at once: the time of the webhook itself, and the time that a user waits
//! with it and without it. It uses the real operator, chart and API server, in the cluster of the tests.
//!
//! `cargo bench -p lockkeeper-e2e --bench admission -- [--rounds N]`

// This shares modules with the tests of admission, and does not use all of them.
#![allow(dead_code)]

#[path = "../tests/admission/images.rs"]
mod images;
#[path = "../tests/admission/pods.rs"]
mod pods;
#[path = "admission/reviews.rs"]
mod reviews;
#[path = "admission/times.rs"]
mod times;
#[path = "../../operator/tests/support/tls.rs"]
mod tls;
#[path = "../tests/admission/webhooks.rs"]
mod webhooks;

use futures_util::future::join_all;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::beside::Tenant;
use serde_json::{Value, json};

use reviews::{Reviewer, review};
use times::Times;
use webhooks::{REGISTRY, Webhooks};

/// Pods at once.
const AT_ONCE: usize = 50;
/// With fifty pods each: the slowest hundredth of ten thousand is a hundred of them.
const ROUNDS: usize = 200;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--rounds");
    let rounds = arguments
        .nth(1)
        .map_or(ROUNDS, |rounds| rounds.parse().expect("--rounds N"));
    let Some(webhooks) = Webhooks::start().await else {
        return;
    };
    let space = webhooks.namespace("bench").await;
    let pods = cases(&webhooks, &space).await;
    println!("{rounds} rounds of {AT_ONCE} pods at once\n");
    Times::print_head("the webhook alone, as the API server asks it");
    for (name, pod) in &pods[1..] {
        alone(&webhooks, &space, pod, rounds).await.print(name);
    }
    through_the_api_server(&webhooks, &space, &pods, rounds).await;
    space.leave().await;
}

/// Pods as a user writes them. The first is not marked.
async fn cases(webhooks: &Webhooks, space: &Tenant) -> Vec<(&'static str, Value)> {
    let pushed = images::push(
        &webhooks.host,
        "bench/app",
        "1",
        &json!({ "Entrypoint": ["/app"] }),
    );
    let image = format!("{REGISTRY}/bench/app@{}", pushed.digest);
    let mut set = pods::workload("StatefulSet", "report", json!({}));
    set["spec"]["replicas"] = json!(2);
    let said = webhooks.kubectl(space, &["create", "-o", "json", "-f", "-"], &set);
    assert!(said.is_done, "{}", said.words);
    let set: Value = serde_json::from_str(&said.output).unwrap();
    let mut owned = full(pods::marked("owned"));
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "StatefulSet", "controller": true,
        "name": set["metadata"]["name"], "uid": set["metadata"]["uid"],
    }]);
    vec![
        ("not marked", full(pods::plain("plain"))),
        ("command given", full(pods::marked("given"))),
        ("command given, of a StatefulSet", owned),
        ("command looked up before", full(pods::of_image("image", &image))),
    ]
}

/// Adds the usual fields of applications.
fn full(mut pod: Value) -> Value {
    let app = &mut pod["spec"]["containers"][0];
    let env = (0..20).map(|at| json!({ "name": format!("VARIABLE_{at}"), "value": "what it is set to" }));
    app["env"] = env.collect();
    app["ports"] = json!([{ "name": "http", "containerPort": 8080 }]);
    let get = json!({ "path": "/healthz", "port": "http" });
    app["livenessProbe"] = json!({ "httpGet": get, "periodSeconds": 5 });
    app["readinessProbe"] = json!({ "httpGet": get });
    app["resources"] =
        json!({ "requests": { "cpu": "100m", "memory": "64Mi" }, "limits": { "memory": "64Mi" } });
    app["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
    pod["spec"]["volumes"] = json!([{ "name": "data", "emptyDir": {} }]);
    pod
}

/// Reviews over permanent connections.
async fn alone(webhooks: &Webhooks, space: &Tenant, pod: &Value, rounds: usize) -> Times {
    let reviewer = Reviewer::connect(webhooks, space, AT_ONCE).await;
    let body = review(space, pod).await;
    reviewer.round(&body).await;
    let mut times = Times::default();
    for _ in 0..rounds {
        times.add(reviewer.round(&body).await);
    }
    times
}

/// Dry runs: the whole admission without a write. All cases take turns.
async fn through_the_api_server(webhooks: &Webhooks, space: &Tenant, pods: &[(&str, Value)], rounds: usize) {
    let mut times: Vec<Times> = pods.iter().map(|_| Times::default()).collect();
    let before = api_servers_view(webhooks);
    for round in 0..=rounds {
        for ((_, pod), times) in pods.iter().zip(&mut times) {
            let sent = (0..AT_ONCE).map(async |_| {
                let begun = BootInstant::now();
                space.try_out(pod).await.unwrap();
                BootInstant::now() - begun
            });
            let took = join_all(sent).await;
            // The first round makes connections.
            if round > 0 {
                times.add(took);
            }
        }
    }
    let after = api_servers_view(webhooks);
    println!();
    Times::print_head("dry runs on the API server");
    for ((name, _), times) in pods.iter().zip(&times) {
        times.print(name);
    }
    let marked = 1..pods.len();
    for at in marked {
        times[at].print_more_than(&times[0], &format!("{}: more than not marked", pods[at].0));
    }
    println!(
        "\nin the API server's own view the webhook took {:.1} ms, in the webhook's {:.2} ms (means)",
        (after.0 - before.0) / (after.1 - before.1) * 1e3,
        own_view(webhooks).await * 1e3
    );
}

/// Seconds and reviews, since the API server has started.
fn api_servers_view(webhooks: &Webhooks) -> (f64, f64) {
    let metrics = webhooks.cluster.kubectl(&["get", "--raw", "/metrics"]).unwrap();
    let of = |what: &str| -> f64 {
        let name = format!("apiserver_admission_webhook_admission_duration_seconds_{what}");
        let lines = metrics.lines().filter(|line| line.starts_with(&name));
        let ours = lines.filter(|line| line.contains("name=\"pods.lockkeeper.io\""));
        ours.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .sum()
    };
    (of("sum"), of("count"))
}

/// Seconds that a review takes between its body and its answer.
async fn own_view(webhooks: &Webhooks) -> f64 {
    webhooks.measured("lockkeeper_webhook_duration_seconds_sum").await
        / webhooks
            .measured("lockkeeper_webhook_duration_seconds_count")
            .await
}
