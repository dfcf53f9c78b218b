//! Registries that a user of the cluster has named, and that answer as they like.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::Response;
use hyper::body::{Bytes, Frame};
use lockkeeper_daemon::places::Source;
use lockkeeper_operator::admission::asker::Asker;
use lockkeeper_operator::admission::image::{Credential, Images, Registry, RegistryOptions, Shares};
use lockkeeper_operator::admission::inject::{ImageConfig, ImageUnknown};
use oci_spec::distribution::Reference;
use serde_json::{Value, json};

use crate::api::{Answer, Http, answer};

/// Generous: the machine may have other work to do.
const BOUND: Duration = Duration::from_secs(120);

const WORD: &str = "hunter2-of-the-remote-side";

fn registry(name: &str, networks: &[&str]) -> Registry {
    Registry::new(options(&[name], networks)).unwrap()
}

fn options(names: &[&str], networks: &[&str]) -> RegistryOptions {
    RegistryOptions {
        timeout: Duration::from_secs(3),
        plain_http: names.iter().copied().map(str::to_owned).collect(),
        authorities: None,
        networks: networks.iter().map(|network| network.parse().unwrap()).collect(),
        redirects: Vec::new(),
    }
}

/// Looks an image of a hostile registry up, by tag and with a password.
async fn look_up(name: &str, networks: &[&str]) -> Result<ImageConfig, String> {
    let registry = registry(name, networks);
    let image: Reference = format!("{name}/team/app:1").parse().unwrap();
    let credentials = [Credential {
        user: "reader".to_owned(),
        password: WORD.to_owned(),
    }];
    let asked = async {
        let share = Shares::default().of(&Asker::new("team", None));
        let digest = registry.digest(&image, &credentials, &share).await?;
        let image = image.clone_with_digest(digest);
        registry.config(&image, None, &credentials, &share).await
    };
    asked.await.map_err(|unknown: ImageUnknown| unknown.to_string())
}

/// The reason, which has none of the remote side's words.
async fn refusal(name: &str) -> String {
    let refusal = look_up(name, &["127.0.0.1"]).await.unwrap_err();
    assert!(!refusal.contains(WORD), "{refusal}");
    refusal
}

fn digest(content: &str) -> String {
    let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, content.as_bytes());
    let hex: String = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn manifest(configuration: &str) -> String {
    json!({ "config": { "digest": digest(configuration), "size": configuration.len() } }).to_string()
}

fn configuration() -> String {
    json!({ "config": { "Entrypoint": ["/app"] } }).to_string()
}

#[tokio::test]
async fn an_image_is_found_behind_a_token_and_a_redirect_of_the_same_host() {
    let http = Http::start(|request| {
        let path = request.uri().path();
        let host = request.headers()["host"].to_str().unwrap();
        let authorization = request
            .headers()
            .get("authorization")
            .map(|value| value.to_str().unwrap());
        match (path, authorization) {
            ("/token", Some(basic)) if basic.starts_with("Basic ") => {
                assert_eq!(
                    request.uri().query(),
                    Some("service=a%26b&scope=repository%3Ateam%2Fapp%3Apull")
                );
                answer(200, &[], json!({ "token": "t" }).to_string())
            }
            (path, Some("Bearer t")) if path.contains("/manifests/") => {
                answer(200, &[], manifest(&configuration()))
            }
            (path, Some("Bearer t")) if path.contains("/blobs/") => {
                answer(307, &[("location", "/store")], "")
            }
            ("/store", _) => answer(200, &[], configuration()),
            _ => {
                let challenge = format!("Bearer realm=\"http://{host}/token\",service=\"a&b\"");
                answer(401, &[("www-authenticate", &challenge)], WORD)
            }
        }
    })
    .await;
    let config = look_up(&http.name, &["127.0.0.1"]).await.unwrap();
    assert_eq!(config.entrypoint, ["/app"]);
}

#[tokio::test]
async fn a_forged_review_keeps_no_genuine_one_of_its_namespace_waiting_for_the_same_image() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tarpit = silent.local_addr().unwrap().to_string();
    let http = Http::start(|request| match request.uri().path() {
        path if path.contains("/manifests/") => answer(200, &[], manifest(&configuration())),
        _ => answer(200, &[], configuration()),
    })
    .await;
    let images = Images::new(options(&[&http.name, &tarpit], &["127.0.0.1"])).unwrap();
    let asker = |last: u8| Asker::new("victim", Some(Source::of([10, 0, 0, last].into())));
    let (forger, server) = (asker(1), asker(2));
    let parse = |image: String| -> Reference { image.parse().unwrap() };
    let forged: Vec<_> = (0..4).map(|at| parse(format!("{tarpit}/app:{at}"))).collect();
    let image = parse(format!("{}/team/app:1", http.name));
    let ask = |image, asker| Box::pin(images.resolve(image, None, &[], asker));
    // All turns of the forger; and then it is the first to ask for what the API server is about to ask for.
    let mut stuck: Vec<_> = forged.iter().map(|image| ask(image, &forger)).collect();
    assert!(stuck.iter_mut().all(|one| one.now_or_never().is_none()));
    let mut first = ask(&image, &forger);
    assert!(first.as_mut().now_or_never().is_none());
    let config = tokio::select! {
        _ = join_all(stuck) => panic!("no server answers there"),
        config = tokio::time::timeout(BOUND, ask(&image, &server)) => config.expect("it does not wait for others"),
    };
    assert_eq!(config.unwrap().entrypoint, ["/app"]);
}

#[tokio::test]
async fn a_body_without_end_is_read_to_the_bound_and_no_further() {
    let sent = Arc::new(AtomicUsize::new(0));
    let http = Http::start({
        let sent = Arc::clone(&sent);
        move |_| {
            let sent = Arc::clone(&sent);
            let endless = stream::repeat_with(move || {
                sent.fetch_add(1 << 16, Ordering::Relaxed);
                Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b' '; 1 << 16])))
            });
            let response: Answer = Response::new(BodyExt::boxed(StreamBody::new(endless)));
            response
        }
    })
    .await;
    assert!(refusal(&http.name).await.contains("its answer is too long"));
    let sent = sent.load(Ordering::Relaxed);
    // Twice, with the password and without; what is in the kernel's buffers has not been read.
    assert!(sent < 40 << 20, "{sent} bytes");
}

#[tokio::test]
async fn a_registry_leads_to_no_other_host_and_to_no_place_without_tls() {
    let other = Http::start(|_| answer(200, &[], configuration())).await;
    let location = format!("http://{}/x", other.name);
    let realm = format!("Bearer realm=\"http://{}/token\"", other.name);
    for (status, header, expected) in [
        (307, ("location", location.as_str()), "it leads to another host"),
        (
            301,
            ("location", "//169.254.169.254/latest"),
            "it leads to another host",
        ),
        (
            307,
            ("location", "file:///etc/passwd"),
            "it leads to another host",
        ),
        (
            401,
            ("www-authenticate", realm.as_str()),
            "tokens from a place without TLS",
        ),
        (
            401,
            ("www-authenticate", "Bearer realm=\"file:///x\""),
            "in a way that is not known",
        ),
        (
            307,
            ("location", "/v2/team/app/manifests/1"),
            "it leads from one place to the next",
        ),
    ] {
        let header = (header.0, header.1.to_owned());
        let http = Http::start(move |_| answer(status, &[(header.0, &header.1)], WORD)).await;
        let refusal = refusal(&http.name).await;
        assert!(refusal.contains(expected), "{refusal}");
    }
    assert!(other.seen().is_empty(), "{:?}", other.seen());
}

#[tokio::test]
async fn a_name_of_loopback_is_not_asked_unless_the_administrator_says_so() {
    let http = Http::start(|_| answer(200, &[], configuration())).await;
    let port = http.name.rsplit_once(':').unwrap().1;
    for name in [http.name.clone(), format!("localhost:{port}")] {
        let refusal = look_up(&name, &[]).await.unwrap_err();
        assert!(refusal.contains("loopback, link-local or metadata"), "{refusal}");
    }
    let refusal = look_up("169.254.169.254:80", &["127.0.0.0/8"]).await.unwrap_err();
    assert!(refusal.contains("loopback, link-local or metadata"), "{refusal}");
    assert!(http.seen().is_empty(), "{:?}", http.seen());
}

#[tokio::test]
async fn nothing_of_what_a_registry_says_is_in_the_refusal_but_its_status() {
    let of_manifest = |content: String| {
        move |request: &hyper::Request<hyper::body::Incoming>| {
            if request.uri().path().contains("/manifests/") {
                answer(200, &[], content.clone())
            } else {
                answer(200, &[], WORD)
            }
        }
    };
    let http = Http::start(|_| answer(403, &[("x", WORD)], WORD)).await;
    assert!(refusal(&http.name).await.contains("it answers with status 403"));
    let http = Http::start(of_manifest(json!({ WORD: WORD }).to_string())).await;
    assert!(
        refusal(&http.name)
            .await
            .contains("what it has there is no image")
    );
    let http = Http::start(of_manifest(manifest(&configuration()))).await;
    assert!(
        refusal(&http.name)
            .await
            .contains("not that of its SHA-256 digest")
    );
    let path: Value = json!({ "config": { "digest": format!("sha256:../{WORD}") } });
    let http = Http::start(of_manifest(path.to_string())).await;
    assert!(
        refusal(&http.name)
            .await
            .contains("not that of its SHA-256 digest")
    );
    assert!(!http.seen().iter().any(|line| line.contains(WORD)));
}

#[tokio::test]
async fn a_namespace_whose_registries_never_answer_keeps_no_others_from_theirs() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let swallowing = silent.local_addr().unwrap().to_string();
    let held = tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            held.push(silent.accept().await.unwrap());
        }
    });
    let http = Http::start(|request| match request.uri().path() {
        path if path.contains("/manifests/") => answer(200, &[], manifest(&configuration())),
        _ => answer(200, &[], configuration()),
    })
    .await;
    let registry = Registry::new(options(&[&http.name, &swallowing], &["127.0.0.1"])).unwrap();
    let registry = Arc::new(registry);
    let shares = Arc::new(Shares::default());
    let ask = |namespace: &'static str, name: String| {
        let (registry, shares) = (Arc::clone(&registry), Arc::clone(&shares));
        async move {
            let image: Reference = format!("{name}/team/app:1").parse().unwrap();
            let share = shares.of(&Asker::new(namespace, None));
            registry.digest(&image, &[], &share).await
        }
    };
    // More than are asked at once in all.
    let stuck: Vec<_> = (0..64)
        .map(|_| tokio::spawn(ask("hostile", swallowing.clone())))
        .collect();
    tokio::task::yield_now().await;
    let found = tokio::time::timeout(Duration::from_secs(2), ask("honest", http.name.clone())).await;
    assert!(found.expect("in the time of a webhook").is_ok());
    assert!(stuck.iter().all(|one| !one.is_finished()), "they still wait");
    stuck.iter().for_each(tokio::task::JoinHandle::abort);
    held.abort();
}

#[tokio::test]
async fn a_port_that_drops_packets_keeps_no_other_namespace_from_another_port_of_the_same_host() {
    let http = Http::start(|request| match request.uri().path() {
        path if path.contains("/manifests/") => answer(200, &[], manifest(&configuration())),
        _ => answer(200, &[], configuration()),
    })
    .await;
    // Its queue of connections is full, so the kernel drops the first packet of each further one.
    let full = tokio::net::TcpSocket::new_v4().unwrap();
    full.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = full.listen(1).unwrap();
    let address = full.local_addr().unwrap();
    let mut filling = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(
        Duration::from_millis(300),
        tokio::net::TcpStream::connect(address),
    )
    .await
    {
        filling.push(stream);
    }
    let dropping = address.to_string();
    let registry = Arc::new(Registry::new(options(&[&http.name, &dropping], &["127.0.0.1"])).unwrap());
    let shares = Arc::new(Shares::default());
    let ask = move |namespace: String, name: String| {
        let (registry, shares) = (Arc::clone(&registry), Arc::clone(&shares));
        async move {
            let image: Reference = format!("{name}/team/app:1").parse().unwrap();
            let share = shares.of(&Asker::new(&namespace, None));
            registry.digest(&image, &[], &share).await
        }
    };
    // As many as one tenant may have, each again and again.
    let stuck: Vec<_> = (0..16)
        .map(|at| {
            let (ask, dropping) = (ask.clone(), dropping.clone());
            tokio::spawn(async move {
                loop {
                    let asked = ask(format!("hostile-{}", at % 4), dropping.clone()).await;
                    asked.expect_err("nobody answers there");
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let found = tokio::time::timeout(
        Duration::from_secs(2),
        ask("honest".to_owned(), http.name.clone()),
    );
    let found = found.await.expect("in the time of a webhook");
    assert!(found.is_ok(), "{found:?}");
    assert!(stuck.iter().all(|one| !one.is_finished()));
    stuck.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_server_that_sends_a_byte_at_a_time_keeps_its_place_for_a_second_and_no_longer() {
    let http = Http::start(|_| {
        let bytes = stream::unfold((), async |()| {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(b" "))), ()))
        });
        let response: Answer = Response::new(BodyExt::boxed(StreamBody::new(Box::pin(bytes))));
        response
    })
    .await;
    let refused = tokio::time::timeout(BOUND, refusal(&http.name)).await;
    let refused = refused.expect("it is given up");
    assert!(refused.contains("its answer does not end"), "{refused}");
}
