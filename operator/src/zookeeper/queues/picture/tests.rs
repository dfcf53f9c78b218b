use super::*;

fn contender(sequence: u32, state: &str) -> Contender {
    Contender {
        name: format!("_c_{sequence}-lock-{sequence:010}").into(),
        token: FencingToken(i64::from(sequence)),
        data: Arc::new(ContenderData {
            state: state.into(),
            ..ContenderData::default()
        }),
        is_ephemeral: true,
        foreign: None,
    }
}

#[test]
fn a_child_with_a_session_that_is_no_contender_is_a_stranger() {
    let key = LockKey::new("a", "b");
    let mut picture = Picture::default();
    for (name, is_ephemeral) in [
        ("_c_x-lock-0000000001", true),
        ("0f3c__lock__0000000002", true),
        ("n_0000000003", true),
        ("readme", false),
    ] {
        let node = Contender::read(name, FencingToken(1), is_ephemeral, b"");
        picture.put(&key, node);
    }
    let queue = picture.queue(&key).unwrap();
    assert_eq!(queue.strangers().collect::<Vec<_>>(), ["n_0000000003"]);
    assert_eq!(queue.participants(Mode::Exclusive).len(), 2);
}

#[test]
fn the_queue_is_in_the_order_of_sequence_numbers_whatever_was_read_first() {
    let key = LockKey::new("a", "b");
    let mut picture = Picture::default();
    for sequence in [7, 3, 5] {
        assert!(picture.put(&key, contender(sequence, "waiting")));
    }
    let order: Vec<_> = picture
        .queue(&key)
        .unwrap()
        .participants(Mode::Exclusive)
        .into_iter()
        .map(|participant| (participant.token.0, participant.is_holder))
        .collect();
    assert_eq!(order, [(3, true), (5, false), (7, false)]);
}

#[test]
fn a_client_of_another_kind_is_shown_as_what_it_says_and_nothing_long_or_odd_is() {
    let foreign = |data: &[u8]| Contender::read("c", FencingToken(1), true, data).foreign;
    assert_eq!(foreign(b"10.0.0.7").as_deref(), Some("10.0.0.7"));
    assert_eq!(foreign(br#"{"v":1,"state":"held"}"#), None);
    for data in [&b""[..], b"<b>", &[b'a'; 65], b"\xff"] {
        assert_eq!(foreign(data), None);
    }
}

#[test]
fn what_was_known_already_is_no_news() {
    let key = LockKey::new("a", "b");
    let mut picture = Picture::default();
    assert!(picture.set_exists(&key, true));
    assert!(!picture.set_exists(&key, true));
    assert!(picture.put(&key, contender(1, "waiting")));
    assert!(!picture.put(&key, contender(1, "waiting")));
    assert!(picture.put(&key, contender(1, "held")));
    assert!(picture.remove(&key, &contender(1, "").name));
    assert!(!picture.remove(&key, &contender(1, "").name));
    assert!(picture.set_exists(&key, false));
    assert_eq!(picture, Picture::default());
}

#[test]
fn a_queue_with_a_child_too_many_is_given_up_alone_and_its_memory_with_it() {
    let (key, other) = (LockKey::new("a", "b"), LockKey::new("a", "c"));
    let mut picture = Picture::default();
    picture.put(&other, contender(1, "held"));
    for sequence in 0..CHILDREN as u32 {
        assert!(picture.put(&key, contender(sequence, "waiting")));
    }
    assert_eq!(picture.queue(&key).unwrap().excess(), None);
    assert!(
        picture.put(&key, contender(CHILDREN as u32, "waiting")),
        "that is news"
    );
    let queue = picture.queue(&key).unwrap();
    assert_eq!(queue.excess(), Some(&Excess::Children(CHILDREN + 1)));
    assert_eq!((queue.contenders().len(), picture.contenders()), (0, 1));
    assert!(
        !picture.put(&key, contender(1, "waiting")),
        "nothing more is taken in"
    );
    assert_eq!(picture.given_up().collect::<Vec<_>>(), [&key]);
    assert_eq!(picture.queue(&other).unwrap().contenders().len(), 1);
    assert!(picture.take_up(&key) && picture.put(&key, contender(1, "waiting")));
}

#[test]
fn many_locks_of_a_namespace_take_no_more_than_their_share_and_none_of_others() {
    let mut picture = Picture::default();
    let keys: Vec<_> = (0..5).map(|at| LockKey::new("a", format!("lock-{at}"))).collect();
    for key in &keys {
        for sequence in 0..10_000 {
            picture.put(key, contender(sequence, "waiting"));
        }
    }
    assert_eq!(picture.contenders(), CHILDREN_OF_NAMESPACE);
    assert_eq!(
        picture.queue(&keys[4]).unwrap().excess(),
        Some(&Excess::Namespace)
    );
    let other = LockKey::new("b", "lock");
    assert!(picture.put(&other, contender(1, "held")));
    assert_eq!(picture.queue(&other).unwrap().excess(), None);
}

#[test]
fn a_hundred_thousand_contenders_that_come_change_and_go_take_no_time_that_grows_with_their_square() {
    // With one comparison for each pair this is 10^10 of them, and minutes.
    let keys: Vec<_> = (0..6)
        .map(|at| LockKey::new(format!("ns-{at}"), "lock"))
        .collect();
    let fill = |state| {
        let mut picture = Picture::default();
        for key in &keys {
            for sequence in 0..CHILDREN as u32 {
                picture.put(key, contender(sequence, state));
            }
        }
        picture
    };
    let began = lockkeeper_lock::BootInstant::now();
    let (old, mut new) = (fill("waiting"), fill("waiting"));
    assert!(new.differences(&old).is_empty());
    for key in &keys {
        for sequence in 0..CHILDREN as u32 {
            new.remove(key, &contender(sequence, "").name);
        }
    }
    assert_eq!(new, Picture::default());
    let took = lockkeeper_lock::BootInstant::now().saturating_since(began);
    assert!(took.as_secs() < 60, "{took:?}");
}

#[test]
fn only_locks_that_differ_are_reported_after_everything_was_read_again() {
    let keys = ["same", "changed", "gone", "new"].map(|name| LockKey::new("a", name));
    let (mut old, mut new) = (Picture::default(), Picture::default());
    for key in &keys[..3] {
        old.put(key, contender(1, "waiting"));
        old.put(key, contender(2, "waiting"));
    }
    new.put(&keys[0], contender(2, "waiting"));
    new.put(&keys[0], contender(1, "waiting"));
    new.put(&keys[1], contender(1, "held"));
    new.put(&keys[1], contender(2, "waiting"));
    new.put(&keys[3], contender(1, "waiting"));
    let differing = new.differences(&old);
    assert_eq!(differing, HashSet::from_iter(keys[1..].iter().cloned()));
}

#[test]
fn locks_are_listed_again_while_children_may_be_there_that_no_event_tells_of() {
    let keys = ["held", "hidden", "stuck", "unused"].map(|name| LockKey::new("a", name));
    let mut picture = Picture::default();
    for key in &keys {
        picture.set_exists(key, true);
    }
    picture.put(&keys[0], contender(1, "held"));
    picture.put(&keys[0], contender(2, "waiting"));
    picture.put(&keys[1], contender(1, "held"));
    picture.put(&keys[1], Contender::unread("secret"));
    picture.put(&keys[2], contender(1, "waiting"));
    let doubtful: HashSet<_> = picture.doubtful().cloned().collect();
    assert_eq!(doubtful, HashSet::from_iter(keys[1..3].iter().cloned()));
}

#[test]
fn of_what_a_contender_says_only_what_is_used_is_kept() {
    let long = "x".repeat(253);
    let pod = serde_json::json!({"namespace": "n", "name": "a", "uid": "u", "node": long});
    let said = |state: &str, contender: &str| {
        let said = serde_json::json!({
            "v": 1, "state": state, "host": "machine",
            "tookOver": {"contender": contender, "pod": pod, "silentMillis": 8612},
        });
        let read = Contender::read(
            "_c_0-lock-0000000001",
            FencingToken(1),
            true,
            said.to_string().as_bytes(),
        );
        assert_eq!(read.data.host, None);
        read.data.took_over.clone()
    };
    let kept = said("held", "_c_1-lock-0000000000").unwrap();
    assert_eq!(kept.contender, "_c_1-lock-0000000000");
    let pod = kept.pod.unwrap();
    assert_eq!(
        (pod.name.as_str(), pod.node.as_str(), pod.uid.as_str()),
        ("a", "", "")
    );
    assert_eq!(said("waiting", "_c_1-lock-0000000000"), None);
    assert_eq!(
        said("held", &format!("_c_{}-lock-0000000000", "1".repeat(64))),
        None
    );
}
