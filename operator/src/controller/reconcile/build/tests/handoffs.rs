//! Whether contenders are asked to step down.

use super::*;
use crate::controller::rollout::{Candidate, Rollout, Workload};

fn asked_for(queue: &str, pod: &str) -> Result<Vec<String>, String> {
    let mut resolved = resolved(queue);
    edit(&mut resolved, |lock| {
        lock.annotations_mut().insert(HANDOFF.to_owned(), pod.to_owned());
    });
    match build(&resolved).handoff {
        Handoff::Asked(request) => Ok(request.request.contenders),
        Handoff::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_user_can_hand_over_to_the_next_or_to_a_pod_that_waits() {
    let next = asked_for("a* b c", "").unwrap();
    assert_eq!(next, ["a-lock-0000000000"]);
    let chosen = asked_for("a* b c", "c").unwrap();
    assert_eq!(chosen, ["a-lock-0000000000", "b-lock-0000000001"]);
}

#[test]
fn a_handoff_that_cannot_be_is_refused_with_the_reason() {
    for (queue, pod, refusal) in [
        ("a*", "", "no pod waits for the lock"),
        ("a* b", "x", "x does not wait for the lock"),
        ("a* b", "a", "a holds the lock already"),
        ("", "", "no pod holds the lock"),
    ] {
        assert_eq!(asked_for(queue, pod), Err(refusal.to_owned()));
    }
}

/// A rollout from the first contender, which holds, to the second one.
fn rollout_to_the_second(resolved: &Resolved, rest: Duration) -> Rollout {
    let candidate = |at: usize, revision: &str| Candidate {
        contender: resolved.participants[at].name.clone(),
        pod: "p".into(),
        uid: "u".into(),
        ends: 0,
        revision: revision.into(),
        is_holder: at == 0,
        is_healthy: true,
    };
    Rollout {
        queue: vec![candidate(0, "1"), candidate(1, "2")],
        workload: Workload::Deployment {
            is_paused: false,
            current: Some("2".into()),
        },
        rest,
    }
}

#[test]
fn a_rollout_asks_the_holder_of_the_old_revision_to_step_down_unless_the_new_one_has_failed_before() {
    let mut resolved = resolved("a* b");
    resolved.rollout = Some(rollout_to_the_second(&resolved, Duration::ZERO));
    let plan = build(&resolved);
    let Handoff::Rollout(request, trial) = plan.handoff else {
        panic!("it stays")
    };
    assert_eq!(plan.status.trial.as_ref(), Some(&trial));
    assert_eq!(request.request.contenders, ["a-lock-0000000000"]);
    assert_eq!((trial.revision.as_str(), trial.has_failed), ("2", false));

    // The revision had the lock before, and the application ended under it.
    resolved.trial = Some(Trial {
        has_failed: true,
        ..trial
    });
    assert_eq!(build(&resolved).handoff, Handoff::None);
    // Of another revision nothing is known.
    resolved.trial.as_mut().unwrap().revision = "3".into();
    assert!(matches!(build(&resolved).handoff, Handoff::Rollout(..)));
}

#[test]
fn a_handoff_of_a_rollout_that_comes_too_soon_after_the_last_one_waits_and_its_trial_has_not_begun() {
    let mut resolved = resolved("a* b");
    let rest = Duration::from_secs(3);
    resolved.rollout = Some(rollout_to_the_second(&resolved, rest));
    let plan = build(&resolved);
    assert_eq!((plan.handoff, plan.status.trial), (Handoff::Later(rest), None));
    resolved.rollout = None;
    assert_eq!(build(&resolved).handoff, Handoff::None);
}
