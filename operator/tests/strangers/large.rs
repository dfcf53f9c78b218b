//! An API server full of objects that are as large as it takes them, and an operator that reads them.

use std::ops::Range;
use std::time::Duration;

use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::Request;
use hyper::body::{Bytes, Frame, Incoming};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::api::{Answer, Http, answer};
use crate::floods::{LIMIT, Operator};
use crate::webhook::review;

/// Objects of each kind.
const COUNT: usize = 100;

/// What each of them has beside its name, in bytes.
const SIZE: usize = 1_300_000;

/// Volumes of a ReplicaSet: half of what etcd takes.
const VOLUMES: usize = 40_000;

/// Generous: the machine may have other work to do.
const BOUND: Duration = Duration::from_secs(240);

/// Objects of one kind: the beginning of each up to its name, and what they have in common.
struct Many {
    collection: &'static str,
    before: String,
    after: Bytes,
}

/// With `#` in the place of the name.
fn many(collection: &'static str, object: &Value) -> Many {
    let object = object.to_string();
    let (before, after) = object.split_once('#').unwrap();
    Many {
        collection,
        before: before.to_owned(),
        after: after.to_owned().into(),
    }
}

/// As long keys as there are, up to this length.
fn labels(length: usize) -> Value {
    let key = |at: usize| format!("a{at}.{}.{}/{}", "b".repeat(60), "c".repeat(60), "d".repeat(63));
    let all = (0..length / 260).map(|at| (key(at), json!("e".repeat(63))));
    Value::Object(all.collect())
}

fn kinds() -> Vec<Many> {
    let metadata = |labels: Value| json!({ "name": "#", "namespace": "evil", "uid": "u", "resourceVersion": "5", "labels": labels });
    let text = "v".repeat(SIZE);
    let finalizers: Vec<_> = (0..SIZE / 12).map(|at| format!("a{at}/b")).collect();
    let mut waiting = metadata(json!({}));
    waiting["finalizers"] = json!(finalizers);
    vec![
        many("distributedlocks", &json!({ "metadata": waiting, "spec": {} })),
        many(
            "pods",
            &json!({ "metadata": metadata(json!({ "lockkeeper.io/lock": "x" })), "spec": {
                "containers": [{ "name": "a", "env": [{ "name": "A", "value": text }] }],
            } }),
        ),
        many(
            "secrets",
            &json!({ "metadata": metadata(labels(SIZE)), "data": { "auth": "" } }),
        ),
        many(
            "horizontalpodautoscalers",
            &json!({ "metadata": metadata(labels(SIZE)), "spec": { "maxReplicas": 1,
                "scaleTargetRef": { "kind": "Deployment", "name": "app" } } }),
        ),
        many(
            "nodes",
            &json!({ "metadata": { "name": "#", "resourceVersion": "5" } }),
        ),
    ]
}

/// These objects, as JSON that is made while it is read.
fn list(kind: &Many, range: Range<usize>) -> Answer {
    let next = if range.end < COUNT {
        range.end.to_string()
    } else {
        String::new()
    };
    let metadata = json!({ "resourceVersion": "5", "continue": next });
    let head = format!("{{\"kind\":\"List\",\"apiVersion\":\"v1\",\"metadata\":{metadata},\"items\":[");
    let first = range.start;
    let (before, after) = (kind.before.clone(), kind.after.clone());
    let items = range.flat_map(move |at| {
        let comma = if at == first { "" } else { "," };
        [Bytes::from(format!("{comma}{before}a{at}")), after.clone()]
    });
    let parts = std::iter::once(Bytes::from(head))
        .chain(items)
        .chain([Bytes::from("]}")]);
    let body = StreamBody::new(stream::iter(parts.map(|part| Ok(Frame::data(part)))));
    let mut answer = Answer::new(BodyExt::boxed(body));
    answer
        .headers_mut()
        .insert("content-type", "application/json".parse().unwrap());
    answer
}

async fn api() -> Http {
    let kinds = kinds();
    let volume = json!({ "name": "aaaaa", "emptyDir": {} });
    let set = json!({ "metadata": { "name": "app", "uid": "u" }, "spec": { "replicas": 2, "selector": {}, "template": {
        "spec": { "containers": [], "volumes": vec![volume; VOLUMES] } } } });
    let set = Bytes::from(set.to_string());
    Http::start(move |request: &Request<Incoming>| {
        let uri = request.uri();
        let json = [("content-type", "application/json")];
        let query = uri.query().unwrap_or_default();
        let number = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find_map(|(key, value)| (key == name).then(|| value.parse::<usize>().unwrap()))
        };
        let last = uri.path().rsplit('/').next().unwrap();
        if query.contains("watch=true") {
            let never = StreamBody::new(stream::pending());
            return Answer::new(BodyExt::boxed(never));
        }
        if let Some(kind) = kinds.iter().find(|kind| kind.collection == last) {
            let from = number("continue").unwrap_or(0);
            let to = number("limit").map_or(COUNT, |limit| COUNT.min(from + limit));
            return list(kind, from..to);
        }
        if uri.path().contains("/replicasets/") {
            return answer(200, &json, set.clone());
        }
        let lock = "/apis/lockkeeper.io/v1alpha1/namespaces/evil/distributedlocks/x";
        if uri.path() == lock {
            let status = json!({ "ensemble": { "id": "6f1dcafe-0000-4000-8000-000000000002" } });
            let found = json!({ "metadata": { "name": "x", "namespace": "evil" }, "spec": {}, "status": status });
            return answer(200, &json, found.to_string());
        }
        let missing = json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "gone" });
        answer(404, &json, missing.to_string())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_as_large_as_there_may_be_do_not_cost_more_memory_than_the_operator_has() {
    let api = api().await;
    let operator = Operator::start_with(&api.name).await;
    // A list is followed when it was read to its end.
    let followed = ["distributedlocks", "pods", "secrets", "nodes"];
    let all_read = async {
        loop {
            let seen = api.seen();
            let is_followed = |what: &str| {
                let is_watch =
                    |line: &String| line.contains(&format!("/{what}?")) && line.contains("watch=true");
                seen.iter().any(is_watch)
            };
            if followed.into_iter().all(is_followed) {
                return;
            }
            assert!(operator.is_alive(), "it has ended: {:#?}", seen.last());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(BOUND, all_read).await.expect("all lists are read");
    let listed = operator.peak();
    let annotations = json!({ "lockkeeper.io/lock": "x" });
    let spec = json!({ "containers": [{ "name": "a", "image": "i", "command": ["/a"] }] });
    let workload = json!({ "metadata": { "name": "app", "annotations": annotations },
        "spec": { "template": { "metadata": { "annotations": annotations }, "spec": spec } } });
    let pod = |uid: usize| {
        let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app", "uid": uid.to_string(), "controller": true });
        json!({ "metadata": { "name": "app", "annotations": annotations, "ownerReferences": [owner] }, "spec": spec })
    };
    for _ in 0..3 {
        let asked = (0..16).map(|at| {
            let (path, body) = match at % 2 {
                0 => ("/workloads", review("evil", "Deployment", &workload)),
                _ => ("/pods", review("evil", "Pod", &pod(at))),
            };
            let operator = &operator;
            async move { operator.ask_at(path, &body).await }
        });
        // Some are told that the API server has not answered in time.
        for answer in futures_util::future::join_all(asked).await {
            assert!(answer.unwrap().starts_with("HTTP/1.1 200"));
        }
    }
    let peak = operator.peak();
    println!("most memory: {listed} KiB with all lists read, {peak} KiB after reviews");
    let asked = |what: &str| api.seen().iter().filter(|line| line.contains(what)).count();
    assert!(asked("/horizontalpodautoscalers?") > 0 && asked("/replicasets/app") > 0);
    assert!(peak < LIMIT, "{peak} KiB");
}
