//! The end of an installation, as hooks of the chart. No workload may be behind a lock then, since it would run
//! without the lock; and no object may be left that waits for an operator.

use std::time::Duration;

use clap::{Parser, Subcommand};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, Resource, ResourceExt};
use lockkeeper_crds::DistributedLock;
use lockkeeper_crds::keys::{self, FINALIZER};
use lockkeeper_daemon::exit::Failure;
use lockkeeper_daemon::sentence::first;
use serde::de::DeserializeOwned;

use crate::kubernetes::answers;
use crate::kubernetes::objects::{self, Finalizers, LockPart, PAGE, PodPart};
use crate::kubernetes::pods::PodFacts;

/// Objects that are named in a refusal; more are counted.
const NAMED: usize = 20;

/// Rounds over all finalizers: an operator that is ending may put one back until its rights are gone everywhere.
const ROUNDS: usize = 5;

/// Time between two of these.
const PAUSE: Duration = Duration::from_secs(1);

/// Removes the operator in the right order: what the hooks of its chart do
#[derive(Debug, Parser)]
#[command(name = "lockkeeper-operator uninstall")]
pub struct UninstallArgs {
    /// When
    #[command(subcommand)]
    pub(crate) step: Step,
}

/// When.
#[derive(Debug, Subcommand)]
pub(crate) enum Step {
    /// Before: fail while a workload is behind a lock; change nothing
    Before {
        /// Name of the helm release, for the message
        #[arg(long, value_name = "NAME")]
        release: String,
        /// Namespace of the release
        #[arg(long, value_name = "NAMESPACE")]
        namespace: String,
    },
    /// After: delete the policies that refuse unguarded pods, and remove the finalizers, so that all DistributedLocks can be
    /// deleted; fail while the operator is installed
    After {
        /// ValidatingAdmissionPolicy, with its binding, that stays when the chart is removed; may be given more than once
        #[arg(long = "policy", value_name = "NAME", required = true)]
        policies: Vec<String>,
        /// Deployment of the operator, which is gone by then
        #[arg(long, value_name = "NAME")]
        deployment: String,
        /// Namespace of that Deployment
        #[arg(long, value_name = "NAMESPACE")]
        namespace: String,
    },
}

impl UninstallArgs {
    /// Does it.
    ///
    /// # Errors
    /// What is behind a lock; or what the API server does not answer.
    pub async fn run(self) -> Result<(), Failure> {
        let client = Client::try_default()
            .await
            .map_err(|error| Failure::unavailable(format!("there is no way to the API server: {error}")))?;
        let client = answers::bounded(client);
        match self.step {
            Step::Before { release, namespace } => {
                before(&client, &format!("{release} --namespace {namespace}")).await
            }
            Step::After {
                policies,
                deployment,
                namespace,
            } => {
                is_gone(&client, &namespace, &deployment).await?;
                after(&client, &policies).await
            }
        }
    }
}

/// Helm calls this and [`after`], and they write without a lease: one process does it, once, and there may be no operator
/// any more that could lead.
async fn before(client: &Client, release: &str) -> Result<(), Failure> {
    let marked = marked(client).await?;
    match marked.is_empty() {
        true => Ok(()),
        false => Err(Failure::usage(refusal(&marked, release))),
    }
}

/// `helm template | kubectl apply` makes plain objects of the hooks, and so runs them at once: what may only go with the
/// operator stays as long as it is installed. Helm has deleted its Deployment before this hook.
async fn is_gone(client: &Client, namespace: &str, deployment: &str) -> Result<(), Failure> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().fields(&format!("metadata.name={deployment}"));
    let found = api
        .list(&params)
        .await
        .map_err(|error| failed("list deployments", &error))?;
    let is_installed = |found: &Deployment| found.metadata.deletion_timestamp.is_none();
    if found.items.iter().any(is_installed) {
        return Err(Failure::usage(format!(
            "nothing was changed, because the operator is installed (deployment {namespace}/{deployment}): this \
             removes what may only go with it. It is a hook of helm, for after the end of the release. If a tool has \
             applied it as a plain object, render the chart with helm template --no-hooks"
        )));
    }
    Ok(())
}

/// `release` is the release as an argument of helm. Before helm runs this hook it has recorded that the release is
/// being uninstalled (`pkg/action/hooks.go`, `recordRelease`), and then refuses to upgrade it (`prepareUpgrade`). A
/// rollback makes a new revision whatever the last one is.
fn refusal(marked: &[String], release: &str) -> String {
    format!(
        "the operator was not removed, because without it these would run without their locks: {}. Scale them to zero, \
         remove {} from them, wait until their pods are gone, and uninstall again. Or keep the release: run `helm \
         rollback {release} REVISION` with the newest revision of `helm history {release}`, because helm refuses \
         upgrades before that. Or allow them to run without locks: after that rollback, helm upgrade \
         --reset-then-reuse-values --set uninstall.allowUnguarded=true, and uninstall again",
        first(marked, NAMED),
        keys::LOCK
    )
}

/// What is behind a lock, or would be when it makes its next pod.
async fn marked(client: &Client) -> Result<Vec<String>, Failure> {
    let mut marked = Vec::new();
    let template = |spec: Option<ObjectMeta>| spec.unwrap_or_default();
    let add = |marked: &mut Vec<String>, kind: &str, found: Vec<ObjectMeta>| {
        marked.extend(found.into_iter().map(|of| {
            let (namespace, name) = (of.namespace.unwrap_or_default(), of.name.unwrap_or_default());
            format!("{kind} {namespace}/{name}")
        }));
    };
    let found = named::<Deployment>(client, |one| {
        template(one.spec.clone().and_then(|spec| spec.template.metadata))
    });
    add(&mut marked, "deployment", found.await?);
    let found = named::<StatefulSet>(client, |one| {
        template(one.spec.clone().and_then(|spec| spec.template.metadata))
    });
    add(&mut marked, "statefulset", found.await?);
    let found = named::<DaemonSet>(client, |one| {
        template(one.spec.clone().and_then(|spec| spec.template.metadata))
    });
    add(&mut marked, "daemonset", found.await?);
    let found = named::<CronJob>(client, |one| {
        let job = one.spec.clone().job_template.spec;
        template(job.and_then(|job| job.template.metadata))
    });
    add(&mut marked, "cronjob", found.await?);
    // Of a Deployment's the newest one counts, and its template is the Deployment's own. Another controller (an Argo
    // Rollout) is no kind that is looked at: what it makes its next pods from is here, also while that is at zero.
    let found = named::<ReplicaSet>(client, |one| match is_of_a_deployment(one) {
        true => ObjectMeta::default(),
        false => template(
            one.spec
                .clone()
                .and_then(|spec| spec.template)
                .and_then(|template| template.metadata),
        ),
    });
    add(&mut marked, "replicaset", found.await?);
    let found = named::<Job>(client, |one| {
        let is_over = one.status.as_ref().is_some_and(|status| {
            let mut conditions = status.conditions.iter().flatten();
            conditions.any(|one| ["Complete", "Failed"].contains(&&*one.type_) && one.status == "True")
        });
        match is_over {
            true => ObjectMeta::default(),
            false => template(one.spec.clone().and_then(|spec| spec.template.metadata)),
        }
    });
    add(&mut marked, "job", found.await?);
    let found = named::<PodPart>(client, |one| match PodFacts::of(one).is_over {
        true => ObjectMeta::default(),
        false => one.metadata.clone(),
    });
    add(&mut marked, "pod", found.await?);
    Ok(marked)
}

fn is_of_a_deployment(one: &ReplicaSet) -> bool {
    let mut owners = one.owner_references().iter();
    owners.any(|owner| owner.controller == Some(true) && objects::is_deployment(owner))
}

/// The objects of a kind whose pods name a lock.
async fn named<K>(client: &Client, of_pods: impl Fn(&K) -> ObjectMeta) -> Result<Vec<ObjectMeta>, Failure>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = api
            .list(&params)
            .await
            .map_err(|error| failed(&format!("list {}", K::plural(&())), &error))?;
        let names_a_lock = |one: &&K| {
            let of_pods = of_pods(one);
            let maps = [of_pods.annotations, of_pods.labels];
            maps.into_iter().flatten().any(|map| map.contains_key(keys::LOCK))
        };
        found.extend(
            page.items
                .iter()
                .filter(names_a_lock)
                .map(|one| one.meta().clone()),
        );
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

async fn delete<K>(client: &Client, name: &str) -> Result<(), Failure>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(failed(&format!("delete {} {name}", K::kind(&())), &error)),
    }
}

async fn after(client: &Client, policies: &[String]) -> Result<(), Failure> {
    for policy in policies {
        delete::<ValidatingAdmissionPolicyBinding>(client, policy).await?;
        delete::<ValidatingAdmissionPolicy>(client, policy).await?;
    }
    for _ in 0..ROUNDS {
        let locks: Api<LockPart> = Api::all(client.clone());
        let mut kept = Vec::new();
        let take = |lock: LockPart| {
            if lock.finalizers().iter().any(|name| name == FINALIZER) {
                kept.push(lock);
            }
        };
        let is_all = match objects::list(&locks, ListParams::default(), take).await {
            Ok(is_all) => is_all,
            // The resource went with its chart.
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            Err(error) => return Err(failed("list distributedlocks", &error)),
        };
        for lock in &kept {
            let_go(client, lock).await?;
        }
        if is_all && kept.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Failure::unavailable(format!(
        "the finalizer {FINALIZER} comes back on DistributedLocks: is an operator still running? See kubectl get \
         pods --all-namespaces --selector app.kubernetes.io/name=lockkeeper"
    )))
}

async fn let_go(client: &Client, lock: &LockPart) -> Result<(), Failure> {
    let (namespace, name) = (lock.namespace().unwrap_or_default(), lock.name_any());
    let now = Finalizers::of(client, &namespace, &name).await;
    let now = now.map_err(|error| failed("list a DistributedLock", &error))?;
    let Some(patch) = now.and_then(|now| now.patch(false, lock.resource_version())) else {
        return Ok(());
    };
    let patched = objects::patch::<DistributedLock>(client, &namespace, &name, &patch).await;
    match patched {
        Ok(_) => Ok(()),
        // It is gone, or the next round sees it as it is.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => Err(failed("take the finalizer off a DistributedLock", &error)),
    }
}

fn failed(what: &str, error: &kube::Error) -> Failure {
    Failure::unavailable(format!("cannot {what}: {error}"))
}

#[cfg(test)]
mod tests;
