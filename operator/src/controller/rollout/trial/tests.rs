use std::time::Duration;

use lockkeeper_lock::{FencingToken, Mode};

use super::*;
use crate::controller::rollout::Workload;
use crate::zookeeper::queues::picture::{Contender, Queue};

/// What is seen: `old@1* new@2+1` is a pod of revision 1 that holds, and one of revision 2 that waits and whose
/// container has ended once. `-` in place of `@`: the pod is not in the queue.
struct Seen {
    participants: Vec<Participant>,
    pods: BTreeMap<String, PodFacts>,
}

fn seen(text: &str) -> Seen {
    let mut contenders = Vec::new();
    let mut pods = BTreeMap::new();
    for (at, word) in text.split_whitespace().enumerate() {
        let (pod, rest) = word.split_once(['@', '-']).unwrap();
        let (revision, ends) = rest
            .trim_end_matches('*')
            .split_once('+')
            .unwrap_or((rest.trim_end_matches('*'), "0"));
        let state = if rest.ends_with('*') { "held" } else { "waiting" };
        let data = format!(
            r#"{{"state":"{state}","pod":{{"namespace":"shop","name":"{pod}","uid":"u-{pod}","node":"n"}}}}"#
        );
        if word.contains('@') {
            let name = format!("{pod}-lock-{at:010}");
            contenders.push(Contender::read(
                name,
                FencingToken(at as i64),
                true,
                data.as_bytes(),
            ));
        }
        let facts = PodFacts {
            uid: format!("u-{pod}"),
            created: None,
            node: None,
            role: None,
            owner: None,
            revision: Some(revision.to_owned()),
            is_healthy: true,
            ends: ends.parse().unwrap(),
            guard: None,
            ensemble: None,
            settings: None,
            is_over: false,
        };
        pods.insert(pod.to_owned(), facts);
    }
    let holders = Mode::Semaphore(2.try_into().unwrap());
    let mode = if text.matches('*').count() > 1 {
        holders
    } else {
        Mode::Exclusive
    };
    Seen {
        participants: Queue::of(true, contenders).participants(mode),
        pods,
    }
}

fn trial(ends: i32, has_failed: bool) -> Trial {
    Trial {
        revision: "2".into(),
        pod: "new".into(),
        uid: "u-new".into(),
        ends,
        has_failed,
    }
}

/// Whether it is remembered, and as failed.
fn judged_as(trial: &Trial, text: &str) -> Option<bool> {
    let seen = seen(text);
    judged(trial, &seen.participants, &seen.pods, None).map(|trial| trial.has_failed)
}

#[test]
fn a_revision_has_failed_when_its_application_ended_and_the_lock_went_back_to_another_one() {
    let fresh = trial(0, false);
    for (text, expected) in [
        ("old@1* new@2", false),
        // The lock is not with another pod yet; or the container ended by the loss of its lock, and not by itself.
        ("new@2* old@1", false),
        ("old@1 new@2+1", false),
        ("old@1* new@2+1", true),
        ("old@1* new-2+1", true),
        ("new@2+1* old@1", false),
        // One of two places of a semaphore went back.
        ("other@2* old@1* new@2+1", true),
        // Another pod of the same name.
        ("old@1* other@2+3", false),
    ] {
        assert_eq!(judged_as(&fresh, text), Some(expected), "{text}");
    }
    assert_eq!(
        judged_as(&trial(3, false), "old@1* new@2+3"),
        Some(false),
        "it ended before the trial"
    );
}

#[test]
fn a_failure_is_remembered_while_a_pod_of_the_revision_is_left_and_wanted() {
    let failed = trial(0, true);
    assert_eq!(
        judged_as(&failed, "old@1* other@2"),
        Some(true),
        "its pod was replaced"
    );
    assert_eq!(judged_as(&failed, "old@1* other-2"), Some(true));
    assert_eq!(judged_as(&failed, "old@1*"), None);

    let seen = seen("old@1* new@2+1");
    let candidate = |pod: &str, revision: &str| Candidate {
        contender: pod.into(),
        pod: pod.into(),
        uid: format!("u-{pod}"),
        revision: revision.into(),
        is_holder: pod == "old",
        is_healthy: true,
        ends: 0,
    };
    let judged = |queue: Vec<Candidate>, current: &str| {
        let workload = Workload::Deployment {
            is_paused: false,
            current: Some(current.into()),
        };
        let rollout = Rollout {
            queue,
            workload,
            rest: Duration::ZERO,
        };
        judged(&failed, &seen.participants, &seen.pods, Some(&rollout))
    };
    let both = || vec![candidate("old", "1"), candidate("new", "2")];
    assert!(judged(both(), "2").is_some());
    assert_eq!(judged(both(), "1"), None, "it was rolled back");
    assert!(
        judged(vec![candidate("x", "7")], "8").is_some(),
        "another workload behind the lock"
    );
}

#[test]
fn people_are_told_while_another_revision_holds_in_place_of_the_one_that_failed() {
    let told = |trial: &Trial, text: &str| {
        let seen = seen(text);
        held_back(trial, &seen.participants, &seen.pods)
    };
    let sentence = told(&trial(0, true), "old@1* new@2+1").unwrap();
    assert!(
        sentence.contains("the application of new, which is of the new revision 2, ended"),
        "{sentence}"
    );
    assert_eq!(told(&trial(0, true), "new@2+1* old@1"), None);
    assert_eq!(told(&trial(0, false), "old@1* new@2"), None);
}
