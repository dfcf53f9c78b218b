//! What is to be told of contenders that were removed because their machines are known to be off. Pure.
//!
//! A removal may be done when its status cannot be written. So it is remembered here until a status has told of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use lockkeeper_crds::lock::{DistributedLockStatus, Fenced};
use lockkeeper_daemon::sentence::first;

use crate::controller::status::{shown, stored};
use crate::kubernetes::events::{Notice, Reason, Subject};
use crate::node_fencing::Suspect;

/// Pods that an event names. With the name of a node, each of 253 bytes, they fit into the 1,024 bytes that an API server
/// takes as a note.
const PODS_NAMED: usize = 2;

/// Nodes that an event names.
const NODES_NAMED: usize = 1;

/// Removals of one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Removals {
    /// Those that a status shows as holders, with their nodes: the end of a holder is told with its cause.
    holders: BTreeMap<String, Arc<str>>,
    /// Those of which no status and no event has told yet.
    untold: Option<Untold>,
}

/// Removals that have not been told yet: of any number of them, so much is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Untold {
    count: usize,
    /// The first ones, in the order of their removal.
    pods: Vec<Arc<str>>,
    /// Contenders of other pods than these.
    others: usize,
    nodes: BTreeSet<Arc<str>>,
    last: Fenced,
}

// === impl Removals ===

impl Removals {
    /// A contender was removed. `previous` is the status of its lock.
    pub(crate) fn add(
        &mut self,
        removed: &Suspect,
        previous: Option<&DistributedLockStatus>,
        now: Timestamp,
    ) {
        let contender = shown(&removed.contender);
        let mut holders = previous.iter().flat_map(|status| &status.holders);
        if holders.any(|holder| holder.contender == contender) {
            self.holders.insert(contender.clone(), Arc::clone(&removed.node));
        }
        let last = Fenced {
            pod: removed.pod.to_string(),
            node: removed.node.to_string(),
            contender,
            time: stored(now),
        };
        let untold = self.untold.get_or_insert_with(|| Untold {
            count: 0,
            pods: Vec::new(),
            others: 0,
            nodes: BTreeSet::new(),
            last: last.clone(),
        });
        untold.last = last;
        untold.count += 1;
        untold.nodes.insert(Arc::clone(&removed.node));
        if untold.pods.contains(&removed.pod) {
            // It is named.
        } else if untold.pods.len() < PODS_NAMED {
            untold.pods.push(Arc::clone(&removed.pod));
        } else {
            untold.others += 1;
        }
    }

    /// The last one of which no status has told yet.
    pub(crate) fn last(&self) -> Option<&Fenced> {
        self.untold.as_ref().map(|untold| &untold.last)
    }

    /// One event about all of which none has told yet.
    pub(crate) fn notice(&self) -> Option<Notice> {
        let untold = self.untold.as_ref()?;
        let newest = untold.pods.first()?;
        let pods = match untold.others {
            0 => first(&untold.pods, PODS_NAMED),
            others => format!("{} and {others} more", untold.pods.join(", ")),
        };
        let nodes = first(&untold.nodes, NODES_NAMED);
        let note = match (untold.count, untold.nodes.len()) {
            (1, _) => format!("removed the contender of {pods}: its node {nodes} is out of service"),
            (count, 1) => {
                format!("removed {count} contenders, of {pods}: their node {nodes} is out of service")
            }
            (count, _) => {
                format!("removed {count} contenders, of {pods}: their nodes {nodes} are out of service")
            }
        };
        Some(Notice::new(Reason::NodeFenced, note).about(Subject::pod(&**newest, None)))
    }

    /// The node of a contender that a status shows as a holder, if that contender was removed.
    pub(crate) fn node(&self, contender: &str) -> Option<&str> {
        self.holders.get(contender).map(|node| &**node)
    }

    /// This status was written, and the events beside it are published.
    pub(crate) fn told(&mut self, status: &DistributedLockStatus) {
        self.untold = None;
        self.holders.retain(|contender, _| {
            let mut holders = status.holders.iter();
            holders.any(|holder| holder.contender == *contender)
        });
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_crds::lock::Holder;
    use lockkeeper_lock::FencingToken;

    use super::*;

    fn removed(contender: &str, pod: &str, node: &str) -> Suspect {
        Suspect {
            contender: contender.into(),
            token: FencingToken(1),
            pod: pod.into(),
            node: node.into(),
            machine: "m".into(),
            now: None,
        }
    }

    fn held_by(contenders: &[&str]) -> DistributedLockStatus {
        let holder = |contender: &&str| Holder {
            pod: "a".to_owned(),
            uid: None,
            node: None,
            contender: (*contender).to_owned(),
            fencing_token: 1,
            since: None,
            revision: None,
            guard: None,
            lease_duration: None,
            taken_from: None,
            survivors: None,
        };
        DistributedLockStatus {
            holders: contenders.iter().map(holder).collect(),
            ..DistributedLockStatus::default()
        }
    }

    fn of(all: &[Suspect]) -> Removals {
        let mut removals = Removals::default();
        for one in all {
            removals.add(one, None, Timestamp::UNIX_EPOCH);
        }
        removals
    }

    fn note(all: &[Suspect]) -> String {
        of(all).notice().unwrap().note
    }

    #[test]
    fn removals_are_one_event_that_names_the_first_pods_and_counts_the_rest() {
        let [a, b, c] = ["a", "b", "c"].map(|pod| removed(&format!("of-{pod}"), pod, "n1"));
        assert_eq!(
            note(std::slice::from_ref(&a)),
            "removed the contender of a: its node n1 is out of service"
        );
        assert_eq!(
            note(&[a.clone(), b.clone()]),
            "removed 2 contenders, of a, b: their node n1 is out of service"
        );
        assert_eq!(
            note(&[a.clone(), b, c.clone(), c, a]),
            "removed 5 contenders, of a, b and 2 more: their node n1 is out of service"
        );
        assert_eq!(
            note(&[
                removed("1", "a", "n1"),
                removed("2", "a", "n2"),
                removed("3", "a", "n3")
            ]),
            "removed 3 contenders, of a: their nodes n1 and 2 more are out of service"
        );
        assert_eq!(Removals::default().notice(), None);
    }

    #[test]
    fn an_event_about_pods_and_nodes_with_the_longest_names_is_one_that_the_api_server_takes() {
        let long = |c: &str, at: usize| format!("{}{at}", c.repeat(252));
        let all: Vec<_> = (0..9)
            .map(|at| removed("c", &long("p", at), &long("n", at)))
            .collect();
        let note = note(&all);
        assert!(note.len() < 1_024, "{}", note.len());
    }

    #[test]
    fn a_removal_is_remembered_until_a_status_has_told_of_it() {
        let mut removals = of(&[removed("1", "a", "n1")]);
        // The status could not be written.
        removals.add(&removed("2", "b", "n1"), None, Timestamp::UNIX_EPOCH);
        assert_eq!(removals.last().map(|last| &*last.contender), Some("2"));
        assert!(removals.notice().unwrap().note.contains("2 contenders, of a, b"));
        removals.told(&DistributedLockStatus::default());
        assert_eq!((removals.last(), removals.notice()), (None, None));
        assert_eq!(removals, Removals::default());
    }

    #[test]
    fn of_twenty_thousand_contenders_no_more_is_remembered_than_of_a_few_and_of_all_holders_that_users_see() {
        let previous = held_by(&["_c_7", "_c_9"]);
        let mut removals = Removals::default();
        for at in 0..20_000 {
            let one = removed(&format!("_c_{at}"), &format!("p{at}"), "n1");
            removals.add(&one, Some(&previous), Timestamp::UNIX_EPOCH);
        }
        let nodes = ["_c_6", "_c_7", "_c_9"].map(|contender| removals.node(contender));
        assert_eq!(nodes, [None, Some("n1"), Some("n1")]);
        assert_eq!(removals.holders.len(), 2);
        let untold = removals.untold.as_ref().unwrap();
        assert_eq!((untold.pods.len(), untold.nodes.len()), (PODS_NAMED, 1));
        // A status still shows one of them.
        removals.told(&held_by(&["_c_9"]));
        assert_eq!(removals.holders.len(), 1);
    }
}
