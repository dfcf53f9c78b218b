use kube::CustomResourceExt;
use lockkeeper_crds::DistributedLock;
use lockkeeper_lock::{FencingToken, Mode};

use super::*;
use crate::lock_key::LockKey;
use crate::zookeeper::queues::picture::{Contender, Picture};

fn data(state: &str, pod: &str) -> Vec<u8> {
    format!(
        r#"{{"v":1,"state":"{state}","pod":{{"namespace":"shop","name":"{pod}","uid":"u-{pod}","node":"n1"}},
            "revision":"6c9d","since":"2026-01-02T03:04:05Z"}}"#
    )
    .into_bytes()
}

fn queue(contenders: &[(i64, Vec<u8>)]) -> Queue {
    let key = LockKey::new("shop", "report");
    let mut picture = Picture::default();
    picture.set_exists(&key, true);
    for (sequence, data) in contenders {
        let name = format!("_c_x-lock-{sequence:010}");
        picture.put(&key, Contender::read(name, FencingToken(*sequence), true, data));
    }
    picture.queue(&key).cloned().unwrap()
}

fn status(previous: &DistributedLockStatus, queue: &Queue, mode: Mode, second: i64) -> DistributedLockStatus {
    let seen = Observation {
        generation: Some(1),
        queue,
        participants: &queue.participants(mode),
        pods: &BTreeMap::new(),
        readiness: Readiness::Ready,
        trial: None,
    };
    observed(previous, &seen, Timestamp::from_second(second).unwrap())
}

fn condition(status: &DistributedLockStatus, kind: ConditionType) -> (&str, &str, i64) {
    let found = status.conditions.iter().find(|one| one.type_ == kind.as_str());
    let found = found.unwrap();
    (
        &found.status,
        &found.reason,
        found.last_transition_time.0.as_second(),
    )
}

#[test]
fn pods_that_were_made_with_other_settings_are_named_while_the_lock_is_ready() {
    let queue = queue(&[]);
    let pods = ["a", "b", "c", "d"].map(str::to_owned);
    let seen = Observation {
        generation: Some(1),
        queue: &queue,
        participants: &[],
        pods: &BTreeMap::new(),
        readiness: Readiness::Outdated(pods.to_vec()),
        trial: None,
    };
    let status = observed(&DistributedLockStatus::default(), &seen, Timestamp::UNIX_EPOCH);
    let ready = condition(&status, ConditionType::Ready);
    assert_eq!((ready.0, ready.1), ("True", "PodsOutdated"));
    let message = &status.conditions[0].message;
    assert!(
        message.ends_with("restart these pods, which were created with other settings: a, b, c and 1 more"),
        "{message}"
    );
}

#[test]
fn the_holder_its_token_and_those_who_wait_are_shown_in_order() {
    let queue = queue(&[
        (9, data("waiting", "c")),
        (5, data("held", "a")),
        (7, data("waiting", "b")),
    ]);
    let status = status(&DistributedLockStatus::default(), &queue, Mode::Exclusive, 100);
    assert_eq!(status.holders.len(), 1);
    let holder = &status.holders[0];
    assert_eq!((holder.pod.as_str(), holder.fencing_token), ("a", 5));
    assert_eq!(holder.since, Some(Time("2026-01-02T03:04:05Z".parse().unwrap())));
    let waiting: Vec<_> = status.queue.iter().map(|one| one.pod.as_str()).collect();
    assert_eq!((status.waiting, waiting), (Some(2), vec!["b", "c"]));
    assert_eq!(
        condition(&status, ConditionType::Held),
        ("True", "HeldByPods", 100)
    );
}

#[test]
fn the_time_to_stop_is_what_the_holders_pod_says_and_unknown_while_nobody_holds() {
    let says = |state: &str| {
        let text = format!(r#"{{"state":"{state}","stopBudgetMillis":4500}}"#);
        queue(&[(5, text.into_bytes())])
    };
    let budget = |queue: &Queue| status(&Default::default(), queue, Mode::Exclusive, 1).stop_budget;
    assert_eq!(budget(&says("held")), Some(ApiDuration::from_millis(4_500)));
    assert_eq!(budget(&says("waiting")), None);
}

#[test]
fn the_same_observation_gives_the_same_status_however_late() {
    let queue = queue(&[(5, data("held", "a"))]);
    let first = status(&DistributedLockStatus::default(), &queue, Mode::Exclusive, 100);
    assert_eq!(status(&first, &queue, Mode::Exclusive, 200), first);
}

#[test]
fn only_the_first_ten_who_wait_are_shown_and_all_are_counted() {
    let contenders: Vec<_> = (1..=30)
        .map(|at| (at, data(if at == 1 { "held" } else { "waiting" }, "p")))
        .collect();
    let status = status(
        &DistributedLockStatus::default(),
        &queue(&contenders),
        Mode::Exclusive,
        1,
    );
    assert_eq!((status.waiting, status.queue.len()), (Some(29), QUEUE_SHOWN));
}

#[test]
fn a_semaphore_shows_all_its_holders() {
    let queue = queue(&[
        (1, data("held", "a")),
        (2, data("held", "b")),
        (3, data("waiting", "c")),
    ]);
    let two = Mode::Semaphore(2.try_into().unwrap());
    let status = status(&DistributedLockStatus::default(), &queue, two, 1);
    assert_eq!((status.holders.len(), status.waiting), (2, Some(1)));
}

#[test]
fn whose_turn_has_come_and_who_has_not_said_so_is_no_holder_yet() {
    let queue = queue(&[(5, data("waiting", "a"))]);
    assert!(is_between_holders(&queue.participants(Mode::Exclusive)));
    let status = status(&DistributedLockStatus::default(), &queue, Mode::Exclusive, 1);
    assert_eq!((status.holders.len(), status.waiting), (0, Some(1)));
    assert_eq!(condition(&status, ConditionType::Held).1, "NotTakenYet");
}

#[test]
fn a_client_outside_the_cluster_holds_under_its_own_word() {
    let queue = queue(&[(5, b"10.0.0.7".to_vec()), (6, data("waiting", "a"))]);
    assert!(!is_between_holders(&queue.participants(Mode::Exclusive)));
    let status = status(&DistributedLockStatus::default(), &queue, Mode::Exclusive, 1);
    assert_eq!(status.holders[0].pod, "10.0.0.7");
    assert_eq!(status.holders[0].uid, None);
}

#[test]
fn out_of_reach_keeps_what_was_known_and_says_since_when_it_is_old() {
    let queue = queue(&[(5, data("held", "a"))]);
    let known = status(&DistributedLockStatus::default(), &queue, Mode::Exclusive, 100);
    let later = Timestamp::from_second(200).unwrap();
    let lost = out_of_reach(
        &known,
        Some(1),
        &Problem::new(Reason::Disconnected, "no answer"),
        later,
    );
    assert_eq!(lost.holders, known.holders);
    assert_eq!(
        condition(&lost, ConditionType::EnsembleReachable),
        ("False", "Disconnected", 200)
    );
    assert_eq!(condition(&lost, ConditionType::Held).0, "Unknown");
    assert_eq!(condition(&lost, ConditionType::Ready).0, "Unknown");
    let refused = Problem::new(Reason::CredentialsRefused, "who are you?");
    let refused = out_of_reach(&known, Some(1), &refused, later);
    for kind in [ConditionType::Ready, ConditionType::EnsembleReachable] {
        assert_eq!(condition(&refused, kind), ("False", "CredentialsRefused", 200));
    }
    let again = status(&lost, &queue, Mode::Exclusive, 300);
    assert_eq!(
        condition(&again, ConditionType::EnsembleReachable),
        ("True", "Connected", 300)
    );
    assert_eq!(condition(&again, ConditionType::Held).2, 300);
}

#[test]
fn many_holders_are_named_in_part() {
    let contenders: Vec<_> = (1..=5).map(|at| (at, data("held", &format!("p{at}")))).collect();
    let five = Mode::Semaphore(5.try_into().unwrap());
    let status = status(&DistributedLockStatus::default(), &queue(&contenders), five, 1);
    assert_eq!(named(&status.holders), "p1, p2, p3 and 2 more");
    assert_eq!(named(&status.holders[..1]), "p1");
}

#[test]
fn a_status_stays_one_that_the_api_server_takes_whatever_contenders_say() {
    let long = "\\u0001".repeat(600);
    let queue = queue(&[(5, data("held", &long)), (7, data("waiting", &"é".repeat(1500)))]);
    let status = status(&DistributedLockStatus::default(), &queue, Mode::Exclusive, 100);
    // What is no name of a pod is not shown as one: the node's own name is.
    assert!(status.holders[0].pod.starts_with("_c_"), "{:?}", status.holders);
    assert!(status.queue[0].pod.starts_with("_c_"), "{:?}", status.queue);
    let length = serde_json::to_vec(&status).unwrap().len();
    assert!(length < 8 * 1024, "{length}");
}

#[test]
fn a_queue_that_is_not_followed_is_no_fault_of_the_ensemble_and_what_was_known_stays() {
    let queue = queue(&[(5, data("held", "a"))]);
    let known = status(&DistributedLockStatus::default(), &queue, Mode::Exclusive, 100);
    let problem = Problem::new(Reason::TooManyContenders, "too many");
    let unseen = out_of_reach(&known, Some(1), &problem, Timestamp::from_second(200).unwrap());
    assert_eq!(unseen.holders, known.holders);
    let reason = "TooManyContenders";
    assert_eq!(condition(&unseen, ConditionType::Ready), ("False", reason, 200));
    assert_eq!(condition(&unseen, ConditionType::Held), ("Unknown", reason, 200));
    assert_eq!(
        condition(&unseen, ConditionType::EnsembleReachable),
        ("True", "Connected", 100)
    );
}

#[test]
fn where_the_resource_keeps_no_ensemble_a_condition_says_so_and_trying_again_changes_nothing() {
    let problem = Problem::new(Reason::ResourceOutdated, "upgrade the chart lockkeeper-crds");
    // What a resource of an older release leaves of a status.
    let kept = |status: DistributedLockStatus| DistributedLockStatus {
        ensemble: None,
        trial: None,
        ..status
    };
    let at = |second| Timestamp::from_second(second).unwrap();
    let told = kept(claimed(
        &DistributedLockStatus::default(),
        "id",
        Some(1),
        Some(&problem),
        at(100),
    ));
    assert_eq!(
        condition(&told, ConditionType::Ready),
        ("False", "ResourceOutdated", 100)
    );
    assert_eq!(resource_outdated(&told).as_ref(), Some(&problem));
    let again = kept(claimed(
        &told,
        "id",
        Some(1),
        resource_outdated(&told).as_ref(),
        at(200),
    ));
    assert_eq!(again, told);
    // The resource was upgraded.
    let ready = status(&told, &queue(&[]), Mode::Exclusive, 300);
    assert_eq!(resource_outdated(&ready), None);
}

#[test]
fn a_holder_that_took_the_place_of_a_silent_one_says_so_and_nothing_of_it_breaks_the_status() {
    let taken = |took_over: &str| {
        let data = format!(r#"{{"v":1,"state":"held","tookOver":{took_over}}}"#);
        let queue = queue(&[(2, data.into_bytes())]);
        let status = status(&DistributedLockStatus::default(), &queue, Mode::Exclusive, 1);
        let text = serde_json::to_string(&status).unwrap();
        assert_eq!(
            serde_json::from_str::<DistributedLockStatus>(&text).unwrap(),
            status
        );
        status.holders[0].taken_from.clone()
    };
    let pod = r#"{"namespace":"shop","name":"a","uid":"u","node":"n1"}"#;
    let from = taken(&format!(
        r#"{{"contender":"_c_x-lock-0000000001","pod":{pod},"silentMillis":8612}}"#
    ));
    let from = from.unwrap();
    assert_eq!((&*from.pod, &*from.contender), ("a", "_c_x-lock-0000000001"));
    assert_eq!(from.silence, ApiDuration::from_millis(8_612));
    let long = taken(r#"{"contender":"_c_x-lock-0000000001","silentMillis":18446744073709551615}"#).unwrap();
    assert_eq!(
        (&*long.pod, long.silence.get()),
        ("_c_x-lock-0000000001", LONGEST_TOLD)
    );
    assert_eq!(taken(r#"{"contender":"somebody","silentMillis":1}"#), None);
}

#[test]
fn a_holder_is_shown_with_the_lease_duration_that_it_states_and_that_is_plausible() {
    let stated = |said: &str| {
        let data = format!(r#"{{"v":1,"state":"held"{said}}}"#);
        let queue = queue(&[(2, data.into_bytes())]);
        let status = status(&DistributedLockStatus::default(), &queue, Mode::Exclusive, 1);
        status.holders[0].lease_duration
    };
    let lease = ApiDuration::from_millis(8_500);
    assert_eq!(stated(r#","leaseMillis":8500"#), Some(lease));
    assert_eq!(stated(""), None);
    assert_eq!(stated(r#","leaseMillis":18446744073709551615"#), None);
}

#[test]
fn no_contender_can_make_a_status_that_cannot_be_written_or_read_back() {
    for said in [
        r#""stopBudgetMillis":360000000"#,
        r#""stopBudgetMillis":100000000"#,
        r#""stopBudgetMillis":18446744073709551615"#,
        r#""since":"-000001-01-01T00:00:00Z""#,
        r#""since":"9999-12-31T23:59:59.999999999Z""#,
        r#""since":"1969-12-31T23:59:59Z""#,
    ] {
        let queue = queue(&[(2, format!(r#"{{"v":1,"state":"held",{said}}}"#).into_bytes())]);
        let status = status(&DistributedLockStatus::default(), &queue, Mode::Exclusive, 1);
        let text = serde_json::to_string(&status).unwrap();
        assert!(!text.contains("\"-0000") && !text.contains("1969"), "{text}");
        let back: DistributedLockStatus =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{said}: {error}"));
        assert_eq!(back, status);
    }
    // Contenders of other ensembles come from a process that is not trusted.
    for millis in [360_000_000, u64::MAX] {
        assert_eq!(told(millis).get(), LONGEST_TOLD);
        assert_eq!(told(millis).to_string().parse(), Ok(told(millis)));
    }
}

#[test]
fn the_resource_takes_every_name_that_is_shown_of_a_contender_however_long_it_is() {
    let longest = shown(&"x".repeat(4_096)).chars().count() as u64;
    let definition = serde_json::to_value(DistributedLock::crd()).unwrap();
    let status =
        &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"];
    let holder = &status["holders"]["items"]["properties"];
    for (what, field) in [
        ("holders", &holder["contender"]),
        ("holders", &holder["pod"]),
        ("holders", &holder["node"]),
        ("queue", &status["queue"]["items"]["properties"]["contender"]),
        ("fenced", &status["fenced"]["properties"]["contender"]),
    ] {
        assert_eq!(field["type"], "string", "{what}: {field}");
        let takes = field["maxLength"].as_u64().unwrap_or(u64::MAX);
        assert!(takes >= longest, "{what} takes {takes} of {longest}: {field}");
    }
}
