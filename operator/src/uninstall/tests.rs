//! The hooks against an API server that has only what a test puts there.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;

/// An API server with these objects at one path and nothing else, and what was deleted there.
async fn api(at: &'static str, items: Value) -> (Client, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let deleted = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&deleted);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (seen, items) = (Arc::clone(&seen), items.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let path = request.uri().path().to_owned();
                let answer = match *request.method() {
                    Method::GET if path == at => json!({ "metadata": {}, "items": items }),
                    Method::GET => json!({ "metadata": {}, "items": [] }),
                    _ => {
                        seen.lock().unwrap().push(path);
                        json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" })
                    }
                };
                let answer = Response::new(Full::new(Bytes::from(answer.to_string())));
                async { Ok::<_, Infallible>(answer) }
            });
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
        }
    });
    let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
    (client, deleted)
}

#[tokio::test]
async fn the_operator_stays_while_a_pod_is_behind_a_lock_and_its_policy_with_it() {
    let pod = json!({
        "metadata": { "name": "app", "namespace": "shop", "labels": { keys::LOCK: "report" } },
        "spec": { "containers": [{ "name": "app" }] },
    });
    let (client, deleted) = api("/api/v1/pods", json!([pod])).await;
    let refused = before(&client, "lockkeeper").await.unwrap_err();
    assert!(refused.sentence.contains("pod shop/app"), "{refused}");
    assert!(deleted.lock().unwrap().is_empty());

    let (client, deleted) = api("/api/v1/pods", json!([])).await;
    before(&client, "lockkeeper").await.unwrap();
    assert!(deleted.lock().unwrap().is_empty(), "it only looks");
}

#[tokio::test]
async fn the_policies_go_after_the_operator_and_not_while_it_is_installed() {
    let operator = |deleted: Value| {
        let metadata = json!({ "name": "lockkeeper", "namespace": "system", "deletionTimestamp": deleted });
        json!([{ "metadata": metadata, "spec": { "selector": {}, "template": {} } }])
    };
    let at = "/apis/apps/v1/namespaces/system/deployments";
    let (client, _) = api(at, operator(Value::Null)).await;
    let refused = is_gone(&client, "system", "lockkeeper").await.unwrap_err();
    let sentence = refused.sentence;
    assert!(
        sentence.contains("(deployment system/lockkeeper)") && sentence.contains("--no-hooks"),
        "{sentence}"
    );
    // Helm deletes it in the foreground, and it waits for its pods.
    for gone in [operator(json!("2026-11-29T01:00:00Z")), json!([])] {
        let (client, _) = api(at, gone).await;
        is_gone(&client, "system", "lockkeeper").await.unwrap();
    }

    let (client, deleted) = api(at, json!([])).await;
    after(&client, &["marked".to_owned()]).await.unwrap();
    let deleted = deleted.lock().unwrap().clone();
    assert_eq!(deleted.len(), 2, "{deleted:?}");
    assert!(
        deleted.iter().all(|path| path.ends_with("/marked")),
        "{deleted:?}"
    );
}

#[tokio::test]
async fn a_replica_set_keeps_the_operator_unless_a_deployment_that_is_looked_at_owns_it() {
    let set = |name: &str, replicas: i32, owner: Option<(&str, &str)>| {
        let owner = owner.map(|(version, kind)| {
            json!({ "apiVersion": version, "kind": kind, "name": "app", "uid": "1", "controller": true })
        });
        json!({
            "metadata": { "name": name, "namespace": "shop", "ownerReferences": owner.into_iter().collect::<Vec<_>>() },
            "spec": {
                "replicas": replicas,
                "selector": {},
                "template": { "metadata": { "annotations": { keys::LOCK: "report" } } },
            },
        })
    };
    let sets = json!([
        set("alone", 1, None),
        set("of-deployment", 1, Some(("apps/v1", "Deployment"))),
        set("of-rollout", 1, Some(("argoproj.io/v1alpha1", "Rollout"))),
        set("at-zero", 0, Some(("argoproj.io/v1alpha1", "Rollout"))),
        set("of-namesake", 1, Some(("example.org/v1", "Deployment"))),
    ]);
    let (client, deleted) = api("/apis/apps/v1/replicasets", sets).await;
    let refused = before(&client, "lockkeeper").await;
    let sentence = refused.unwrap_err().sentence;
    for name in ["alone", "of-rollout", "at-zero", "of-namesake"] {
        assert!(
            sentence.contains(&format!("replicaset shop/{name}")),
            "{sentence}"
        );
    }
    assert!(!sentence.contains("of-deployment"), "{sentence}");
    assert!(deleted.lock().unwrap().is_empty());
}

#[test]
fn a_refusal_names_what_would_run_without_a_lock_and_all_ways_out() {
    let many: Vec<_> = (0..25).map(|number| format!("pod shop/p{number}")).collect();
    let sentence = refusal(&many, "mine --namespace system");
    for part in [
        "pod shop/p0, ",
        "and 5 more",
        "remove lockkeeper.io/lock from them",
        "`helm rollback mine --namespace system REVISION`",
        "helm upgrade --reset-then-reuse-values --set uninstall.allowUnguarded=true",
    ] {
        assert!(sentence.contains(part), "{sentence}");
    }
    assert!(!refusal(&many[..1], "mine").contains("more. Scale"));
}
