//! The authorities that the API server trusts, and the certificates that the replicas show it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use lockkeeper_operator::admission::certificates::authority::Issued;
use lockkeeper_product::beside::Tenant;
use lockkeeper_product::chart::{CHART, Helm, SYSTEM};
use lockkeeper_testbed::Cluster;
use lockkeeper_testbed::eventually::eventually;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::pods::{marked, sidecar};
use crate::tls::{issued, trusting};
use crate::webhooks::{PATIENT, Webhooks, alone};

const NAME: &str = "lockkeeper-webhook.lockkeeper-system.svc";
const SECRET: &str = "lockkeeper-webhook";

/// The authorities that the API server trusts: the same for all webhooks.
async fn trusted(space: &Tenant) -> Vec<u8> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(space.client.clone());
    let configuration = api.get("lockkeeper").await.unwrap();
    let mut bundles: Vec<_> = configuration
        .webhooks
        .unwrap()
        .into_iter()
        .map(|webhook| {
            webhook
                .client_config
                .ca_bundle
                .map(|bundle| bundle.0)
                .unwrap_or_default()
        })
        .collect();
    assert_eq!(bundles.len(), 3);
    bundles.dedup();
    assert_eq!(bundles.len(), 1, "they differ");
    bundles.remove(0)
}

/// The certificates that the replicas show to a client that trusts `authorities`; `None` for one that the
/// client does not trust.
async fn shown(webhooks: &Webhooks, authorities: &[u8]) -> Vec<Option<CertificateDer<'static>>> {
    let connector = trusting(authorities);
    let of_one = async |stream: std::net::TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let stream = TcpStream::from_std(stream).unwrap();
        let name = ServerName::try_from(NAME).unwrap();
        let stream = connector.connect(name, stream).await.ok()?;
        let certificates = stream.get_ref().1.peer_certificates()?;
        Some(certificates[0].clone().into_owned())
    };
    join_all(webhooks.connections().into_iter().map(of_one)).await
}

fn secrets(space: &Tenant) -> Api<Secret> {
    Api::namespaced(space.client.clone(), SYSTEM)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_replicas_show_the_one_certificate_that_the_operator_made_and_the_api_server_trusts() {
    let Some(webhooks) = alone().await else { return };
    let space = webhooks.namespace("own").await;
    webhooks.put_operator(webhooks.operator("operator-second", &[]).await);
    let authorities = trusted(&space).await;
    let data = secrets(&space).get(SECRET).await.unwrap().data.unwrap();
    assert_eq!(data["ca.crt"].0, authorities);
    let certificate = CertificateDer::from_pem_slice(&data["tls.crt"].0).unwrap();
    let both = [Some(certificate.clone()), Some(certificate)];
    assert_eq!(shown(&webhooks, &authorities).await, both);
    drop(webhooks.take_operator());
    space.leave().await;
}

/// The answers to dry runs of marked pods, enough at once that the API server has to make new connections for
/// some.
async fn try_many(space: &Tenant) -> Vec<Result<Value, String>> {
    let pods = (0..40).map(async |at| space.try_out(&marked(&format!("pod-{at}"))).await);
    join_all(pods).await
}

/// Waits until all of them are admitted.
async fn admit_many(space: &Tenant) {
    for answer in try_many(space).await {
        sidecar(&answer.unwrap_or_else(|refusal| panic!("{refusal}")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pod_is_refused_while_the_certificate_is_replaced_on_two_replicas() {
    let Some(webhooks) = alone().await else { return };
    let space = webhooks.namespace("rotation").await;
    webhooks.put_operator(webhooks.operator("operator-second", &[]).await);
    let old = shown(&webhooks, &trusted(&space).await).await;
    // Two thirds of its life ago.
    let patch = json!({ "metadata": { "annotations": { "lockkeeper.io/made-at": "1700000000" } } });
    secrets(&space)
        .patch(SECRET, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    eventually("all replicas show another certificate", async || {
        admit_many(&space).await;
        let now = shown(&webhooks, &trusted(&space).await).await;
        let are_new = now.iter().zip(&old).all(|(new, old)| new.is_some() && new != old);
        (are_new && now[0] == now[1]).then_some(())
    })
    .await;
    admit_many(&space).await;
    drop(webhooks.take_operator());
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_given_is_shown_and_its_successor_without_a_restart() {
    let Some(webhooks) = alone().await else { return };
    let space = webhooks.namespace("given").await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(space.client.clone());
    let first = issued(NAME, None);
    let second = issued(NAME, Some(&first));
    let folder = webhooks.folder("given");
    let give = |issued: &Issued| {
        std::fs::write(folder.join("tls.crt"), &issued.certificate).unwrap();
        std::fs::write(folder.join("tls.key"), &issued.key).unwrap();
    };
    give(&first);
    drop(webhooks.take_operator());
    configurations
        .delete("lockkeeper", &DeleteParams::default())
        .await
        .unwrap();
    let bundle = STANDARD.encode(&second.authorities);
    let values = "webhook.certificates=secret,webhook.secretName=given,webhook.caBundle=";
    webhooks.apply_chart(&["webhook"], &[PATIENT, &format!("{values}{bundle}")]);
    let arguments = ["--webhook-certificates", folder.to_str().unwrap()];
    webhooks.put_operator(webhooks.operator("operator-given", &arguments).await);
    webhooks.wait_until_injected().await;

    give(&second);
    eventually("the successor is shown", async || {
        admit_many(&space).await;
        let of_first = shown(&webhooks, first.authorities.as_bytes()).await;
        (of_first == [None]).then_some(())
    })
    .await;
    admit_many(&space).await;
    assert!(!trusted(&space).await.is_empty());

    drop(webhooks.take_operator());
    configurations
        .delete("lockkeeper", &DeleteParams::default())
        .await
        .unwrap();
    webhooks.apply_chart(&["webhook"], &[PATIENT]);
    webhooks.put_operator(webhooks.operator("operator-own", &[]).await);
    webhooks.wait_until_injected().await;
    space.leave().await;
}

/// A certificate for the Service that no operator has made, with its own authority.
fn foreign() -> Issued {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    Issued {
        authorities: made.cert.pem(),
        certificate: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
        made_at: 0,
    }
}

/// Puts authorities into the configuration, as an upgrade of the chart does.
async fn trust(space: &Tenant, authorities: &str) {
    let api: Api<MutatingWebhookConfiguration> = Api::all(space.client.clone());
    let names = ["pods", "keys", "workloads"].map(|name| format!("{name}.lockkeeper.io"));
    let webhooks = names
        .map(|name| json!({ "name": name, "clientConfig": { "caBundle": STANDARD.encode(authorities) } }));
    let patch = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "lockkeeper" }, "webhooks": webhooks,
    });
    let params = PatchParams::apply("helm").force();
    api.patch("lockkeeper", &params, &Patch::Apply(patch))
        .await
        .unwrap();
}

/// Waits until all replicas show certificates that the API server trusts.
async fn all_are_trusted(webhooks: &Webhooks, space: &Tenant, replicas: usize) {
    eventually("the API server trusts all replicas", async || {
        let shown = shown(webhooks, &trusted(space).await).await;
        (shown.len() == replicas && shown.iter().all(Option::is_some)).then_some(())
    })
    .await;
    // The API server uses a new bundle or replica a little after it accepts the object.
    eventually("the API server has heard of all of it", async || {
        try_many(space).await.iter().all(Result::is_ok).then_some(())
    })
    .await;
    admit_many(space).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_to_the_operators_own_certificate_or_from_it_does_not_wait_for_the_replica_that_leads() {
    let Some(webhooks) = alone().await else { return };
    let space = webhooks.namespace("upgrade").await;
    let given = foreign();
    let folder = webhooks.folder("upgrade");
    std::fs::write(folder.join("tls.crt"), &given.certificate).unwrap();
    std::fs::write(folder.join("tls.key"), &given.key).unwrap();
    let arguments = ["--webhook-certificates", folder.to_str().unwrap()];

    // From the operator's own certificate to a given one: the older replica leads, and is trusted until it
    // ends.
    trust(&space, &given.authorities).await;
    webhooks.put_operator(webhooks.operator("upgrade-given", &arguments).await);
    all_are_trusted(&webhooks, &space, 2).await;
    let leader = webhooks.take_operator();
    drop(webhooks.take_operator());
    webhooks.put_operator(leader);
    all_are_trusted(&webhooks, &space, 1).await;
    let bundle = String::from_utf8(trusted(&space).await).unwrap();
    assert!(
        bundle.contains(given.authorities.trim()),
        "what was given is trusted still"
    );

    // And back, while the replica with the given one leads: without a Secret, with another owner's
    // certificate in it, and with nonsense.
    let cert_manager = foreign();
    let data = |issued: &Issued| json!({ "tls.crt": issued.certificate, "tls.key": issued.key, "ca.crt": issued.authorities });
    let nonsense = json!({ "tls.crt": "none", "tls.key": "none", "ca.crt": "none" });
    for (at, left) in [None, Some(data(&cert_manager)), Some(nonsense)]
        .into_iter()
        .enumerate()
    {
        secrets(&space)
            .delete(SECRET, &DeleteParams::default())
            .await
            .unwrap();
        trust(&space, &given.authorities).await;
        if let Some(data) = left {
            let secret =
                json!({ "metadata": { "name": SECRET }, "type": "kubernetes.io/tls", "stringData": data });
            let secret = serde_json::from_value(secret).unwrap();
            secrets(&space)
                .create(&PostParams::default(), &secret)
                .await
                .unwrap();
        }
        // This waits until the replica is ready.
        let own = webhooks.operator(&format!("upgrade-own-{at}"), &[]).await;
        webhooks.put_operator(own);
        all_are_trusted(&webhooks, &space, 2).await;
        drop(webhooks.take_operator());
    }
    drop(webhooks.take_operator());
    webhooks.put_operator(webhooks.operator("upgrade-over", &[]).await);
    webhooks.wait_until_injected().await;
    space.leave().await;
}

/// The authority that the operator has made under the chart's former setting stays trusted until its replicas
/// are gone: the upgrade removes their right to the configuration.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_to_a_certificate_that_is_given_keeps_the_authority_of_the_operators_former_one() {
    let Some(webhooks) = alone().await else { return };
    let space = webhooks.namespace("former").await;
    let (former, given) = (issued(NAME, None), issued(NAME, None));
    // The Secret of a release that does not exist otherwise.
    let secret = json!({ "metadata": { "name": "former-lockkeeper-webhook" }, "stringData": { "ca.crt": former.authorities } });
    let secret = serde_json::from_value(secret).unwrap();
    secrets(&space)
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    let values = "zookeeper.connect=zookeeper:2181,webhook.certificates=secret,webhook.secretName=given,webhook.caBundle=";
    let helm = Helm::of(webhooks.cluster).unwrap();
    let template = [
        "template",
        "former",
        CHART,
        &format!("--namespace={SYSTEM}"),
        "--dry-run=server",
        "--show-only=templates/webhook.yaml",
        &format!("--set={values}{}", STANDARD.encode(&given.authorities)),
    ];
    let said = helm.run(&template).unwrap();
    assert!(said.is_done, "{}", said.words);
    let rendered: Value = serde_saphyr::from_str(&said.output).unwrap();
    for webhook in rendered["webhooks"].as_array().unwrap() {
        let bundle = STANDARD
            .decode(webhook["clientConfig"]["caBundle"].as_str().unwrap())
            .unwrap();
        let has = |authority: &str| {
            bundle
                .windows(authority.len())
                .any(|part| part == authority.as_bytes())
        };
        assert!(has(&former.authorities) && has(&given.authorities), "{webhook}");
    }
    secrets(&space)
        .delete("former-lockkeeper-webhook", &DeleteParams::default())
        .await
        .unwrap();
    space.leave().await;
}

#[test]
fn with_cert_manager_the_chart_asks_it_for_the_certificate_and_for_the_trust_in_it() {
    let Some(cluster) = Cluster::shared() else { return };
    let Ok(helm) = Helm::of(cluster) else { return };
    let text = helm.render(&["webhook"], &["webhook.certificates=certManager"]);
    let documents: Vec<Value> = text
        .split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect();
    let of_kind = |kind: &str| {
        documents
            .iter()
            .find(|document| document["kind"] == kind)
            .unwrap()
    };
    let configuration = of_kind("MutatingWebhookConfiguration");
    assert_eq!(
        configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"],
        "lockkeeper-system/lockkeeper-webhook"
    );
    // Every upgrade would restore a bundle that is in the chart.
    for webhook in configuration["webhooks"].as_array().unwrap() {
        assert_eq!(webhook["clientConfig"].get("caBundle"), None);
    }
    let certificate = &of_kind("Certificate")["spec"];
    assert_eq!(certificate["dnsNames"], json!([NAME]));
    assert_eq!(
        certificate["issuerRef"]["name"],
        of_kind("Issuer")["metadata"]["name"]
    );
    let operator = helm.render(&["deployment"], &["webhook.certificates=certManager"]);
    let operator: Value = serde_saphyr::from_str(&operator).unwrap();
    let volumes = operator["spec"]["template"]["spec"]["volumes"]
        .as_array()
        .unwrap();
    let mounted = volumes.iter().find(|volume| volume["name"] == "webhook").unwrap();
    assert_eq!(mounted["secret"]["secretName"], certificate["secretName"]);
}
