//! An operator whose own ensemble speaks TLS, and requires a certificate from every client.

use k8s_openapi::api::core::v1::Secret;
use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_product::beside::conditions::{condition, holders};
use lockkeeper_testbed::certificates::{Authority, write};
use lockkeeper_testbed::ensemble::TlsFiles;
use lockkeeper_testbed::eventually::eventually;
use lockkeeper_testbed::{Config, Ensemble};

use crate::contender::{Contender, way};
use crate::environment::{alone, identities, operator_identity};

#[tokio::test(flavor = "multi_thread")]
async fn pods_find_the_authorities_and_a_certificate_of_their_own_in_the_secret_of_their_namespace() {
    let Some(environment) = alone().await else { return };
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str| files.path().join(name);
    let authority = Authority::new("ours");
    write(files.path(), "ca.pem", authority.pem());
    let ensemble = Ensemble::start(Config {
        servers: 1,
        loopback: true,
        tls: Some(TlsFiles {
            key_store: file("server.pem"),
            trust_store: file("ca.pem"),
        }),
        ..Config::default()
    })
    .expect("the servers start");
    let server = authority.sign("server", &[ensemble.address(0).ip().to_string()]);
    write(files.path(), "server.pem", &(server.key + &server.chain));
    for who in ["operator", "pods"] {
        let certificate = authority.sign(who, &[]);
        write(files.path(), &format!("{who}.pem"), &certificate.chain);
        write(files.path(), &format!("{who}.key"), &certificate.key);
    }

    drop(environment.take_operator());
    let connect = ensemble.tls_address(0);
    let path = |name: &str| file(name).to_str().unwrap().to_owned();
    let operator = environment
        .operator_by(
            "operator-tls",
            environment.kubeconfig(),
            &connect,
            &[
                ("--tls-ca", &path("ca.pem")),
                ("--tls-cert", &path("operator.pem")),
                ("--tls-key", &path("operator.key")),
                ("--pod-tls-cert", &path("pods.pem")),
                ("--pod-tls-key", &path("pods.key")),
            ]
            .map(|(option, value)| [option, value])
            .concat(),
        )
        .await;
    let space = environment.namespace("secured").await;
    space.lock("report", DistributedLockSpec::default()).await;
    space
        .wait_for_lock("report", "it is ready", |lock| {
            condition(lock, "Ready").0 == "True"
        })
        .await;
    let before = identities(&space).await;
    let secret = space.api::<Secret>().get("lockkeeper-zookeeper").await.unwrap();
    let data = secret.data.unwrap();
    let text = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
    let [ca, certificate, key] = ["ca.crt", "tls.crt", "tls.key"].map(text);
    assert_eq!(ca, authority.pem());
    assert_eq!(key, std::fs::read_to_string(file("pods.key")).unwrap());

    // With these files a pod can connect.
    let reader = format!("digest:{}", operator_identity().acl_id());
    let way = way(&connect, &before)
        .with_readers(vec![reader.parse().unwrap()])
        .with_tls(&ca, Some((&certificate, &key)))
        .unwrap();
    let a = Contender::join_by(way, &space, "report", &space.pod("a", "report").await);
    space
        .wait_for_lock("report", "a holds", |lock| holders(lock) == ["a"])
        .await;

    // If a user removes them, the operator restores them, and the identity stays.
    let patch = serde_json::json!({"data": {"ca.crt": null}});
    let secrets = space.api::<Secret>();
    secrets
        .patch(
            "lockkeeper-zookeeper",
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(patch),
        )
        .await
        .unwrap();
    eventually("the authorities are back", async || {
        let secret = secrets.get("lockkeeper-zookeeper").await.unwrap();
        secret.data?.contains_key("ca.crt").then_some(())
    })
    .await;
    assert_eq!(identities(&space).await, before);

    a.leave().await;
    space.leave().await;
    drop(operator);
    environment.put_operator(environment.operator("operator-plain", &[]).await);
}
