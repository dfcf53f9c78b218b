//! Webhooks and policies: what puts pods behind locks, and refuses those that are not.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use lockkeeper_crds::keys;
use lockkeeper_daemon::table::age;
use x509_parser::pem::Pem;

use super::{Said, good, problem, unknown, warning};
use crate::check::installed::{Read, is_guarded};

/// The webhook that puts pods behind their locks.
const PODS: &str = "pods.lockkeeper.io";

/// The webhooks of the chart, and whether a request is refused if one does not answer.
const WEBHOOKS: [(&str, bool); 3] = [
    (PODS, true),
    ("keys.lockkeeper.io", true),
    ("workloads.lockkeeper.io", false),
];

/// The ends of the names of the policies that refuse what a webhook that is gone would have changed, with what they refuse.
const POLICIES: [(&str, &str); 2] = [
    ("-guarded", "marked pods without the sidecar"),
    (
        "-workloads",
        "changes by which running pods would leave their lock",
    ),
];

/// An authority expires soon in the last fifth of its life, and in its last three weeks if that is less: as in the alert
/// `WebhookCertificateNotRenewed`.
const LAST_PART: i64 = 5;
const SOON: i64 = 21 * 86_400;

fn all(found: &[MutatingWebhookConfiguration]) -> impl Iterator<Item = &MutatingWebhook> {
    found.iter().flat_map(|one| one.webhooks.iter().flatten())
}

pub(super) fn webhooks(found: &[MutatingWebhookConfiguration]) -> Said {
    for (name, refuses) in WEBHOOKS {
        let Some(one) = all(found).find(|one| one.name == name) else {
            return problem(format!(
                "there is no webhook {name}, so pods may not get behind their locks: upgrade the chart lockkeeper"
            ));
        };
        if refuses
            && one
                .failure_policy
                .as_deref()
                .is_some_and(|policy| policy != "Fail")
        {
            return problem(format!(
                "the failurePolicy of {name} is not Fail: while the operator does not answer, pods may run without their locks"
            ));
        }
        let bundle = one.client_config.ca_bundle.as_ref();
        if bundle.is_none_or(|bundle| bundle.0.is_empty()) {
            return problem(format!(
                "{name} has no caBundle, so no API server trusts it: the operator, cert-manager or you write it, as the \
                 value webhook.certificates of the chart says"
            ));
        }
    }
    good("all are there, with their authorities")
}

/// In each bundle the authority that is valid longest counts. A former one may be beside it.
pub(super) fn authorities(found: &[MutatingWebhookConfiguration], now: Timestamp) -> Said {
    let now = now.as_second();
    let mut least: Option<(i64, bool)> = None;
    for (name, bundle) in
        all(found).filter_map(|one| Some((&one.name, one.client_config.ca_bundle.as_ref()?)))
    {
        let valid = Pem::iter_from_buffer(&bundle.0).filter_map(|pem| {
            let pem = pem.ok()?;
            let validity = pem.parse_x509().ok()?.validity().clone();
            let (begin, end) = (validity.not_before.timestamp(), validity.not_after.timestamp());
            (begin <= now && now < end)
                .then_some((end - now, end - now < SOON.min((end - begin) / LAST_PART)))
        });
        match valid.max() {
            Some(one) => least = Some(least.map_or(one, |before| before.min(one))),
            None => {
                return problem(format!(
                    "no authority in the caBundle of {name} is valid now, so marked pods are refused"
                ));
            }
        }
    }
    let Some((left, is_soon)) = least else {
        return unknown("no webhook has a caBundle");
    };
    let left = age(Duration::from_secs(left.unsigned_abs()));
    let says = format!("valid for another {left}");
    if is_soon { warning(says) } else { good(says) }
}

/// What became of a marked pod that was tried.
pub(super) fn injection(tried: &Read<Pod>) -> Said {
    match tried {
        Ok(pod) if is_guarded(pod) => good("a marked pod gets the sidecar (tried without creating it)"),
        Ok(_) => problem(format!(
            "a marked pod would be created without the sidecar, and run without its lock: the namespace has the label {}: \
             disabled, or the chart leaves it out (webhook.excludedNamespaces)",
            keys::INJECTION
        )),
        // The API server names the webhook, which may be another one than ours.
        Err(why) if why.contains(&format!("failed calling webhook \"{PODS}\"")) => problem(format!(
            "the API server does not reach the webhook, so marked pods are refused: {why}"
        )),
        Err(why) => unknown(format!(
            "the current namespace refuses a marked pod: {why}; name one with guarded pods (--namespace)"
        )),
    }
}

pub(super) fn policies(
    policies: &[ValidatingAdmissionPolicy],
    bindings: &[ValidatingAdmissionPolicyBinding],
) -> Said {
    for (end, refuses) in POLICIES {
        let of_policy: Vec<_> = policies
            .iter()
            .filter(|one| one.name_any().ends_with(end))
            .filter(|one| {
                let policy = one.spec.as_ref().and_then(|spec| spec.failure_policy.as_deref());
                policy.is_none_or(|policy| policy == "Fail")
            })
            .collect();
        if of_policy.is_empty() {
            return problem(format!(
                "there is no policy that refuses {refuses}: upgrade the chart lockkeeper"
            ));
        }
        let denies = bindings.iter().any(|binding| {
            let is_bound = of_policy
                .iter()
                .any(|one| one.name_any() == binding.spec.policy_name);
            is_bound
                && binding
                    .spec
                    .validation_actions
                    .iter()
                    .any(|action| action == "Deny")
        });
        if !denies {
            return warning(format!(
                "no policy refuses {refuses}: it is only recorded (the value admissionPolicy.enabled of the chart is false)"
            ));
        }
    }
    good(
        "they refuse marked pods without the sidecar, and changes by which running pods would leave their lock",
    )
}

#[cfg(test)]
mod tests {
    use super::super::{Verdict, object};
    use super::*;
    use serde_json::{Value, json};

    fn hooks(policy: &str, bundle: Option<&str>) -> Vec<MutatingWebhookConfiguration> {
        let mut client = json!({"service": {"name": "s", "namespace": "ours"}});
        if let Some(bundle) = bundle {
            client["caBundle"] = json!(k8s_openapi::ByteString(bundle.as_bytes().to_vec()));
        }
        let hook = |(name, refuses): (&str, bool)| -> Value {
            json!({
                "name": name, "failurePolicy": if refuses { policy } else { "Ignore" }, "clientConfig": client,
                "sideEffects": "None", "admissionReviewVersions": ["v1"],
            })
        };
        vec![object(json!({"webhooks": WEBHOOKS.map(hook)}))]
    }

    #[test]
    fn a_webhook_that_is_missing_or_would_let_pods_pass_is_a_problem() {
        let bundle = Some("something");
        assert_eq!(webhooks(&hooks("Fail", bundle)).0, Verdict::Good);
        let (verdict, says) = webhooks(&hooks("Ignore", bundle));
        assert!(
            verdict == Verdict::Problem && says.contains("failurePolicy of pods"),
            "{says}"
        );
        let (verdict, says) = webhooks(&hooks("Fail", None));
        assert!(
            verdict == Verdict::Problem && says.contains("no caBundle"),
            "{says}"
        );
        let mut without = hooks("Fail", bundle);
        without[0].webhooks.as_mut().unwrap().remove(1);
        let (verdict, says) = webhooks(&without);
        assert!(
            verdict == Verdict::Problem && says.contains("no webhook keys.lockkeeper.io"),
            "{says}"
        );
    }

    /// A certificate from 2025 to 2035.
    fn authority() -> String {
        let mut parameters = rcgen::CertificateParams::default();
        parameters.not_before = rcgen::date_time_ymd(2025, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2035, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        parameters.self_signed(&key).unwrap().pem()
    }

    #[test]
    fn authorities_are_told_before_they_expire_and_before_they_are_valid() {
        let authority = authority();
        let at = |moment: &str| {
            let now: Timestamp = moment.parse().unwrap();
            authorities(&hooks("Fail", Some(&authority)), now)
        };
        assert_eq!(at("2030-01-01T00:00:00Z").0, Verdict::Good);
        assert_eq!(at("2034-12-30T00:00:00Z"), warning("valid for another 2d"));
        assert_eq!(at("2035-01-02T00:00:00Z").0, Verdict::Problem);
        assert_eq!(at("2024-12-30T00:00:00Z").0, Verdict::Problem);
        let unreadable = authorities(&hooks("Fail", Some("nothing")), Timestamp::now());
        assert_eq!(unreadable.0, Verdict::Problem);
        assert_eq!(authorities(&[], Timestamp::now()).0, Verdict::Unknown);
    }

    #[test]
    fn a_marked_pod_that_gets_no_sidecar_is_a_problem_and_one_that_a_quota_refuses_is_not() {
        let pod = |containers: Value| -> Read<Pod> {
            Ok(object(
                json!({"spec": {"containers": [], "initContainers": containers}}),
            ))
        };
        assert_eq!(injection(&pod(json!([{"name": "lockkeeper"}]))).0, Verdict::Good);
        assert_eq!(injection(&pod(json!([]))).0, Verdict::Problem);
        let gone = "Internal error occurred: failed calling webhook \"pods.lockkeeper.io\": timeout";
        assert_eq!(injection(&Err(gone.to_owned())).0, Verdict::Problem);
        assert_eq!(injection(&Err("exceeded quota".to_owned())).0, Verdict::Unknown);
        let other = "Internal error occurred: failed calling webhook \"x.example.com\": timeout";
        assert_eq!(injection(&Err(other.to_owned())).0, Verdict::Unknown);
    }

    #[test]
    fn a_policy_that_is_missing_is_a_problem_and_one_that_only_records_a_warning() {
        let policy = |name: &str, failure: &str| {
            object(json!({"metadata": {"name": name}, "spec": {"failurePolicy": failure}}))
        };
        let binding = |name: &str, action: &str| {
            object(
                json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": [action]}}),
            )
        };
        let both = [policy("x-guarded", "Fail"), policy("x-workloads", "Fail")];
        let bound = |action: &str| [binding("x-guarded", action), binding("x-workloads", "Deny")];
        assert_eq!(policies(&both, &bound("Deny")).0, Verdict::Good);
        let (verdict, says) = policies(&both, &bound("Audit"));
        assert!(
            verdict == Verdict::Warning && says.contains("marked pods without the sidecar"),
            "{says}"
        );
        assert_eq!(policies(&both[..1], &bound("Deny")).0, Verdict::Problem);
        let idle = [policy("x-guarded", "Ignore"), policy("x-workloads", "Fail")];
        assert_eq!(policies(&idle, &bound("Deny")).0, Verdict::Problem);
    }
}
