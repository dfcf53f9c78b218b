use super::*;

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{StreamExt, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::sync::mpsc;

use crate::kubernetes::objects::PodPart;

type Frames = UnsyncBoxBody<Bytes, Infallible>;

/// An API server in this process.
#[derive(Clone)]
struct Fake<F>(F);

impl<F: Fn(&Uri) -> Frames> Service<Request<Body>> for Fake<F> {
    type Response = Response<Frames>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Frames>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        std::future::ready(Ok(Response::new((self.0)(request.uri()))))
    }
}

fn client(answer: impl Fn(&Uri) -> Frames + Send + 'static) -> Client {
    bounded(Client::new(Fake(answer), "default"))
}

/// A client that follows all objects, and the count of those that were left out.
fn follower(answer: impl Fn(&Uri) -> Frames + Send + 'static) -> (Client, Counter) {
    let count = Counter::default();
    (
        followed(Client::new(Fake(answer), "default"), count.clone()),
        count,
    )
}

/// A pod of this length beside its name, as JSON. It has many short things, as one has that is stored in few bytes.
fn pod(name: &str, length: usize) -> String {
    const THING: &str = r#"{"é":""},"#;
    let things = THING.repeat(length / THING.len());
    let metadata = json!({ "name": name, "namespace": "shop", "uid": "u", "resourceVersion": "7",
        "labels": { "lockkeeper.io/lock": "report" } });
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{metadata},"spec":{{"affinity":[{things}{{}}],"containers":[]}}}}"#
    )
}

fn whole(text: String) -> Frames {
    Full::new(Bytes::from(text)).boxed_unsync()
}

/// As many frames of 1 MiB as a client takes, and their count.
fn endless() -> (Arc<AtomicUsize>, impl Fn(&Uri) -> Frames) {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let answer = move |_: &Uri| {
        let count = Arc::clone(&count);
        let frames = stream::repeat_with(move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(Frame::data(Bytes::from(vec![b' '; 1 << 20])))
        });
        StreamBody::new(frames).boxed_unsync()
    };
    (sent, answer)
}

#[tokio::test]
async fn objects_of_any_size_are_all_listed_in_pages_that_are_read_whole() {
    const COUNT: usize = 40;
    let (asked, longest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let client = client({
        let (asked, longest) = (Arc::clone(&asked), Arc::clone(&longest));
        move |uri| {
            asked.fetch_add(1, Ordering::Relaxed);
            let number = |name| parameter(uri, name).map_or(0, |number| number.parse().unwrap());
            let (from, limit): (usize, usize) = (number("continue"), number("limit"));
            let to = COUNT.min(from + limit);
            // Twenty large ones, and small ones behind them.
            let size = |at: usize| if at < 20 { 1 << 20 } else { 10 };
            let items = (from..to).map(
                |at| json!({ "metadata": { "name": at.to_string() }, "data": { "a": "x".repeat(size(at)) } }),
            );
            let next = if to < COUNT { to.to_string() } else { String::new() };
            let list = json!({ "kind": "List", "apiVersion": "v1", "metadata": { "continue": next },
                "items": items.collect::<Vec<_>>() });
            longest.fetch_max((to - from).min(limit), Ordering::Relaxed);
            whole(list.to_string())
        }
    });
    let api = Api::<ConfigMap>::all(client);
    let (mut names, mut params) = (Vec::new(), ListParams::default().limit(16));
    loop {
        let page = api.list(&params).await.unwrap();
        names.extend(page.items.iter().map(ResourceExt::name_any));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    let all: Vec<_> = (0..COUNT).map(|at| at.to_string()).collect();
    assert_eq!(names, all);
    assert_eq!(
        longest.load(Ordering::Relaxed),
        16,
        "it was asked for what was wanted"
    );
    // What was too long once is not asked for again at each page.
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked < 20, "{asked} requests");
}

#[tokio::test]
async fn no_answer_is_read_beyond_the_bound_whatever_was_asked() {
    let (sent, answer) = endless();
    let api = Api::<ConfigMap>::namespaced(client(answer), "shop");
    let error = api.get("a").await.unwrap_err().to_string();
    let sentence = "the answer to GET /api/v1/namespaces/shop/configmaps/a is longer than 10485760 bytes";
    assert!(error.contains(sentence), "{error}");
    assert_eq!(sent.swap(0, Ordering::Relaxed), 11);
    let error = api.list(&ListParams::default()).await.unwrap_err().to_string();
    assert!(error.contains("is longer than"), "{error}");
    assert_eq!(sent.swap(0, Ordering::Relaxed), 11);
    // One object: there is no smaller page.
    let error = api.list(&ListParams::default().limit(1)).await.unwrap_err();
    assert!(error.to_string().contains("limit=1 is longer than"), "{error}");
    assert_eq!(sent.swap(0, Ordering::Relaxed), 11);
    let events = api.watch(&WatchParams::default(), "0").await.unwrap();
    let event = std::pin::pin!(events).next().await.unwrap();
    let error = std::error::Error::source(&event.unwrap_err())
        .unwrap()
        .to_string();
    assert!(
        error.contains("an event of GET /api/v1/namespaces/shop/configmaps"),
        "{error}"
    );
    assert_eq!(sent.load(Ordering::Relaxed), 11);
}

#[tokio::test]
async fn many_events_are_followed_however_long_they_are_together() {
    const COUNT: usize = 12;
    let client = client(|_| {
        let events = (0..COUNT).map(|_| {
            let object = json!({ "metadata": { "name": "a" }, "data": { "a": "x".repeat(1 << 20) } });
            let line = format!("{}\n", json!({ "type": "ADDED", "object": object }));
            Ok(Frame::data(Bytes::from(line)))
        });
        StreamBody::new(stream::iter(events.collect::<Vec<_>>())).boxed_unsync()
    });
    let api = Api::<ConfigMap>::all(client);
    let events = api.watch(&WatchParams::default(), "0").await.unwrap();
    let events: Vec<_> = events.collect().await;
    assert_eq!(events.iter().filter(|event| event.is_ok()).count(), COUNT);
}

/// The answer to one of several requests, part by part.
type Parts = mpsc::UnboundedSender<Bytes>;

#[tokio::test]
async fn one_long_answer_is_read_for_each_namespace_and_few_for_all_and_short_ones_wait_for_none() {
    let opened = Arc::<Mutex<HashMap<String, Parts>>>::default();
    let client = client({
        let opened = Arc::clone(&opened);
        move |uri| {
            let (sender, mut parts) = mpsc::unbounded_channel();
            opened.lock().unwrap().insert(uri.path().to_owned(), sender);
            let frames = stream::poll_fn(move |cx| parts.poll_recv(cx)).map(|data| Ok(Frame::data(data)));
            StreamBody::new(frames).boxed_unsync()
        }
    });
    let begin = async |namespace: &str, name: &str, length: usize| {
        let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        let asked = name.to_owned();
        let task = tokio::spawn(async move { api.get(&asked).await.map(drop) });
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        let parts = loop {
            let found = opened.lock().unwrap().remove(&path);
            match found {
                Some(parts) => break parts,
                None => tokio::task::yield_now().await,
            }
        };
        parts.send(format!("{{{}", " ".repeat(length)).into()).unwrap();
        (task, parts)
    };
    let end = |parts: Parts| parts.send("}".into()).unwrap();
    // It has to be scheduled, and nothing else happens here.
    let settle = async || {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    let (first, first_parts) = begin("evil", "first", SHORT).await;
    settle().await;
    let (second, second_parts) = begin("evil", "second", SHORT).await;
    settle().await;
    end(second_parts);
    settle().await;
    assert!(
        !second.is_finished(),
        "it waits for the first one of its namespace"
    );
    let (other, other_parts) = begin("other", "first", SHORT).await;
    settle().await;
    let (third, third_parts) = begin("third", "first", SHORT).await;
    settle().await;
    end(third_parts);
    settle().await;
    assert!(!third.is_finished(), "two namespaces have all places");
    let (short, short_parts) = begin("evil", "short", SHORT / 2).await;
    end(short_parts);
    short.await.unwrap().unwrap();
    end(other_parts);
    other.await.unwrap().unwrap();
    end(first_parts);
    for task in [first, second, third] {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn one_pod_that_is_too_long_hides_none_of_the_others_from_who_lists_all() {
    const COUNT: usize = 30;
    const LONG: [usize; 3] = [0, 7, COUNT - 1];
    let length = |at: usize| if LONG.contains(&at) { LONGEST } else { 10 };
    let pods: Arc<[Bytes]> = (0..COUNT)
        .map(|at| pod(&at.to_string(), length(at)).into())
        .collect();
    let answer = move |uri: &Uri| {
        let number = |name| parameter(uri, name).map_or(0, |number| number.parse().unwrap());
        let (from, limit): (usize, usize) = (number("continue"), number("limit"));
        let to = COUNT.min(from + limit);
        let next = if to < COUNT { to.to_string() } else { String::new() };
        let metadata = json!({ "resourceVersion": "9", "continue": next });
        let head = format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{metadata},"items":["#);
        let mut parts = vec![Bytes::from(head)];
        for at in from..to {
            parts.extend([
                pods[at].clone(),
                Bytes::from(if at + 1 < to { "," } else { "]}" }),
            ]);
        }
        StreamBody::new(stream::iter(parts.into_iter().map(|part| Ok(Frame::data(part))))).boxed_unsync()
    };
    let (client, count) = follower(answer.clone());
    let expected: Vec<_> = (0..COUNT)
        .filter(|at| !LONG.contains(at))
        .map(|at| at.to_string())
        .collect();
    let config = watcher::Config::default().page_size(16);
    let mut events = std::pin::pin!(watcher(Api::<PodPart>::all(client.clone()), config));
    let mut names = Vec::new();
    loop {
        match events.next().await.unwrap().unwrap() {
            Event::InitApply(pod) => names.push(pod.name_any()),
            Event::InitDone => break,
            _ => {}
        }
    }
    assert_eq!(names, expected);
    assert_eq!(count.get(), 3);
    // A list of one namespace, which counts its pods, does not leave this one out.
    let one = ListParams::default().limit(16);
    let error = Api::<PodPart>::namespaced(client, "shop")
        .list(&one)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("is longer than"), "{error}");
    // Nor does a client that must not leave out objects.
    let error = Api::<PodPart>::all(self::client(answer))
        .list(&one)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("is longer than"), "{error}");
}

#[tokio::test]
async fn one_event_that_is_too_long_is_that_its_object_is_gone_and_the_next_ones_come() {
    let event = |what: &str, name: &str, length| {
        format!("{{\"type\":\"{what}\",\"object\":{}}}\n", pod(name, length))
    };
    // Parts end in the middle of characters, too.
    let parts = [64 << 10, (64 << 10) + 1, (64 << 10) + 2, 30 << 20];
    for (part, what) in parts.into_iter().zip(["ADDED", "MODIFIED", "DELETED", "ADDED"]) {
        let long = event(what, "long", LONGEST);
        let text = event("ADDED", "first", 10) + &long + &event("ADDED", "last", 10);
        let (client, count) = follower(move |_| {
            let parts: Vec<_> = text.as_bytes().chunks(part).map(Bytes::copy_from_slice).collect();
            StreamBody::new(stream::iter(parts.into_iter().map(|part| Ok(Frame::data(part))))).boxed_unsync()
        });
        let api = Api::<PodPart>::all(client);
        let events = api.watch(&WatchParams::default(), "0").await.unwrap();
        let said = events.map(|event| match event.unwrap() {
            WatchEvent::Added(pod) => format!("+{}", pod.name_any()),
            WatchEvent::Deleted(pod) => {
                let at = (pod.namespace(), pod.resource_version());
                assert_eq!(at, (Some("shop".into()), Some("7".into())));
                format!("-{}", pod.name_any())
            }
            other => panic!("{other:?}"),
        });
        let said: Vec<_> = said.collect().await;
        assert_eq!(said, ["+first", "-long", "+last"], "{part}");
        assert_eq!(count.get(), 1);
    }
}

#[tokio::test]
async fn what_never_ends_is_not_read_for_ever_by_who_leaves_out_what_is_too_long() {
    let (sent, answer) = endless();
    let (client, count) = follower(answer);
    let api = Api::<ConfigMap>::all(client);
    let error = api.list(&ListParams::default().limit(1)).await.unwrap_err();
    assert!(error.to_string().contains("limit=1 is longer than"), "{error}");
    assert_eq!(sent.swap(0, Ordering::Relaxed), 161);
    let events = api.watch(&WatchParams::default(), "0").await.unwrap();
    let last = events.fold(None, async |_, event| Some(event)).await.unwrap();
    let error = std::error::Error::source(&last.unwrap_err()).unwrap().to_string();
    assert!(error.contains("an event of GET /api/v1/configmaps"), "{error}");
    assert_eq!(sent.load(Ordering::Relaxed), 161);
    assert_eq!(count.get(), 0);
}
