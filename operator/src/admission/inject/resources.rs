//! Resources of the sidecar, so that the pod keeps its class of service and its namespace's quota takes it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use lockkeeper_crds::keys::{SidecarResources, amount};
use serde_json::Value;

type Amounts = BTreeMap<String, Quantity>;

/// A kind of resource that a quota may require of every container.
struct Kind {
    name: &'static str,
    /// Whether it decides the class (`pkg/apis/core/helper/qos`).
    is_of_class: bool,
    /// What the sidecar asks for, if no setting says so and all other containers ask for some.
    request: &'static str,
    /// Its limit, if no setting says so and it needs one. A renewal takes about a millisecond: a tenth of a CPU lets ten of them through
    /// in each period of the scheduler. The kubelet keeps up to 50 MiB of a container's log, which count as ephemeral storage.
    limit: &'static str,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "cpu",
        is_of_class: true,
        request: "10m",
        limit: "100m",
    },
    Kind {
        name: "memory",
        is_of_class: true,
        request: "16Mi",
        limit: "64Mi",
    },
    Kind {
        name: "ephemeral-storage",
        is_of_class: false,
        request: "1Mi",
        limit: "128Mi",
    },
];

/// CPUs below which a wrapped container's guard may get its turn too late, if the application uses the limit up. Threads that
/// are over the limit take turns of some 4 ms in each period of 100 ms (`sched-bwc`): among forty of them the guard comes
/// within two periods here, which safety.md grants it, and later with less.
const LITTLE: f64 = 1.0;

/// The warning that a wrapped container has so little. Both are as in the object: of a pod with this `spec`, or of a workload
/// with such a template.
pub(crate) fn of_little_cpu(container: &Value, spec: &Value) -> Option<String> {
    let limit = match &container["resources"]["limits"]["cpu"] {
        Value::Null => return None,
        Value::String(limit) => limit.clone(),
        limit => limit.to_string(),
    };
    let is_little = amount(&limit).is_some_and(|limit| limit < LITTLE);
    (is_little && !has_precedence(container, spec)).then(|| {
        format!(
            "container `{}` shares its CPU limit of {limit} with its guard: an application that uses it up with many \
             threads may delay the guard beyond the end of the lease; give it a whole CPU or more, or no CPU limit",
            container["name"].as_str().unwrap_or_default()
        )
    })
}

/// Whether the guard may come before everything else, which no limit stops (safety.md). Capabilities are effective for root
/// only, and of an image's user nothing is known here.
fn has_precedence(container: &Value, spec: &Value) -> bool {
    let (own, of_pod) = (&container["securityContext"], &spec["securityContext"]);
    let user = own["runAsUser"].as_i64().or_else(|| of_pod["runAsUser"].as_i64());
    let added = own["capabilities"]["add"].as_array().into_iter().flatten();
    let is_enough = |one: &Value| ["ALL", "SYS_NICE", "CAP_SYS_NICE"].map(Value::from).contains(one);
    user == Some(0) && (own["privileged"] == true || added.into_iter().any(is_enough))
}

/// Classes of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// Resources of a sidecar in `pod` that has it not yet: `own` are those that the pod's user wants, `configured` those of the
/// administrator.
pub(crate) fn for_sidecar(
    pod: &Pod,
    own: Option<&SidecarResources>,
    configured: &ResourceRequirements,
) -> ResourceRequirements {
    let Some(spec) = &pod.spec else {
        return configured.clone();
    };
    // Resources of the whole pod decide its class, and may leave no room for another request; in the class BestEffort a request
    // would change it. A user who nevertheless wants some for the sidecar has set the annotation.
    if spec.resources.is_some() || class(spec) == Class::BestEffort {
        return own.map(stated).unwrap_or_default();
    }
    let wanted = own.map_or_else(|| configured.clone(), stated);
    let (mut requests, mut limits) = (
        wanted.requests.unwrap_or_default(),
        wanted.limits.unwrap_or_default(),
    );
    let all = containers(spec);
    let is_guaranteed = class(spec) == Class::Guaranteed;
    for kind in &KINDS {
        let equals = is_guaranteed && kind.is_of_class;
        // A quota on a kind requires it of every container, and a LimitRange with a default would set it for this
        // one, too. Both show in what the pod's own containers have.
        if equals || all.iter().all(|one| limit_of(one, kind.name).is_some()) {
            let request = requests.entry(kind.name.to_owned());
            let request = request
                .or_insert_with(|| Quantity(kind.request.to_owned()))
                .clone();
            let limit = limits.entry(kind.name.to_owned());
            let limit = limit
                .or_insert_with(|| larger(request, Quantity(kind.limit.to_owned())))
                .clone();
            if equals || amount(&requests[kind.name].0) > amount(&limit.0) {
                requests.insert(kind.name.to_owned(), limit);
            }
        } else if !limits.contains_key(kind.name)
            && all.iter().all(|one| request_of(one, kind.name).is_some())
        {
            let request = requests.entry(kind.name.to_owned());
            request.or_insert_with(|| Quantity(kind.request.to_owned()));
        }
    }
    let some = |amounts: Amounts| (!amounts.is_empty()).then_some(amounts);
    ResourceRequirements {
        requests: some(requests),
        limits: some(limits),
        claims: wanted.claims,
    }
}

fn stated(own: &SidecarResources) -> ResourceRequirements {
    let amounts = |of: &BTreeMap<String, String>| {
        let amounts = of
            .iter()
            .map(|(kind, text)| (kind.clone(), Quantity(text.clone())));
        (!of.is_empty()).then(|| amounts.collect())
    };
    ResourceRequirements {
        requests: amounts(&own.requests),
        limits: amounts(&own.limits),
        claims: None,
    }
}

fn larger(one: Quantity, other: Quantity) -> Quantity {
    match amount(&one.0) > amount(&other.0) {
        true => one,
        false => other,
    }
}

fn containers(spec: &PodSpec) -> Vec<&Container> {
    let inits = spec.init_containers.iter().flatten();
    inits.chain(&spec.containers).collect()
}

fn limit_of<'a>(container: &'a Container, kind: &str) -> Option<&'a Quantity> {
    container.resources.as_ref()?.limits.as_ref()?.get(kind)
}

/// Requests that are not given become the limits.
fn request_of<'a>(container: &'a Container, kind: &str) -> Option<&'a Quantity> {
    let requests = container.resources.as_ref().and_then(|own| own.requests.as_ref());
    requests
        .and_then(|requests| requests.get(kind))
        .or_else(|| limit_of(container, kind))
}

fn class(spec: &PodSpec) -> Class {
    let all = containers(spec);
    let of_class = || KINDS.iter().filter(|kind| kind.is_of_class).map(|kind| kind.name);
    let is_guaranteed = |container: &&Container| {
        of_class().all(|kind| {
            let limit = limit_of(container, kind);
            limit.is_some() && request_of(container, kind) == limit
        })
    };
    if all.iter().all(is_guaranteed) {
        Class::Guaranteed
    } else if all
        .iter()
        .any(|container| of_class().any(|kind| request_of(container, kind).is_some()))
    {
        Class::Burstable
    } else {
        Class::BestEffort
    }
}

#[cfg(test)]
mod tests;
