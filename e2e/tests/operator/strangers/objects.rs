//! An API server that keeps objects in memory: it lists, watches, patches and creates them without any
//! checks.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// The objects by their paths. It ends with the runtime of the test.
#[derive(Clone)]
pub struct Objects {
    /// `127.0.0.1:PORT`.
    pub address: String,
    shared: Arc<Shared>,
}

struct Shared {
    objects: Mutex<BTreeMap<String, Value>>,
    version: watch::Sender<u64>,
    /// `METHOD PATH` of each request.
    seen: Mutex<Vec<String>>,
}

impl Objects {
    /// With the namespace whose UID identifies the cluster.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let objects = Self {
            address: listener.local_addr().unwrap().to_string(),
            shared: Arc::new(Shared {
                objects: Mutex::default(),
                version: watch::Sender::new(1),
                seen: Mutex::default(),
            }),
        };
        let cluster =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "kube-system" } });
        objects.put("/api/v1/namespaces/kube-system", cluster);
        let shared = Arc::clone(&objects.shared);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let shared = Arc::clone(&shared);
                let service = service_fn(move |request| {
                    let shared = Arc::clone(&shared);
                    async move { Ok::<_, Infallible>(shared.answer(request).await) }
                });
                let serving = hyper::server::conn::http1::Builder::new();
                tokio::spawn(serving.serve_connection(TokioIo::new(stream), service));
            }
        });
        objects
    }

    /// What leads a client here.
    pub fn kubeconfig(&self) -> Value {
        json!({ "apiVersion": "v1", "kind": "Config", "current-context": "x", "users": [],
            "clusters": [{ "name": "x", "cluster": { "server": format!("http://{}", self.address) } }],
            "contexts": [{ "name": "x", "context": { "cluster": "x", "user": "" } }] })
    }

    /// Creates or replaces an object.
    pub fn put(&self, path: &str, object: Value) {
        self.shared.put(path, object);
    }

    pub fn get(&self, path: &str) -> Value {
        self.shared.objects().get(path).cloned().unwrap_or_default()
    }

    /// Method and path of each request.
    pub fn seen(&self) -> Vec<String> {
        self.shared.seen.lock().unwrap().clone()
    }

    pub async fn wait_for(&self, path: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        let mut version = self.shared.version.subscribe();
        loop {
            version.mark_unchanged();
            let object = self.get(path);
            if wanted(&object) {
                return object;
            }
            version.changed().await.unwrap();
        }
    }
}

impl Shared {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Value>> {
        self.objects.lock().unwrap()
    }

    fn put(&self, path: &str, mut object: Value) -> Value {
        let mut objects = self.objects();
        let version = *self.version.borrow() + 1;
        let parts: Vec<_> = path.split('/').collect();
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        object["metadata"]["name"] = json!(parts.last());
        object["metadata"]["namespace"] = json!(parts[parts.len() - 3]);
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{version}"));
        }
        objects.insert(path.to_owned(), object.clone());
        self.version.send_replace(version);
        object
    }

    /// The objects of a collection of all namespaces, changed since a version.
    fn since(&self, collection: &str, query: &str, version: u64) -> Vec<Value> {
        let name = query
            .split("metadata.name%3D")
            .nth(1)
            .map(|rest| rest.split('&').next().unwrap());
        let objects = self.objects();
        let all = objects.iter().filter(|(path, object)| {
            let mut parts = path.rsplit('/');
            let is_named = name.is_none_or(|name| object["metadata"]["name"] == name);
            parts.nth(1) == Some(collection) && is_named && number(object) > version
        });
        all.map(|(_, object)| object.clone()).collect()
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        self.seen
            .lock()
            .unwrap()
            .push(format!("{} {path}", request.method()));
        let last = path.rsplit('/').next().unwrap_or_default().to_owned();
        let is_collection =
            ["distributedlocks", "pods", "secrets", "nodes", "events"].contains(&last.as_str());
        let (method, is_json_patch) = (request.method().clone(), {
            let kind = request.headers().get("content-type");
            kind.is_some_and(|kind| kind.to_str().unwrap().contains("json-patch"))
        });
        if method == Method::GET && is_collection {
            if query.contains("watch=true") {
                return self.watch(last, query);
            }
            let items = self.since(&last, &query, 0);
            let version = self.version.borrow().to_string();
            return answer(
                200,
                &json!({
                    "kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items,
                }),
            );
        }
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        match method {
            Method::POST if query.contains("dryRun") || last == "pods" || last == "events" => {
                answer(201, &body)
            }
            Method::POST => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                answer(201, &self.put(&format!("{path}/{name}"), body.clone()))
            }
            Method::PATCH => {
                let path = path.strip_suffix("/status").unwrap_or(&path);
                let Some(mut object) = self.objects().get(path).cloned() else {
                    return missing();
                };
                if is_json_patch {
                    // The version is a precondition, which always holds, since there is one operator.
                    let patch: json_patch::Patch = serde_json::from_value(body).unwrap();
                    json_patch::patch(&mut object, &patch).unwrap();
                } else {
                    json_patch::merge(&mut object, &body);
                }
                answer(200, &self.put(path, object))
            }
            _ => match self.objects().get(&path) {
                Some(object) => answer(200, object),
                None => missing(),
            },
        }
    }

    fn watch(self: Arc<Self>, collection: String, query: String) -> Answer {
        let from = query
            .split("resourceVersion=")
            .nth(1)
            .and_then(|rest| rest.split('&').next()?.parse().ok());
        let version = self.version.subscribe();
        let state = (self, version, from.unwrap_or(0));
        let events = futures_util::stream::unfold(state, move |(shared, mut version, from)| {
            let (collection, query) = (collection.clone(), query.clone());
            async move {
                loop {
                    version.mark_unchanged();
                    let to = *shared.version.borrow();
                    let changed = shared.since(&collection, &query, from);
                    if !changed.is_empty() {
                        let lines = changed
                            .iter()
                            .map(|object| format!("{}\n", json!({ "type": "MODIFIED", "object": object })));
                        let frame = Frame::data(Bytes::from(lines.collect::<String>()));
                        return Some((Ok(frame), (shared, version, to)));
                    }
                    version.changed().await.ok()?;
                }
            }
        });
        Response::new(BodyExt::boxed(StreamBody::new(Box::pin(events))))
    }
}

fn number(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

fn missing() -> Answer {
    answer(
        404,
        &json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "gone" }),
    )
}

fn answer(status: u16, body: &Value) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed());
    *response.status_mut() = status.try_into().unwrap();
    response
        .headers_mut()
        .insert("content-type", "application/json".parse().unwrap());
    response
}
