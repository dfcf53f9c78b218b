//! Reads the workload of a lock, for the decision whether a rollout moves the lock.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::api::ListParams;
use kube::core::{NamespaceResourceScope, Selector};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::controller::error::Error;
use crate::controller::rollout::Workload;
use crate::kubernetes::objects::{
    self, ControllerRevisionPart, DaemonSetPart, DeploymentPart, REVISION, ReplicaSetPart, StatefulSetPart,
};
use crate::kubernetes::pods::Owner;
use crate::kubernetes::reader::Reader;

/// Reads a workload from the API server: a cache that lags would move the lock to a revision that was rolled back.
pub(super) async fn workload(
    reader: &Reader,
    namespace: &str,
    owner: &Owner,
) -> Result<Option<Workload>, Error> {
    match owner {
        Owner::Deployment(name) => deployment(reader, namespace, name).await,
        Owner::StatefulSet(name) => {
            let found = reader
                .get::<StatefulSetPart>(namespace, name)
                .await
                .map_err(Error::reading("a StatefulSet"))?;
            Ok(found.map(|set| {
                let spec = set.spec.unwrap_or_default();
                let rolling = spec.update_strategy.rolling_update.unwrap_or_default();
                let start = spec.ordinals.and_then(|ordinals| ordinals.start).unwrap_or(0);
                Workload::StatefulSet {
                    is_on_delete: is_on_delete(spec.update_strategy.r#type.as_ref()),
                    first_updated: start + rolling.partition.unwrap_or(0),
                    current: set.status.and_then(|status| status.update_revision),
                }
            }))
        }
        Owner::DaemonSet(name) => {
            let found = reader
                .get::<DaemonSetPart>(namespace, name)
                .await
                .map_err(Error::reading("a DaemonSet"))?;
            let Some(set) = found else { return Ok(None) };
            let uid = set.uid();
            let spec = set.spec.unwrap_or_default();
            let number = |revision: &ControllerRevisionPart| Some(revision.revision);
            let newest = newest(reader, namespace, &spec.selector, uid.as_deref(), number).await;
            let newest = newest.map_err(Error::reading("ControllerRevisions"))?;
            Ok(Some(Workload::DaemonSet {
                is_on_delete: is_on_delete(spec.update_strategy.r#type.as_ref()),
                current: newest
                    .and_then(|revision| revision.labels().get("controller-revision-hash").cloned()),
            }))
        }
    }
}

async fn deployment(reader: &Reader, namespace: &str, name: &str) -> Result<Option<Workload>, Error> {
    let found = reader
        .get::<DeploymentPart>(namespace, name)
        .await
        .map_err(Error::reading("a Deployment"))?;
    let Some(deployment) = found else { return Ok(None) };
    let uid = deployment.uid();
    let spec = deployment.spec.unwrap_or_default();
    let number = |set: &ReplicaSetPart| set.annotations().get(REVISION)?.parse().ok();
    let newest = newest(reader, namespace, &spec.selector, uid.as_deref(), number).await;
    let newest = newest.map_err(Error::reading("ReplicaSets"))?;
    Ok(Some(Workload::Deployment {
        is_paused: spec.paused.unwrap_or(false),
        current: newest.and_then(|set| set.labels().get("pod-template-hash").cloned()),
    }))
}

fn is_on_delete(strategy: Option<&objects::Word>) -> bool {
    strategy.is_some_and(|strategy| strategy.0 == "OnDelete")
}

/// The one with the highest number of those that a workload owns; `None`, too, when there are more than are read: then
/// it is not known which is current, and nothing is handed over.
async fn newest<P>(
    reader: &Reader,
    namespace: &str,
    selector: &LabelSelector,
    uid: Option<&str>,
    number: impl Fn(&P) -> Option<i64>,
) -> Result<Option<P>, kube::Error>
where
    P: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    P: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut newest: Option<(Option<i64>, P)> = None;
    let take = |one: P| {
        let this = number(&one);
        let is_newer = newest.as_ref().is_none_or(|(number, _)| this >= *number);
        if is_newer && is_owned(one.owner_references(), uid) {
            newest = Some((this, one));
        }
    };
    let is_all = reader.list(namespace, selected(selector), take).await?;
    Ok(newest.filter(|_| is_all).map(|(_, one)| one))
}

fn selected(selector: &LabelSelector) -> ListParams {
    // Every selector of the API can be converted; if one cannot, all are listed and filtered.
    match Selector::try_from(selector.clone()) {
        Ok(selector) => ListParams::default().labels_from(&selector),
        Err(_) => ListParams::default(),
    }
}

fn is_owned(owners: &[OwnerReference], uid: Option<&str>) -> bool {
    owners
        .iter()
        .any(|owner| owner.controller == Some(true) && Some(owner.uid.as_str()) == uid)
}
