use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_lock::{FencingToken, Mode};

use super::*;
use crate::controller::memory::Memory;
use crate::controller::reconcile::situation::Ticks;
use crate::controller::reconcile::validate::validate;
use crate::controller::writer::LeasedWay;
use crate::kubernetes::pods::PodFacts;
use crate::lock_key::LockKey;
use crate::node_fencing::machine::Machine;
use crate::zookeeper::client::Way;
use crate::zookeeper::queues::picture::{Contender, Picture, Queue};
use crate::zookeeper::sandbox::Session;

mod handoffs;
mod statuses;

/// A lock with this queue: `a* b` is a pod that holds and one that waits.
fn resolved(queue: &str) -> Resolved {
    let key = LockKey::new("shop", "report");
    let mut picture = Picture::default();
    picture.set_exists(&key, true);
    for (at, word) in queue.split_whitespace().enumerate() {
        let pod = word.trim_end_matches('*');
        let state = if word.ends_with('*') { "held" } else { "waiting" };
        let data = format!(
            r#"{{"state":"{state}","pod":{{"namespace":"shop","name":"{pod}","uid":"u-{pod}","node":"n"}}}}"#
        );
        let name = format!("{pod}-lock-{at:010}");
        picture.put(
            &key,
            Contender::read(name, FencingToken(at as i64), true, data.as_bytes()),
        );
    }
    let queue: Queue = picture.queue(&key).cloned().unwrap();
    let mut lock = DistributedLock::new("report", DistributedLockSpec::default());
    lock.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    Resolved {
        key,
        lock: Arc::new(lock),
        participants: queue.participants(Mode::Exclusive),
        queue,
        pods: BTreeMap::new(),
        identities: None,
        rollout: None,
        trial: None,
        suspects: Vec::new(),
        situation: situation(),
        claim: None,
        memory: Memory::default(),
        are_pods_known: true,
        again: None,
    }
}

/// An ensemble behind a sandboxed process that was never started.
fn situation() -> Situation {
    let (session, _) = Session::new();
    let tick = Duration::from_secs(2);
    Situation::Followed {
        way: LeasedWay::new(Way::Apart(Arc::new(session))),
        is_own: false,
        ticks: Ticks {
            stated: tick,
            told: None,
        },
        problem: None,
    }
}

/// The nodes of that lock, whose ensemble is not the operator's.
fn ensure() -> Nodes {
    Nodes::Ensure {
        identities: Vec::new(),
        agreement: Agreement::of(Mode::Exclusive),
    }
}

fn build(resolved: &Resolved) -> Plan {
    super::build(resolved, &validate(resolved), Timestamp::UNIX_EPOCH)
}

fn edit(resolved: &mut Resolved, edit: impl FnOnce(&mut DistributedLock)) {
    edit(Arc::make_mut(&mut resolved.lock));
}

fn with_pod(resolved: &mut Resolved, name: &str, uid: &str, role: Option<Role>) {
    let facts = PodFacts {
        guard: None,
        ensemble: None,
        settings: None,
        is_over: false,
        uid: uid.to_owned(),
        created: None,
        node: None,
        role,
        owner: None,
        revision: None,
        is_healthy: true,
        ends: 0,
    };
    resolved.pods.insert(name.to_owned(), facts);
}

fn roles_of(resolved: &Resolved) -> Vec<(String, Role)> {
    let roles = build(resolved).roles.into_iter();
    roles.map(|change| (change.pod, change.role)).collect()
}

#[test]
fn a_deleted_object_stays_while_somebody_is_in_the_queue_and_then_its_nodes_go_unless_retained() {
    let plan = |queue: &str, policy| {
        let mut resolved = resolved(queue);
        edit(&mut resolved, |lock| {
            lock.metadata.deletion_timestamp = Some(Time("2026-01-01T00:00:00Z".parse().unwrap()));
            lock.spec.deletion_policy = policy;
        });
        let plan = build(&resolved);
        (plan.finalizer, plan.nodes)
    };
    assert_eq!(
        plan("a*", DeletionPolicy::Delete),
        (Finalizer::Keep, Nodes::Leave)
    );
    assert_eq!(
        plan("", DeletionPolicy::Delete),
        (Finalizer::Remove, Nodes::Remove)
    );
    assert_eq!(
        plan("", DeletionPolicy::Retain),
        (Finalizer::Remove, Nodes::Leave)
    );
}

#[test]
fn a_new_object_gets_its_finalizer_and_its_nodes() {
    let mut resolved = resolved("");
    edit(&mut resolved, |lock| lock.metadata.finalizers = None);
    let plan = build(&resolved);
    assert_eq!((plan.finalizer, plan.nodes), (Finalizer::Add, ensure()));
}

#[test]
fn the_pod_that_holds_is_active_and_all_others_are_standbys() {
    let mut resolved = resolved("a* b");
    with_pod(&mut resolved, "a", "u-a", None);
    with_pod(&mut resolved, "b", "u-b", Some(Role::Active));
    with_pod(&mut resolved, "c", "u-c", None);
    let expected = [("a", Role::Active), ("b", Role::Standby), ("c", Role::Standby)];
    assert_eq!(
        roles_of(&resolved),
        expected.map(|(pod, role)| (pod.to_owned(), role))
    );
}

#[test]
fn labels_that_are_right_are_not_written_again() {
    let mut resolved = resolved("a* b");
    with_pod(&mut resolved, "a", "u-a", Some(Role::Active));
    with_pod(&mut resolved, "b", "u-b", Some(Role::Standby));
    assert_eq!(roles_of(&resolved), []);
}

#[test]
fn a_new_pod_of_the_same_name_does_not_inherit_the_role_of_a_contender_that_is_still_there() {
    let mut resolved = resolved("a*");
    with_pod(&mut resolved, "a", "another", None);
    assert_eq!(roles_of(&resolved), [("a".to_owned(), Role::Standby)]);
}

#[test]
fn a_pod_keeps_its_role_when_another_one_takes_over_until_its_contender_is_gone() {
    let mut both = resolved("a* b*");
    with_pod(&mut both, "a", "u-a", Some(Role::Active));
    assert_eq!(roles_of(&both), []);
    let mut gone = resolved("b*");
    with_pod(&mut gone, "a", "u-a", Some(Role::Active));
    assert_eq!(roles_of(&gone), [("a".to_owned(), Role::Standby)]);
}

fn deleted(queue: &str, situation: Situation) -> Resolved {
    let mut resolved = resolved(queue);
    edit(&mut resolved, |lock| {
        lock.metadata.deletion_timestamp = Some(Time("2026-01-01T00:00:00Z".parse().unwrap()));
    });
    resolved.situation = situation;
    resolved
}

fn out_of_reach(is_orphaned: bool) -> Situation {
    let problem = Problem::new(Reason::SecretUnusable, "no Secret");
    Situation::OutOfReach { problem, is_orphaned }
}

#[test]
fn a_deleted_object_without_a_way_to_its_nodes_goes_only_for_good_and_when_none_of_its_pods_is_left() {
    let finalizer = |situation, has_pod: bool| {
        let mut resolved = deleted("", situation);
        if has_pod {
            with_pod(&mut resolved, "a", "u-a", None);
        }
        let plan = build(&resolved);
        assert_eq!((plan.nodes, plan.handoff), (Nodes::Leave, Handoff::None));
        assert_eq!(plan.roles, []);
        plan.finalizer
    };
    assert_eq!(finalizer(out_of_reach(false), false), Finalizer::Keep);
    assert_eq!(finalizer(out_of_reach(true), true), Finalizer::Keep);
    assert_eq!(finalizer(out_of_reach(true), false), Finalizer::Remove);
    assert_eq!(finalizer(Situation::Abandoned, true), Finalizer::Remove);
    let mut there = resolved("");
    there.situation = out_of_reach(true);
    assert_eq!(
        build(&there).finalizer,
        Finalizer::Keep,
        "it is not being deleted"
    );
}

#[test]
fn nodes_of_a_queue_that_is_not_followed_go_only_when_all_pods_are_known_and_none_of_the_lock_runs() {
    let nodes = |are_pods_known, has_pod: bool| {
        let Situation::Followed { way, .. } = situation() else {
            panic!("it is followed")
        };
        let problem = Problem::new(Reason::TooManyContenders, "many");
        let mut resolved = deleted("", Situation::Crowded { way, problem });
        resolved.are_pods_known = are_pods_known;
        if has_pod {
            with_pod(&mut resolved, "a", "u-a", None);
        }
        let plan = build(&resolved);
        let ready = &plan.status.conditions[0];
        assert_eq!(ready.reason, Reason::TooManyContenders.as_str());
        plan.nodes
    };
    assert_eq!(nodes(true, false), Nodes::Remove);
    assert_eq!(nodes(false, false), Nodes::Leave);
    assert_eq!(nodes(true, true), Nodes::Leave);
}

#[test]
fn of_the_contenders_on_suspicious_nodes_those_go_whose_machines_are_known_to_be_off() {
    let mut resolved = resolved("a* b");
    let suspect = |contender: &str, is_out_of_service| Suspect {
        contender: contender.into(),
        token: FencingToken(1),
        pod: "a".into(),
        node: "n".into(),
        machine: "m".into(),
        now: Some(Arc::new(Machine {
            uid: "m".to_owned(),
            created: None,
            is_out_of_service,
            is_silent: true,
        })),
    };
    resolved.suspects = vec![suspect("dead", true), suspect("alive", false)];
    let dead = build(&resolved).dead;
    assert_eq!(dead, [suspect("dead", true)]);
    // A tenant writes many of them. The rest goes later.
    resolved.suspects = vec![suspect("alive", false); MOST_DEAD];
    resolved.suspects.extend(vec![suspect("dead", true); 20_000]);
    assert_eq!(build(&resolved).dead, vec![suspect("dead", true); MOST_DEAD]);
}
