//! Resources of the sidecar, so that the pod keeps its class of service.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// What decides the class (`pkg/apis/core/helper/qos`).
const CLASS_RESOURCES: [&str; 2] = ["cpu", "memory"];

/// CPU of the sidecar in a `Guaranteed` pod, where a limit cannot be left out. A renewal takes about a
/// millisecond; a tenth of a CPU lets ten of them through in each period of the scheduler.
const GUARANTEED_CPU: &str = "100m";
/// Memory, if the configuration has neither request nor limit.
const GUARANTEED_MEMORY: &str = "64Mi";

/// Classes of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// Resources of a sidecar in `pod` that has it not yet.
pub fn for_sidecar(pod: &Pod, configured: &ResourceRequirements) -> ResourceRequirements {
    let Some(spec) = &pod.spec else {
        return configured.clone();
    };
    // Resources of the whole pod decide its class, and may leave no room for another request.
    if spec.resources.is_some() {
        return ResourceRequirements::default();
    }
    match class(spec) {
        Class::BestEffort => ResourceRequirements::default(),
        Class::Burstable => configured.clone(),
        Class::Guaranteed => {
            let amount = |name: &str, least: &str| {
                let of = |map: &Option<BTreeMap<String, Quantity>>| map.as_ref()?.get(name).cloned();
                let chosen =
                    of(&configured.limits).or_else(|| of(&configured.requests).filter(|_| name == "memory"));
                (
                    name.to_owned(),
                    chosen.unwrap_or_else(|| Quantity(least.to_owned())),
                )
            };
            let amounts =
                BTreeMap::from([amount("cpu", GUARANTEED_CPU), amount("memory", GUARANTEED_MEMORY)]);
            ResourceRequirements {
                limits: Some(amounts.clone()),
                requests: Some(amounts),
                ..ResourceRequirements::default()
            }
        }
    }
}

fn class(spec: &PodSpec) -> Class {
    let all: Vec<&Container> = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
        .collect();
    let amounts = |container: &Container| {
        let resources = container.resources.clone().unwrap_or_default();
        (
            resources.limits.unwrap_or_default(),
            resources.requests.unwrap_or_default(),
        )
    };
    let is_set =
        |map: &BTreeMap<String, Quantity>| CLASS_RESOURCES.iter().any(|name| map.contains_key(*name));
    let is_guaranteed = |container: &&Container| {
        let (limits, requests) = amounts(container);
        // Requests that are not given become the limits.
        CLASS_RESOURCES
            .iter()
            .all(|name| match (limits.get(*name), requests.get(*name)) {
                (Some(limit), Some(request)) => limit == request,
                (limit, _) => limit.is_some(),
            })
    };
    if all.iter().all(is_guaranteed) {
        Class::Guaranteed
    } else if all.iter().any(|container| {
        let (limits, requests) = amounts(container);
        is_set(&limits) || is_set(&requests)
    }) {
        Class::Burstable
    } else {
        Class::BestEffort
    }
}
