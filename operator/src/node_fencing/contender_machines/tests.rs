use lockkeeper_lock::Mode;

use super::*;
use crate::kubernetes::pods::PodFacts;
use crate::zookeeper::queues::picture::Contender;

const NOBODY: [i64; 0] = [];

/// Seconds of the clock of the API server.
fn at(second: i64) -> Option<Timestamp> {
    Some(Timestamp::from_second(second).unwrap())
}

fn key() -> LockKey {
    LockKey::new("shop", "report")
}

/// A contender under a token that says that it stands for this pod.
fn contender(token: i64, namespace: &str, pod: &str, uid: &str, node: &str) -> Contender {
    let data = format!(
        r#"{{"state":"held","pod":{{"namespace":"{namespace}","name":"{pod}","uid":"{uid}","node":"{node}"}}}}"#
    );
    let name = format!("_c_{pod}-lock-{token:010}");
    Contender::read(name, FencingToken(token), true, data.as_bytes())
}

/// A pod that was created in second 100 and bound to a node.
fn pod(name: &str, uid: &str, node: Option<&str>) -> (String, PodFacts) {
    let pod = serde_json::json!({
        "metadata": {"name": name, "uid": uid, "creationTimestamp": "1970-01-01T00:01:40Z"},
        "spec": {"nodeName": node, "containers": []},
    });
    let facts = PodFacts::of(&serde_json::from_value(pod).unwrap());
    assert_eq!((facts.node.as_deref(), facts.created), (node, at(100)));
    (name.to_owned(), facts)
}

fn running() -> Machine {
    Machine {
        uid: "m1".to_owned(),
        created: at(0),
        is_out_of_service: false,
        is_silent: false,
    }
}

fn off() -> Machine {
    Machine {
        is_out_of_service: true,
        is_silent: true,
        ..running()
    }
}

/// The contenders that are known to be dead when their node is as `now` says, after the node was described as in `asked`.
fn dead(queue: &Queue, pods: &BTreeMap<String, PodFacts>, asked: &Machine, now: &Machine) -> Vec<i64> {
    let mut berths = Berths::default();
    for node in berths.note(&key(), queue, pods) {
        let unvouched = berths.unvouched(&node, [&key()]);
        berths.vouch(&unvouched, asked);
    }
    dead_of(&berths, queue, now)
}

fn dead_of(berths: &Berths, queue: &Queue, now: &Machine) -> Vec<i64> {
    let participants = queue.participants(Mode::Exclusive);
    let suspects = berths.suspects(&key(), &participants, |node, _| node == "n1");
    let seen = suspects.into_iter().map(|suspect| Suspect {
        now: Some(Arc::new(now.clone())),
        ..suspect
    });
    seen.filter(Suspect::is_dead)
        .map(|suspect| suspect.token.0)
        .collect()
}

fn two() -> (Queue, BTreeMap<String, PodFacts>) {
    let queue = Queue::of(
        true,
        [
            contender(1, "shop", "a", "u-a", "n1"),
            contender(2, "shop", "b", "u-b", "n2"),
            contender(3, "shop", "c", "u-c", "n1"),
        ],
    );
    let pods = [
        pod("a", "u-a", Some("n1")),
        pod("b", "u-b", Some("n2")),
        pod("c", "u-c", Some("n1")),
    ];
    (queue, pods.into())
}

#[test]
fn holder_and_waiters_of_a_machine_that_was_powered_off_are_dead_and_nobody_else() {
    let (queue, pods) = two();
    assert_eq!(dead(&queue, &pods, &running(), &off()), [1, 3]);
}

#[test]
fn a_node_without_the_taint_loses_nobody_however_silent_it_is() {
    let (queue, pods) = two();
    let silent = Machine {
        is_out_of_service: false,
        ..off()
    };
    assert_eq!(dead(&queue, &pods, &running(), &silent), NOBODY);
}

#[test]
fn a_node_whose_kubelet_is_heard_of_loses_nobody_also_with_the_taint() {
    let (queue, pods) = two();
    let heard = Machine {
        is_silent: false,
        ..off()
    };
    assert_eq!(dead(&queue, &pods, &running(), &heard), NOBODY);
}

#[test]
fn a_node_that_was_created_again_under_the_same_name_loses_nobody() {
    let (queue, pods) = two();
    let again = Machine {
        uid: "m2".to_owned(),
        ..off()
    };
    assert_eq!(dead(&queue, &pods, &running(), &again), NOBODY);
    // The node was created after the pods: they may run on the machine that had the name before.
    for created in [at(100), at(101), None] {
        let [before, after] = [running(), off()].map(|machine| Machine { created, ..machine });
        assert_eq!(dead(&queue, &pods, &before, &after), NOBODY, "{created:?}");
    }
}

#[test]
fn a_contender_that_was_seen_only_with_the_taint_on_its_node_stays() {
    let (queue, pods) = two();
    assert_eq!(dead(&queue, &pods, &off(), &off()), NOBODY);
    let (mut berths, empty) = (Berths::default(), Queue::of(true, []));
    assert!(berths.note(&key(), &empty, &pods).is_empty());
    // Asked before it was seen: the answer is about those that were there.
    let unvouched = berths.unvouched("n1", [&key()]);
    assert_eq!(berths.note(&key(), &queue, &pods).len(), 2);
    berths.vouch(&unvouched, &running());
    assert_eq!(dead_of(&berths, &queue, &off()), NOBODY);
}

#[test]
fn what_a_contender_says_of_its_pod_counts_only_if_the_api_server_says_the_same() {
    let (_, pods) = two();
    for (what, liar) in [
        (
            "a pod of another namespace",
            contender(9, "bank", "a", "u-a", "n1"),
        ),
        ("another pod of that name", contender(9, "shop", "a", "u-x", "n1")),
        ("a pod that is elsewhere", contender(9, "shop", "b", "u-b", "n1")),
        ("another node", contender(9, "shop", "a", "u-a", "n2")),
        ("no pod of this lock", contender(9, "shop", "z", "u-z", "n1")),
    ] {
        let queue = Queue::of(true, [liar]);
        assert_eq!(dead(&queue, &pods, &running(), &off()), NOBODY, "{what}");
    }
    let unbound = [pod("a", "u-a", None)].into();
    let queue = Queue::of(true, [contender(1, "shop", "a", "u-a", "n1")]);
    assert_eq!(dead(&queue, &unbound, &running(), &off()), NOBODY);
}

#[test]
fn where_a_contender_is_stays_known_when_its_pod_is_gone_or_it_says_something_else() {
    let (queue, pods) = two();
    let mut berths = Berths::default();
    for node in berths.note(&key(), &queue, &pods) {
        let unvouched = berths.unvouched(&node, [&key()]);
        berths.vouch(&unvouched, &running());
    }
    let turned = contender(1, "shop", "b", "u-b", "n2");
    let turned = Contender {
        name: "_c_a-lock-0000000001".into(),
        ..turned
    };
    let others = queue.contenders().filter(|one| one.token.0 != 1).cloned();
    let queue = Queue::of(true, others.chain([turned]));
    assert!(berths.note(&key(), &queue, &BTreeMap::new()).is_empty());
    assert_eq!(dead_of(&berths, &queue, &off()), [1, 3]);
    assert_eq!(berths.locks_on("n1"), [key()]);
}

#[test]
fn another_contender_of_the_same_name_starts_without_a_voucher() {
    let (queue, pods) = two();
    let mut berths = Berths::default();
    for node in berths.note(&key(), &queue, &pods) {
        let unvouched = berths.unvouched(&node, [&key()]);
        berths.vouch(&unvouched, &running());
    }
    let renewed = queue.contenders().map(|one| Contender {
        token: FencingToken(one.token.0 + 10),
        ..one.clone()
    });
    let queue = Queue::of(true, renewed.collect::<Vec<_>>());
    // Before the change was taken in, and after it.
    assert_eq!(dead_of(&berths, &queue, &off()), NOBODY);
    assert_eq!(berths.note(&key(), &queue, &pods).len(), 2);
    assert_eq!(dead_of(&berths, &queue, &off()), NOBODY);
}

#[test]
fn nothing_is_remembered_of_contenders_and_locks_that_are_gone() {
    let (queue, pods) = two();
    let mut berths = Berths::default();
    for end in [
        |berths: &mut Berths| drop(berths.note(&key(), &Queue::of(true, []), &BTreeMap::new())),
        |berths: &mut Berths| berths.forget(&key()),
        |berths: &mut Berths| berths.keep(|_| false),
    ] {
        berths.note(&key(), &queue, &pods);
        assert!(!berths.by_lock.is_empty());
        end(&mut berths);
        assert!(berths.by_lock.is_empty());
    }
}

#[test]
fn thousands_of_contenders_that_a_tenant_writes_for_one_pod_take_little_memory() {
    assert!(
        size_of::<(Arc<str>, Berth)>() <= 88,
        "docs/operator.md states that size"
    );
    let queue = Queue::of(
        true,
        (1..=1_000).map(|at| contender(at, "shop", "a", "u-a", "n1")),
    );
    let (mut berths, pods) = (Berths::default(), [pod("a", "u-a", Some("n1"))].into());
    berths.note(&key(), &queue, &pods);
    let unvouched = berths.unvouched("n1", [&key()]);
    berths.vouch(&unvouched, &running());
    let late = contender(2_000, "shop", "a", "u-a", "n1");
    let queue = Queue::of(true, queue.contenders().cloned().chain([late]));
    berths.note(&key(), &queue, &pods);
    let all: Vec<_> = berths.by_lock[&key()].values().collect();
    assert_eq!(all.len(), 1_001);
    for one in &all {
        assert!(Arc::ptr_eq(&one.pod, &all[0].pod) && Arc::ptr_eq(&one.node, &all[0].node));
    }
    let mut machines = all.iter().filter_map(|one| one.machine.as_ref());
    let first = machines.next().unwrap();
    assert_eq!(machines.filter(|one| Arc::ptr_eq(one, first)).count(), 999);
}
