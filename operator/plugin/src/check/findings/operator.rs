//! The resource, the operator and its rights.

use std::num::ParseIntError;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;

use super::{Said, good, problem, unknown, warning};
use crate::check::installed::Read;

/// The label that says which version of a chart an object is of.
const VERSION: &str = "app.kubernetes.io/version";

pub(super) fn resource(found: Option<&CustomResourceDefinition>) -> Said {
    let Some(found) = found else {
        return problem("there is no resource DistributedLock: install the chart lockkeeper-crds");
    };
    let mut conditions = found
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    match conditions.find(|one| one.type_ == "Established") {
        Some(one) if one.status == "True" => good("the API server serves DistributedLocks"),
        one => problem(format!(
            "the API server does not serve DistributedLocks yet: {}",
            one.and_then(|one| one.message.as_deref())
                .unwrap_or("it gives no reason")
        )),
    }
}

pub(super) fn operator(found: &[Deployment]) -> Said {
    let named = |one: &Deployment| format!("{}/{}", one.namespace().unwrap_or_default(), one.name_any());
    let one = match found {
        [] => {
            return problem(
                "there is no operator, so no pod gets behind a lock: install the chart lockkeeper",
            );
        }
        [one] => one,
        some => {
            let names: Vec<_> = some.iter().map(named).collect();
            return problem(format!(
                "there are {} operators, and a cluster has one: {}",
                some.len(),
                names.join(", ")
            ));
        }
    };
    let wanted = one.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = one.status.clone().unwrap_or_default();
    let ready = status.ready_replicas.unwrap_or(0);
    let says = format!("{}: {ready} of {wanted} replicas are ready", named(one));
    let is_current = status.observed_generation >= one.metadata.generation
        && status.updated_replicas.unwrap_or(0) >= wanted;
    if ready == 0 {
        problem(format!(
            "{says}, so marked pods are refused: see `kubectl describe` and `kubectl logs` of its pods"
        ))
    } else if !is_current {
        let mut conditions = status.conditions.iter().flatten();
        let progress = conditions.find(|one| one.type_ == "Progressing");
        warning(format!(
            "{says}, and not all are of its newest template: {}",
            progress
                .and_then(|one| one.message.as_deref())
                .unwrap_or("an upgrade is under way")
        ))
    } else if ready < wanted {
        warning(says)
    } else {
        good(says)
    }
}

/// A resource that is newer than the operator is what an operator that was rolled back has.
pub(super) fn versions(
    resource: &Read<Option<CustomResourceDefinition>>,
    operators: &Read<Vec<Deployment>>,
    own: &str,
) -> Said {
    let (Ok(Some(resource)), Ok([operator])) = (resource, operators.as_deref()) else {
        return unknown("resource or operator are not known");
    };
    let of = |labels: &std::collections::BTreeMap<String, String>| {
        let version = labels.get(VERSION)?.clone();
        Some((numbers(&version).ok()?, version))
    };
    let (Some((of_resource, resource)), Some((of_operator, operator))) =
        (of(resource.labels()), of(operator.labels()))
    else {
        return unknown(format!(
            "resource or operator have no version in their label {VERSION}"
        ));
    };
    if of_resource < of_operator {
        problem(format!(
            "the chart lockkeeper-crds has the version {resource}, and lockkeeper {operator}: upgrade lockkeeper-crds"
        ))
    } else if of_resource > of_operator {
        warning(format!(
            "the chart lockkeeper-crds has the version {resource}, and lockkeeper {operator}: upgrade lockkeeper, unless \
             you have rolled it back"
        ))
    } else if operator != own {
        warning(format!(
            "the charts have the version {operator}, and this plug-in {own}: it may not know all that a status says"
        ))
    } else {
        good(format!("both charts and the plug-in have the version {own}"))
    }
}

/// The numbers of a version, without what may follow them (`1.2.3-rc.1`).
fn numbers(version: &str) -> Result<Vec<u32>, ParseIntError> {
    let end = version.find(['-', '+']).unwrap_or(version.len());
    version[..end].split('.').map(str::parse).collect()
}

pub(super) fn rights(lacking: &[String]) -> Said {
    match lacking {
        [] => good("the operator has the rights that its work takes"),
        some => problem(format!(
            "the operator may not {}: the chart lockkeeper has its role",
            some.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Verdict, object};
    use super::*;
    use crate::check::installed::{is_operator, sidecar_image};
    use serde_json::json;

    fn crd(version: &str, established: &str) -> CustomResourceDefinition {
        object(json!({
            "metadata": {"name": "distributedlocks.lockkeeper.io", "labels": {VERSION: version}},
            "spec": {"group": "g", "scope": "Namespaced", "versions": [], "names": {"kind": "K", "plural": "k"}},
            "status": {"conditions": [{"type": "Established", "status": established, "message": "not now"}]},
        }))
    }

    fn deployment(version: &str, ready: i32, updated: i32) -> Deployment {
        object(json!({
            "metadata": {"name": "a", "namespace": "ours", "labels": {VERSION: version}, "generation": 3},
            "spec": {"replicas": 2, "selector": {}, "template": {
                "metadata": {"labels": {"app.kubernetes.io/component": "operator"}},
                "spec": {"containers": [
                    {"name": "operator", "env": [{"name": "LOCKKEEPER_SIDECAR_IMAGE", "value": "lockkeeper:2"}]},
                ]},
            }},
            "status": {
                "readyReplicas": ready, "updatedReplicas": updated, "observedGeneration": 3,
                "conditions": [{"type": "Progressing", "status": "True", "message": "no image"}],
            },
        }))
    }

    #[test]
    fn the_operator_is_known_by_its_pods() {
        let mut one = deployment("1", 2, 2);
        assert!(is_operator(&one));
        assert_eq!(sidecar_image(&one).as_deref(), Some("lockkeeper:2"));
        one.spec.as_mut().unwrap().template.metadata = None;
        assert!(!is_operator(&one));
    }

    #[test]
    fn a_missing_resource_and_one_that_is_not_served_are_problems() {
        assert_eq!(resource(Some(&crd("1", "True"))).0, Verdict::Good);
        let (verdict, says) = resource(Some(&crd("1", "False")));
        assert!(verdict == Verdict::Problem && says.ends_with("not now"), "{says}");
        let (verdict, says) = resource(None);
        assert!(
            verdict == Verdict::Problem && says.contains("lockkeeper-crds"),
            "{says}"
        );
    }

    #[test]
    fn an_operator_is_there_once_and_ready_and_up_to_date() {
        assert_eq!(
            operator(&[deployment("1", 2, 2)]),
            good("ours/a: 2 of 2 replicas are ready")
        );
        assert_eq!(operator(&[deployment("1", 1, 2)]).0, Verdict::Warning);
        let (verdict, says) = operator(&[deployment("1", 2, 1)]);
        assert!(
            verdict == Verdict::Warning && says.ends_with("no image"),
            "{says}"
        );
        let (verdict, says) = operator(&[deployment("1", 0, 2)]);
        assert!(
            verdict == Verdict::Problem && says.contains("are refused"),
            "{says}"
        );
        assert_eq!(operator(&[]).0, Verdict::Problem);
        let (verdict, says) = operator(&[deployment("1", 2, 2), deployment("1", 2, 2)]);
        assert!(
            verdict == Verdict::Problem && says.ends_with("ours/a, ours/a"),
            "{says}"
        );
    }

    #[test]
    fn only_a_resource_that_is_older_than_the_operator_is_a_problem() {
        let of = |resource: &str, operator: &str, own: &str| {
            versions(
                &Ok(Some(crd(resource, "True"))),
                &Ok(vec![deployment(operator, 2, 2)]),
                own,
            )
        };
        assert_eq!(of("0.9.0", "0.9.0", "0.9.0").0, Verdict::Good);
        assert_eq!(of("0.9.0", "0.9.0", "1.0.0").0, Verdict::Warning);
        assert_eq!(of("0.10.0", "0.9.0", "0.9.0").0, Verdict::Warning);
        let (verdict, says) = of("0.9.0", "0.10.0-rc.1", "0.10.0");
        assert!(
            verdict == Verdict::Problem && says.ends_with("upgrade lockkeeper-crds"),
            "{says}"
        );
        assert_eq!(of("", "1", "1").0, Verdict::Unknown);
        assert_eq!(
            versions(&Err("no".to_owned()), &Ok(vec![]), "1").0,
            Verdict::Unknown
        );
    }

    #[test]
    fn a_right_that_the_operator_lacks_is_named() {
        assert_eq!(rights(&[]).0, Verdict::Good);
        let (verdict, says) = rights(&["list pods".to_owned()]);
        assert!(
            verdict == Verdict::Problem && says.contains("may not list pods"),
            "{says}"
        );
    }
}
