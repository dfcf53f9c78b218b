//! The statuses of a plan.

use super::*;
use crate::controller::memory::Disorder;
use crate::controller::reconcile::which_ensemble::Claim;

#[test]
fn the_status_says_why_settings_are_not_in_force_and_nothing_is_made_for_them() {
    let mut resolved = resolved("a*");
    let problem = Problem::new(Reason::InvalidSpec, "too long");
    let plan = super::super::build(&resolved, &Err(problem), Timestamp::UNIX_EPOCH);
    assert_eq!(plan.nodes, Nodes::Leave);
    let ready = &plan.status.conditions[0];
    assert_eq!(
        (ready.status.as_str(), ready.message.as_str()),
        ("False", "too long")
    );
    let provided = build(&resolved);
    assert_eq!(provided.nodes, ensure());
    assert_eq!(provided.status.conditions[0].status, "True");
    assert_eq!(plan.status.holders.len(), 1);
    resolved.situation = out_of_reach(false);
    assert_eq!(build(&resolved).status.conditions[0].message, "no Secret");
}

#[test]
fn what_the_last_look_at_the_nodes_found_is_in_the_status_and_they_are_looked_at_again() {
    let ready = |resolved: &Resolved| {
        let plan = build(resolved);
        assert_eq!(plan.nodes, ensure());
        plan.status.conditions[0].clone()
    };
    let mut resolved = resolved("a*");
    let refused = Disorder::Refused("there is no right to /x".to_owned());
    resolved.memory.nodes.looked_at(Err(refused));
    let found = ready(&resolved);
    assert_eq!(
        (found.status.as_str(), found.reason.as_str()),
        ("False", Reason::ProvisioningFailed.as_str())
    );
    assert_eq!(found.message, "there is no right to /x");
    resolved.memory.nodes.looked_at(Err(Disorder::Agreed(None)));
    assert_eq!(ready(&resolved).reason, Reason::AgreementPending.as_str());
    resolved.memory.nodes.believed();
    assert_eq!(ready(&resolved).status, "True");
}

#[test]
fn a_lock_is_claimed_before_all_else_and_where_the_resource_does_not_keep_that_its_status_says_so_once() {
    let mut resolved = resolved("");
    let claim = |is_known_to_fail| Claim {
        id: "id".to_owned(),
        from: None,
        is_known_to_fail,
    };
    let now = Timestamp::UNIX_EPOCH;
    let status = claimed(&DistributedLockStatus::default(), "id", None, None, now);
    edit(&mut resolved, |lock| lock.status = Some(status.clone()));
    assert_eq!(build(&resolved).claim, None);
    resolved.claim = Some(claim(false));
    let plan = build(&resolved);
    let claiming = plan.claim.unwrap();
    assert_eq!((claiming.id.as_str(), &claiming.status), ("id", &status));
    assert_eq!(
        plan.status.ensemble, status.ensemble,
        "the last status is on top of it"
    );
    let outdated = claiming.if_not_kept.unwrap();
    assert_eq!(outdated.ensemble, status.ensemble);
    assert_eq!(outdated.conditions[0].reason, Reason::ResourceOutdated.as_str());
    resolved.claim = Some(claim(true));
    assert_eq!(build(&resolved).claim.unwrap().if_not_kept, None);
}
