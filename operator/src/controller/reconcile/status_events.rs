//! What changed between two statuses, for events. Pure.

use lockkeeper_crds::lock::{
    ConditionType, DistributedLockStatus, Holder, Reason as ConditionReason, TakenFrom,
};
use lockkeeper_lock::{CleanRelease, FencingToken};

use super::history::ended;
use crate::controller::removals::Removals;
use crate::controller::status::named;
use crate::kubernetes::events::{Notice, Reason, Subject};

/// The holders of the previous status that do not hold according to this one. Only our keepers record when they got
/// the lock and how they released it.
pub(super) fn gone(previous: &DistributedLockStatus, status: &DistributedLockStatus) -> Vec<CleanRelease> {
    let gone = ended(previous, status).into_iter();
    gone.filter(|holder| holder.since.is_some())
        .map(|holder| CleanRelease {
            contender: holder.contender.clone(),
            token: FencingToken(holder.fencing_token),
        })
        .collect()
}

fn subject(holder: &Holder) -> Subject {
    match &holder.uid {
        Some(uid) => Subject::pod(&holder.pod, Some(uid.clone())),
        None => Subject::Contender(holder.contender.clone()),
    }
}

/// A contender without a pod is named by its contender alone.
fn subject_of_taken(from: &TakenFrom) -> Subject {
    if from.pod == from.contender {
        Subject::Contender(from.contender.clone())
    } else {
        Subject::pod(&from.pod, None)
    }
}

/// The events for users, about holders that did not release (`lost`), and about those of them that were removed because
/// their nodes are out of service. A first status causes none: an operator may see ten thousand locks for the first time.
pub(super) fn news(
    previous: &DistributedLockStatus,
    status: &DistributedLockStatus,
    lost: &[String],
    removals: &Removals,
) -> Vec<Notice> {
    if previous.observed_generation.is_none() {
        return Vec::new();
    }
    let mut notices = Vec::new();
    let is_in = |contender: &str, list: &DistributedLockStatus| {
        list.holders.iter().any(|holder| holder.contender == contender)
    };
    for holder in &previous.holders {
        // Whose place was taken is told with the one that took it.
        let mut taken = status.holders.iter().filter_map(|one| one.taken_from.as_ref());
        if !is_in(&holder.contender, status) && !taken.any(|from| from.contender == holder.contender) {
            let notice = if lost.contains(&holder.contender) {
                let why = removals.node(&holder.contender).map_or_else(
                    || "its session expired, or its node in ZooKeeper was deleted".to_owned(),
                    |node| format!("its node {node} is out of service"),
                );
                let note = format!(
                    "{} no longer holds the lock, and did not release it: {why}",
                    holder.pod
                );
                Notice::new(Reason::LockLost, note)
            } else {
                let note = format!("{} no longer holds the lock", holder.pod);
                Notice::new(Reason::LockReleased, note)
            };
            notices.push(notice.about(subject(holder)));
        }
    }
    for holder in &status.holders {
        if !is_in(&holder.contender, previous) {
            // The one before it may still be shown, or be gone already: then the status before has told of its loss.
            if let Some(from) = &holder.taken_from {
                let note = format!(
                    "{} was silent for {}, and {} took its place",
                    from.pod, from.silence, holder.pod
                );
                notices.push(Notice::new(Reason::TakenOver, note).about(subject_of_taken(from)));
            }
            let note = format!(
                "{} holds the lock under token {}",
                holder.pod, holder.fencing_token
            );
            notices.push(Notice::new(Reason::LockAcquired, note).about(subject(holder)));
        }
        let mut before = previous.holders.iter();
        let was_told = before.any(|one| one.contender == holder.contender && one.survivors.is_some());
        if let Some(survivors) = holder.survivors.filter(|_| !was_told) {
            let note = format!("{} keeps the lock: {survivors}", holder.pod);
            notices.push(Notice::new(Reason::ApplicationSurvives, note).about(subject(holder)));
        }
    }
    let ready = |status: &DistributedLockStatus| {
        let found = status.condition(ConditionType::Ready);
        found.map(|one| (one.reason.clone(), one.message.clone()))
    };
    if let Some((reason, message)) = ready(status).filter(|now| ready(previous).as_ref() != Some(now)) {
        let reasons = [
            (ConditionReason::HandoffHeldBack, Reason::HandoffHeldBack),
            (ConditionReason::InvalidSpec, Reason::InvalidSpec),
            (ConditionReason::ProvisioningFailed, Reason::ProvisioningFailed),
            (ConditionReason::AgreementPending, Reason::ProvisioningFailed),
            (ConditionReason::UnknownContender, Reason::ProvisioningFailed),
            (ConditionReason::TooManyContenders, Reason::ProvisioningFailed),
            (ConditionReason::SecretUnusable, Reason::ProvisioningFailed),
            (ConditionReason::CredentialsRefused, Reason::ProvisioningFailed),
            (ConditionReason::TlsFailed, Reason::ProvisioningFailed),
            (ConditionReason::EnsembleNotAllowed, Reason::ProvisioningFailed),
            (ConditionReason::EnsembleUnusable, Reason::ProvisioningFailed),
            (ConditionReason::EnsembleChanged, Reason::EnsembleChanged),
        ];
        let told = reasons.iter().find(|(condition, _)| condition.as_str() == reason);
        if let Some((_, told)) = told {
            notices.push(Notice::new(*told, message));
        } else if reason == ConditionReason::Deleting.as_str() && !status.holders.is_empty() {
            let note = format!(
                "waits until the lock is no longer held by {}",
                named(&status.holders)
            );
            notices.push(Notice::new(Reason::DeletionWaits, note));
        }
    }
    notices
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use lockkeeper_crds::ApiDuration;
    use lockkeeper_crds::lock::Survivors;

    use super::*;
    use crate::node_fencing::Suspect;

    fn held_by(pod: &str, taken_from: Option<TakenFrom>) -> DistributedLockStatus {
        let holder = Holder {
            pod: pod.to_owned(),
            uid: None,
            node: None,
            contender: format!("_c_{pod}-lock-0000000001"),
            fencing_token: 1,
            since: None,
            revision: None,
            guard: None,
            lease_duration: None,
            taken_from,
            survivors: None,
        };
        DistributedLockStatus {
            holders: vec![holder],
            observed_generation: Some(1),
            ..DistributedLockStatus::default()
        }
    }

    #[test]
    fn a_holder_whose_place_was_taken_is_named_with_its_silence_and_its_successor() {
        let before = held_by("a", None);
        let lost = [before.holders[0].contender.clone()];
        let from = TakenFrom {
            pod: "a".to_owned(),
            contender: lost[0].clone(),
            silence: ApiDuration::from_millis(8_612),
        };
        let told = |after: &DistributedLockStatus| {
            let news = news(&before, after, &lost, &Removals::default());
            let one = |notice: Notice| format!("{}: {}", notice.reason.as_str(), notice.note);
            news.into_iter().map(one).collect::<Vec<_>>()
        };
        assert_eq!(
            told(&held_by("b", Some(from.clone()))),
            [
                "TakenOver: a was silent for 8612ms, and b took its place",
                "LockAcquired: b holds the lock under token 1"
            ]
        );
        let of_another = TakenFrom {
            contender: "_c_c-lock-0000000001".to_owned(),
            ..from
        };
        for after in [held_by("b", None), held_by("b", Some(of_another.clone()))] {
            assert!(told(&after)[0].starts_with("LockLost: "), "{:?}", told(&after));
        }
        // Of one that was gone from the status before, or that never held, it is told as well.
        let late = told(&held_by("b", Some(of_another)));
        assert_eq!(
            late[1],
            "TakenOver: a was silent for 8612ms, and b took its place"
        );
    }

    #[test]
    fn what_outlives_sigkill_is_told_once_and_again_when_there_is_something_anew() {
        let nothing = held_by("a", None);
        let with = |processes, pid| {
            let mut status = nothing.clone();
            status.holders[0].survivors = Some(Survivors { processes, pid });
            status
        };
        let told = |before: &DistributedLockStatus, after: &DistributedLockStatus| {
            let news = news(before, after, &[], &Removals::default());
            news.into_iter().map(|one| one.note).collect::<Vec<_>>()
        };
        let (one, two) = (with(Some(1), Some(4711)), with(Some(2), Some(4711)));
        let said = "a keeps the lock: 1 process of its application has outlived SIGKILL (process 4711)";
        assert_eq!(told(&nothing, &one), [said]);
        assert_eq!(told(&one, &two), [""; 0]);
        assert_eq!(told(&two, &nothing), [""; 0]);
        let unseen = "a keeps the lock: something of its application has outlived its deadline";
        assert_eq!(told(&nothing, &with(None, None)), [unseen]);
    }

    #[test]
    fn a_takeover_is_told_once_whatever_the_operator_sees_first() {
        let before = held_by("a", None);
        let lost = [before.holders[0].contender.clone()];
        let after = held_by(
            "b",
            Some(TakenFrom {
                pod: "a".to_owned(),
                contender: lost[0].clone(),
                silence: ApiDuration::from_millis(8_612),
            }),
        );
        let nobody = DistributedLockStatus {
            holders: Vec::new(),
            ..after.clone()
        };
        let both = DistributedLockStatus {
            holders: [&before, &after].map(|one| one.holders[0].clone()).to_vec(),
            ..after.clone()
        };
        let told = |seen: &[&DistributedLockStatus]| {
            let news = seen
                .windows(2)
                .flat_map(|pair| news(pair[0], pair[1], &lost, &Removals::default()));
            news.map(|one| one.reason.as_str()).collect::<Vec<_>>()
        };
        let both_told = ["TakenOver", "LockAcquired"];
        assert_eq!(told(&[&before, &after, &after]), both_told);
        assert_eq!(told(&[&before, &both, &after]), both_told);
        assert_eq!(
            told(&[&before, &nobody, &after]),
            ["LockLost", "TakenOver", "LockAcquired"]
        );
    }

    #[test]
    fn the_event_of_a_takeover_is_about_the_pod_or_about_the_contender_if_there_is_no_pod() {
        let contender = "_c_a-lock-0000000001";
        let about = |pod: &str| {
            let from = TakenFrom {
                pod: pod.to_owned(),
                contender: contender.to_owned(),
                silence: ApiDuration::from_millis(8_612),
            };
            let [before, after] = [held_by("a", None), held_by("b", Some(from))];
            let lost = [contender.to_owned()];
            let taken = news(&before, &after, &lost, &Removals::default()).remove(0);
            assert_eq!(taken.reason, Reason::TakenOver);
            taken.subject
        };
        assert_eq!(about("a"), Some(Subject::pod("a", None)));
        assert_eq!(about(contender), Some(Subject::Contender(contender.to_owned())));
    }

    #[test]
    fn a_loss_whose_cause_is_known_is_told_with_its_cause() {
        let before = held_by("a", None);
        let lost = [before.holders[0].contender.clone()];
        let after = held_by("b", None);
        let told = |contender: &str| {
            let removed = Suspect {
                contender: contender.into(),
                token: FencingToken(1),
                pod: "a".into(),
                node: "n1".into(),
                machine: "m".into(),
                now: None,
            };
            let mut removals = Removals::default();
            removals.add(&removed, Some(&before), Timestamp::UNIX_EPOCH);
            news(&before, &after, &lost, &removals).remove(0).note
        };
        assert_eq!(
            told(&lost[0]),
            "a no longer holds the lock, and did not release it: its node n1 is out of service"
        );
        let another = told("another");
        assert!(another.contains("its session expired"), "{another}");
    }

    #[test]
    fn events_about_two_holders_are_two_and_each_names_its_pod() {
        let subjects = |before: &str, after: &str| {
            let [mut before, mut after] = [before, after].map(|pod| held_by(pod, None));
            before.holders[0].uid = Some("u".to_owned());
            after.holders[0].uid = None;
            let lost = [before.holders[0].contender.clone()];
            let news = news(&before, &after, &lost, &Removals::default());
            let one = |notice: Notice| (notice.reason, notice.subject);
            news.into_iter().map(one).collect::<Vec<_>>()
        };
        let pod = |name: &str| Some(Subject::pod(name, Some("u".to_owned())));
        let outside = |name: &str| Some(Subject::Contender(format!("_c_{name}-lock-0000000001")));
        for (before, after) in [("a", "b"), ("b", "c")] {
            assert_eq!(
                subjects(before, after),
                [
                    (Reason::LockLost, pod(before)),
                    (Reason::LockAcquired, outside(after))
                ]
            );
        }
    }
}
