//! Which former holders a status keeps, and how each ended. Pure.
//!
//! The operator keeps them in no memory: the history of all locks would be the largest part of it.

use std::collections::HashSet;

use k8s_openapi::jiff::Timestamp;
use lockkeeper_crds::lock::{DistributedLockStatus, HISTORY_KEPT, HoldEnd, Holder, PastHolder};

use crate::controller::removals::Removals;
use crate::controller::status::stored;
use crate::zookeeper::nodes::Ending;

/// Whether the history changes with this status: a holder has ended, or one says whose place it took.
pub(super) fn changes(previous: &DistributedLockStatus, status: &DistributedLockStatus) -> bool {
    let known: HashSet<_> = previous.holders.iter().map(|one| &one.contender).collect();
    let takes = |one: &Holder| one.taken_from.is_some() && !known.contains(&one.contender);
    !ended(previous, status).is_empty() || status.holders.iter().any(takes)
}

/// The holders of the previous status that neither hold nor wait now.
pub(super) fn ended<'a>(
    previous: &'a DistributedLockStatus,
    status: &DistributedLockStatus,
) -> Vec<&'a Holder> {
    let holders = status.holders.iter().map(|one| &one.contender);
    let waiting = status.queue.iter().map(|one| &one.contender);
    let still: HashSet<_> = holders.chain(waiting).collect();
    let ended = previous.holders.iter();
    ended
        .filter(|holder| !still.contains(&holder.contender))
        .collect()
}

/// Returns the history when this status replaces `previous`: the holders that have ended, newest first, before those of
/// `kept`. `endings` tells how some of them ended, by their contenders.
pub(super) fn history(
    kept: Vec<PastHolder>,
    previous: &DistributedLockStatus,
    status: &DistributedLockStatus,
    endings: &[(String, Ending)],
    removals: &Removals,
    now: Timestamp,
) -> Vec<PastHolder> {
    let until = stored(now);
    let mut ended = ended(previous, status);
    ended.sort_by_key(|holder| std::cmp::Reverse(holder.fencing_token));
    let ended = ended.into_iter().map(|holder| PastHolder {
        pod: holder.pod.clone(),
        node: holder.node.clone(),
        contender: holder.contender.clone(),
        fencing_token: holder.fencing_token,
        since: holder.since.clone(),
        until: until.clone(),
        ended: end(holder, endings, removals),
        taken_by: None,
        silence: None,
    });
    let mut history: Vec<_> = ended.chain(kept).take(HISTORY_KEPT).collect();
    for holder in &status.holders {
        let Some(from) = &holder.taken_from else {
            continue;
        };
        // The one before may be in the history already: its contender is gone before the next one says that it holds.
        let taken = history.iter_mut().find(|one| one.contender == from.contender);
        // Contenders say whose place they took: it explains an end, and contradicts no record.
        if let Some(taken) = taken.filter(|one| matches!(one.ended, HoldEnd::Lost | HoldEnd::Unknown)) {
            taken.ended = HoldEnd::TakenOver;
            taken.taken_by = Some(holder.pod.clone());
            taken.silence = Some(from.silence);
        }
    }
    history
}

fn end(holder: &Holder, endings: &[(String, Ending)], removals: &Removals) -> HoldEnd {
    if removals.node(&holder.contender).is_some() {
        return HoldEnd::NodeOutOfService;
    }
    let known = endings
        .iter()
        .find(|(contender, _)| *contender == holder.contender);
    match known.map(|(_, ending)| ending) {
        Some(Ending::Released) => HoldEnd::Released,
        Some(Ending::HandedOver) => HoldEnd::HandedOver,
        Some(Ending::Lost) => HoldEnd::Lost,
        Some(Ending::Unknown) | None => HoldEnd::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_crds::ApiDuration;
    use lockkeeper_crds::lock::TakenFrom;
    use lockkeeper_lock::FencingToken;

    use super::*;
    use crate::node_fencing::Suspect;

    fn holder(pod: &str, token: i64) -> Holder {
        serde_json::from_value(serde_json::json!({
            "pod": pod, "contender": format!("c-{pod}-lock-1"), "fencingToken": token, "since": "2026-01-01T00:00:00Z",
        }))
        .unwrap()
    }

    fn held_by(holders: &[Holder]) -> DistributedLockStatus {
        DistributedLockStatus {
            holders: holders.to_vec(),
            ..DistributedLockStatus::default()
        }
    }

    fn now() -> Timestamp {
        "2026-01-01T00:41:00.7Z".parse().unwrap()
    }

    fn ending(pod: &str, ending: Ending) -> (String, Ending) {
        (format!("c-{pod}-lock-1"), ending)
    }

    fn told(history: &[PastHolder]) -> Vec<(&str, i64, HoldEnd)> {
        let past = history.iter();
        past.map(|past| (past.pod.as_str(), past.fencing_token, past.ended))
            .collect()
    }

    #[test]
    fn each_former_holder_is_remembered_with_how_it_ended_the_last_one_first() {
        let [a, b, c, d] = [("a", 1), ("b", 2), ("c", 3), ("d", 4)].map(|(pod, token)| holder(pod, token));
        let before = held_by(&[a, b, c, d.clone()]);
        let after = held_by(&[d]);
        let endings = [ending("a", Ending::HandedOver), ending("c", Ending::Lost)];
        let history = history(Vec::new(), &before, &after, &endings, &Removals::default(), now());
        assert_eq!(
            told(&history),
            [
                ("c", 3, HoldEnd::Lost),
                ("b", 2, HoldEnd::Unknown),
                ("a", 1, HoldEnd::HandedOver)
            ]
        );
        let until = history.iter().map(|past| past.until.0.to_string());
        assert_eq!(until.collect::<Vec<_>>(), ["2026-01-01T00:41:00Z"; 3]);
    }

    #[test]
    fn only_the_last_ones_are_kept() {
        let mut history = Vec::new();
        for token in 0..100 {
            let before = held_by(&[holder("a", token)]);
            let released = [ending("a", Ending::Released)];
            history = super::history(
                history,
                &before,
                &held_by(&[]),
                &released,
                &Removals::default(),
                now(),
            );
        }
        let tokens = history.iter().map(|past| past.fencing_token);
        assert!(tokens.eq((68..100).rev()), "{history:?}");
    }

    #[test]
    fn whose_place_was_taken_is_told_also_when_it_was_thought_lost_before() {
        let heir = Holder {
            taken_from: Some(TakenFrom {
                pod: "a".to_owned(),
                contender: "c-a-lock-1".to_owned(),
                silence: ApiDuration::from_millis(2_012),
            }),
            ..holder("b", 2)
        };
        let lost = [ending("a", Ending::Lost)];
        let with = |kept, before: &[Holder], after: &[Holder], endings: &[_]| {
            let (before, after) = (held_by(before), held_by(after));
            assert!(changes(&before, &after));
            history(kept, &before, &after, endings, &Removals::default(), now())
        };
        let (a, b) = ([holder("a", 1)], [heir]);
        let between = with(Vec::new(), &a, &[], &lost);
        assert_eq!(told(&between), [("a", 1, HoldEnd::Lost)]);
        let late = with(between, &[], &b, &[]);
        let at_once = with(Vec::new(), &a, &b, &lost);
        let released = with(Vec::new(), &a, &b, &[ending("a", Ending::Released)]);
        assert_eq!(told(&released), [("a", 1, HoldEnd::Released)]);
        assert_eq!(late, at_once);
        assert_eq!(told(&late), [("a", 1, HoldEnd::TakenOver)]);
        assert_eq!(late[0].taken_by.as_deref(), Some("b"));
        assert_eq!(late[0].silence, Some(ApiDuration::from_millis(2_012)));
    }

    #[test]
    fn a_holder_that_was_removed_for_its_node_is_told_with_that() {
        let before = held_by(&[holder("a", 1)]);
        let mut removals = Removals::default();
        let removed = Suspect {
            contender: "c-a-lock-1".into(),
            token: FencingToken(1),
            pod: "a".into(),
            node: "n1".into(),
            machine: "m".into(),
            now: None,
        };
        removals.add(&removed, Some(&before), now());
        let lost = [ending("a", Ending::Lost)];
        let history = history(Vec::new(), &before, &held_by(&[]), &lost, &removals, now());
        assert_eq!(told(&history), [("a", 1, HoldEnd::NodeOutOfService)]);
    }

    #[test]
    fn a_contender_that_is_in_the_queue_again_and_a_status_without_change_add_nothing() {
        let one = held_by(&[holder("a", 1)]);
        let queued = DistributedLockStatus {
            queue: vec![
                serde_json::from_value(serde_json::json!({"pod": "a", "contender": "c-a-lock-1"})).unwrap(),
            ],
            ..DistributedLockStatus::default()
        };
        for after in [&one, &queued] {
            assert!(!changes(&one, after));
            assert_eq!(
                history(Vec::new(), &one, after, &[], &Removals::default(), now()),
                []
            );
        }
    }
}
