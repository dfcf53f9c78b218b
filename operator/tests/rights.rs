//! The chart's policies on the operator's own writes name what the program writes: neither more nor less.

use std::collections::BTreeSet;

use kube::Resource;
use lockkeeper_crds::keys::{self, FINALIZER, HANDOFF};
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_operator::admission::certificates::own;
use lockkeeper_operator::identity::namespace_secret;
use lockkeeper_operator::kubernetes::events;
use lockkeeper_operator::kubernetes::pods::Role;

const POLICY: &str = include_str!("../../charts/lockkeeper/templates/policy-operator.yaml");
const RBAC: &str = include_str!("../../charts/lockkeeper/templates/rbac.yaml");

/// What stands in quotes in the expressions of the policy `lockkeeper-operator-PART`, beside what CEL itself knows.
fn words(part: &str) -> BTreeSet<&'static str> {
    let begin = format!("name: {{{{ $name }}}}-operator-{part}\n");
    let policy = POLICY
        .split_once(&begin)
        .unwrap_or_else(|| panic!("no {begin}"))
        .1;
    let policy = policy.split_once("operatorBinding").unwrap().0;
    let of_validations = policy.split_once("validations:").unwrap().1;
    of_validations
        .split("- expression:")
        .filter_map(|validation| validation.split("message:").next())
        .flat_map(|expression| expression.split('\'').skip(1).step_by(2))
        .filter(|word| !["", "CREATE", "UPDATE"].contains(word))
        .collect()
}

#[test]
fn the_policies_name_exactly_what_the_operator_writes() {
    let roles = [Role::Active, Role::Standby].map(Role::as_str);
    // The other Secret's name is the release's, and comes from the same template as the operator's option.
    assert_eq!(
        words("secrets"),
        BTreeSet::from([namespace_secret::NAME, namespace_secret::TYPE, own::TYPE])
    );
    assert_eq!(
        words("pods"),
        BTreeSet::from([keys::LOCK, keys::ROLE, roles[0], roles[1]])
    );
    let default = DistributedLockSpec::default().mode.as_str();
    let prefix = keys::LOCK.split_inclusive('/').next().unwrap();
    assert_eq!(
        words("locks"),
        BTreeSet::from([FINALIZER, HANDOFF, default, prefix])
    );
    let kind = DistributedLock::kind(&());
    assert_eq!(words("events"), BTreeSet::from([events::REPORTER, &*kind]));
    assert_eq!(words("webhooks"), BTreeSet::new());
    assert_eq!(
        POLICY.matches(r#"include "lockkeeper.webhookSecret""#).count(),
        2,
        "in the expression and in the message"
    );
}

#[test]
fn each_policy_fails_closed_is_about_the_operator_alone_and_is_bound() {
    let policies = POLICY.matches("kind: ValidatingAdmissionPolicy\n").count();
    assert_eq!(policies, 5);
    for each in [
        "failurePolicy: Fail\n",
        r#"matchConditions: {{- include "lockkeeper.byTheOperator" . | nindent 4 }}"#,
        r#"{{ include "lockkeeper.operatorBinding" (dict "root" . "part" "#,
    ] {
        assert_eq!(POLICY.matches(each).count(), policies, "{each}");
    }
    assert_eq!(
        POLICY.matches("validationActions: [Deny]").count(),
        1,
        "of all bindings"
    );
    // All that RBAC lets it write is bounded, apart from the status of locks, which is all its own.
    for resource in ["secrets", "pods", "distributedlocks", "events"] {
        assert!(RBAC.contains(&format!("resources: [{resource}]")), "{resource}");
        assert!(POLICY.contains(&format!("resources: [{resource}]")), "{resource}");
    }
    assert!(RBAC.contains(&format!("resourceNames: [{}]", namespace_secret::NAME)));
}
