//! Reads an installation from the API server.

use std::fmt::Debug;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use lockkeeper_crds::{DistributedLock, keys};
use lockkeeper_daemon::exit::Failure;
use lockkeeper_daemon::table::cut;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::installed::{Installation, Locks, Read, Sidecars, is_operator, sidecar_image};
use crate::problem::failed;

/// What the chart `lockkeeper` labels its objects with.
const OURS: &str = "app.kubernetes.io/name=lockkeeper";
const RESOURCE: &str = "distributedlocks.lockkeeper.io";

/// Objects of one answer: a lock or a pod may have a megabyte.
const PAGE: u32 = 100;

/// Characters of an answer that is quoted.
const LONGEST: usize = 300;

/// What the operator cannot do without, from the role in its chart: group, resource, its name, verbs.
const RIGHTS: [(&str, &str, &str, &[&str]); 12] = [
    (
        "lockkeeper.io",
        "distributedlocks",
        "",
        &["list", "watch", "create", "patch"],
    ),
    ("lockkeeper.io", "distributedlocks/status", "", &["patch"]),
    ("", "pods", "", &["list", "watch", "patch"]),
    ("", "secrets", "", &["create"]),
    (
        "",
        "secrets",
        "lockkeeper-zookeeper",
        &["get", "list", "watch", "patch"],
    ),
    ("", "namespaces", "kube-system", &["get"]),
    ("apps", "deployments", "", &["get"]),
    ("apps", "statefulsets", "", &["get"]),
    ("apps", "daemonsets", "", &["get"]),
    ("apps", "replicasets", "", &["list"]),
    ("apps", "controllerrevisions", "", &["list"]),
    ("events.k8s.io", "events", "", &["create", "patch"]),
];

/// # Errors
/// When the API server does not answer at all.
pub(super) async fn installation(client: &Client, namespace: &str) -> Result<Installation, Failure> {
    let resource = match Api::all(client.clone()).get_opt(RESOURCE).await {
        Err(error) if !matches!(error, kube::Error::Api(_)) => {
            return Err(failed("read the installation", &error));
        }
        answer => told(answer),
    };
    let webhooks: Read<Vec<MutatingWebhookConfiguration>> = list(Api::all(client.clone())).await;
    // Tenants may label Deployments of their own, and not these webhooks.
    let served_in = webhooks.as_ref().ok().and_then(|found| namespace_of(found));
    let operators = match served_in {
        Some(namespace) => list(Api::namespaced(client.clone(), &namespace)).await,
        None => list(Api::all(client.clone())).await,
    };
    let operators = operators.map(|mut all: Vec<Deployment>| {
        all.retain(is_operator);
        all
    });
    let policies = match (
        list(Api::all(client.clone())).await,
        list(Api::all(client.clone())).await,
    ) {
        (Ok(policies), Ok(bindings)) => Ok((policies, bindings)),
        (Err(why), _) | (_, Err(why)) => Err(why),
    };
    Ok(Installation {
        resource,
        lacking: match operators.as_deref() {
            Ok([operator]) => lacking(client, operator).await,
            _ => Err("the operator is not known".to_owned()),
        },
        webhooks,
        tried: try_pod(&Api::namespaced(client.clone(), namespace)).await,
        policies,
        locks: locks(&Api::all(client.clone())).await,
        sidecars: match operators.as_deref() {
            Ok([operator]) => sidecars(&Api::all(client.clone()), operator).await,
            _ => Err("the sidecar that the operator injects is not known".to_owned()),
        },
        operators,
    })
}

async fn lacking(client: &Client, operator: &Deployment) -> Read<Vec<String>> {
    let pod = operator
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref());
    let account = pod
        .and_then(|pod| pod.service_account_name.as_deref())
        .unwrap_or("default");
    let namespace = operator.namespace().unwrap_or_default();
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let mut lacking = Vec::new();
    for (group, resource, name, verbs) in RIGHTS {
        let (kind, part) = resource.split_once('/').unwrap_or((resource, ""));
        for verb in verbs {
            let asked = ResourceAttributes {
                group: Some(group.to_owned()),
                resource: Some(kind.to_owned()),
                subresource: Some(part.to_owned()),
                name: Some(name.to_owned()),
                verb: Some((*verb).to_owned()),
                ..ResourceAttributes::default()
            };
            // The groups that an API server puts each service account into.
            let groups = [
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ];
            let review = SubjectAccessReview {
                spec: SubjectAccessReviewSpec {
                    user: Some(format!("system:serviceaccount:{namespace}:{account}")),
                    groups: Some(groups.into()),
                    resource_attributes: Some(asked),
                    ..SubjectAccessReviewSpec::default()
                },
                ..SubjectAccessReview::default()
            };
            let answer = told(reviews.create(&PostParams::default(), &review).await)?;
            let status = answer.status.unwrap_or_default();
            match status.evaluation_error {
                _ if status.allowed => {}
                Some(error) => return Err(cut(&error, LONGEST)),
                None => lacking.push(format!("{verb} {resource} {name}").trim_end().to_owned()),
            }
        }
    }
    Ok(lacking)
}

/// A marked pod, which the API server would create if this were no dry run.
async fn try_pod(pods: &Api<Pod>) -> Read<Pod> {
    let pod = json!({
        "metadata": {"generateName": "lockkeeper-check-", "annotations": {keys::LOCK: "lockkeeper-check"}},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "check",
                "image": "check.invalid/check:1",
                "command": ["/check"],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    });
    let pod = serde_json::from_value(pod).expect("a pod");
    let parameters = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    told(pods.create(&parameters, &pod).await)
}

async fn locks(api: &Api<DistributedLock>) -> Read<Locks> {
    let mut locks = Locks::default();
    let now = Timestamp::now();
    each(api, "", |lock| locks.add(lock, now)).await?;
    Ok(locks)
}

async fn sidecars(api: &Api<Pod>, operator: &Deployment) -> Read<Sidecars> {
    let injected = sidecar_image(operator).ok_or("the sidecar that the operator injects is not known")?;
    let mut sidecars = Sidecars::of(injected);
    each(api, keys::LOCK, |pod| sidecars.add(pod)).await?;
    Ok(sidecars)
}

/// The namespace of the service behind the webhooks.
fn namespace_of(webhooks: &[MutatingWebhookConfiguration]) -> Option<String> {
    let mut all = webhooks.iter().flat_map(|one| one.webhooks.iter().flatten());
    all.find_map(|one| Some(one.client_config.service.as_ref()?.namespace.clone()))
}

/// Objects of the chart.
async fn list<K>(api: Api<K>) -> Read<Vec<K>>
where
    K: Clone + DeserializeOwned + Debug,
{
    let parameters = ListParams::default().labels(OURS).limit(PAGE);
    Ok(told(api.list(&parameters).await)?.items)
}

/// All of a kind with this label, page after page.
async fn each<K>(api: &Api<K>, selector: &str, mut see: impl FnMut(&K)) -> Read<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut parameters = ListParams::default().labels(selector).limit(PAGE);
    loop {
        let page = told(api.list(&parameters).await)?;
        page.items.iter().for_each(&mut see);
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => parameters.continue_token = Some(token),
            _ => return Ok(()),
        }
    }
}

fn told<T>(answer: kube::Result<T>) -> Read<T> {
    answer.map_err(|error| match error {
        kube::Error::Api(status) => cut(&status.message, LONGEST),
        other => cut(&other.to_string(), LONGEST),
    })
}
