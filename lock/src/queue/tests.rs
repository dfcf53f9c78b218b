//! Tests of the order of a queue, and of who is in whose way.

use super::*;

fn names(text: &str) -> Vec<String> {
    text.split_whitespace()
        .map(|word| {
            let (kind, sequence) = word.split_at(1);
            let marker = match kind {
                "r" => "-__READ__",
                "w" => "-__WRIT__",
                _ => "-lock-",
            };
            format!(
                "_c_00000000-0000-0000-0000-000000000000{marker}{:010}",
                sequence.parse::<i32>().unwrap()
            )
        })
        .collect()
}

fn name(word: &str) -> String {
    names(word).remove(0)
}

fn ahead(children: &str, own: &str, mode: Mode) -> Ahead {
    Ahead::from_children(&names(children), &name(own), mode).unwrap()
}

fn semaphore(limit: u32) -> Mode {
    Mode::Semaphore(NonZeroU32::new(limit).unwrap())
}

#[test]
fn the_lowest_sequence_number_is_first_whatever_the_order_of_the_listing() {
    assert_eq!(ahead("l7 l3 l5", "l3", Mode::Exclusive).place().position, 0);
    let place = ahead("l7 l3 l5", "l7", Mode::Exclusive).place();
    assert_eq!(
        (place.position, place.watch, place.is_heir),
        (2, vec![name("l5")], false)
    );
    assert!(ahead("l7 l3 l5", "l5", Mode::Exclusive).place().is_heir);
}

#[test]
fn a_contender_that_is_not_listed_has_no_place() {
    assert_eq!(
        Ahead::from_children(&names("l1 l2"), &name("l3"), Mode::Exclusive),
        None
    );
}

#[test]
fn children_that_are_no_contenders_are_not_counted() {
    let mut children = names("l2");
    for foreign in [
        "x",
        "lock-1",
        "-lock-",
        "_c_x-lock-12",
        "leases",
        "_c_x-latch-0000000001",
    ] {
        children.push(foreign.to_owned());
    }
    let ahead = Ahead::from_children(&children, &name("l2"), Mode::Exclusive).unwrap();
    assert_eq!(ahead.place().position, 0);
}

#[test]
fn contenders_whose_order_cannot_be_told_are_found() {
    for last in [
        "_c_a-lock-2147483647",
        "_c_a-lock--2147483648",
        "_c_a-lock--000000001",
        "_c_a-__READ__0000000007",
    ] {
        let children = ["_c_b-lock-0000000007", "_c_c-lock-0000000009", last].map(str::to_owned);
        let found = out_of_numbers(&sorted(&children)).map(|contender| contender.name.clone());
        assert_eq!(found.as_deref(), Some(last));
    }
    let children = ["_c_a-lock-0000000000", "_c_b-lock-2147483646"].map(str::to_owned);
    assert_eq!(out_of_numbers(&sorted(&children)), None);
}

#[test]
fn a_reader_with_the_number_of_a_writer_is_the_same_clients_and_behind_it() {
    let (writer, reader) = ("_c_b-__WRIT__0000000007", "_c_a-__READ__0000000007");
    for children in [[writer, reader], [reader, writer]] {
        let sorted = sorted(&children.map(str::to_owned));
        assert_eq!(out_of_numbers(&sorted), None);
        assert_eq!([&*sorted[0].name, &*sorted[1].name], [writer, reader]);
    }
    let children = [writer, reader, "_c_c-__READ__0000000007"].map(str::to_owned);
    let found = out_of_numbers(&sorted(&children)).is_some();
    assert!(found, "two readers");
}

#[test]
fn only_a_writer_of_a_read_write_lock_may_leave_a_reader_in_front_of_those_that_wait() {
    for (marker, may) in [
        ("-__WRIT__", true),
        ("-lock-", false),
        ("-__READ__", false),
        ("__lock__", false),
    ] {
        let contender = Contender::parse(&format!("_c_a{marker}0000000007")).unwrap();
        assert_eq!(contender.may_leave_a_reader(), may, "{marker}");
    }
}

#[test]
fn a_reader_with_the_number_of_our_own_writer_is_waited_for() {
    let place = ahead("w7 r7 r8", "w7", Mode::Write).place();
    assert_eq!((place.position, place.watch), (1, vec![name("r7")]));
}

#[test]
fn a_predecessor_seen_held_proves_that_nobody_else_is_before_us() {
    let mut queue = ahead("l1 l2 l3", "l3", Mode::Exclusive);
    queue.remove(&name("l2"), false);
    assert_eq!(queue.place().watch, [name("l1")], "it went while waiting");
    let mut queue = ahead("l1 l2 l3", "l3", Mode::Exclusive);
    queue.seen_held(&name("l2"));
    assert!(queue.place().is_heir);
    queue.remove(&name("l2"), true);
    assert_eq!(queue.place().position, 0);
}

#[test]
fn a_predecessor_seen_to_hold_a_semaphore_proves_that_somebody_before_it_has_gone() {
    let mut queue = ahead("l1 l2 l3 l4", "l4", semaphore(2));
    assert!(
        queue.seen_held(&name("l3")),
        "l1 or l2 is gone, and no event has reported it"
    );
    let mut queue = ahead("l1 l3 l4", "l4", semaphore(2));
    assert!(!queue.seen_held(&name("l3")));
    assert!(queue.place().is_heir);
}

#[test]
fn a_later_writer_excludes_all_before_it_and_a_later_reader_nobody() {
    assert!(excludes(&name("w3"), &name("r2")));
    assert!(excludes(&name("l3"), &name("l2")));
    assert!(!excludes(&name("r3"), &name("w2")));
    assert!(!excludes(&name("l2"), &name("l3")));
    assert!(!excludes(&name("l2"), &name("l2")));
    assert!(!excludes("10.0.0.7", &name("l2")));
}

#[test]
fn a_semaphore_has_as_many_holders_as_it_says_and_its_first_waiter_watches_them_all() {
    for (own, position) in [("l1", 0), ("l2", 0), ("l3", 1), ("l4", 2)] {
        assert_eq!(
            ahead("l1 l2 l3 l4", own, semaphore(2)).place().position,
            position,
            "{own}"
        );
    }
    let mut heir = ahead("l1 l2 l3 l4", "l3", semaphore(2));
    assert_eq!(heir.place().watch, names("l1 l2"));
    heir.remove(&name("l2"), true);
    assert_eq!(heir.place().position, 0);
    let mut last = ahead("l1 l2 l3 l4", "l4", semaphore(2));
    assert_eq!(last.place().watch, [name("l3")]);
    last.remove(&name("l3"), true);
    assert_eq!(
        last.place().watch,
        names("l1 l2"),
        "a semaphore's holder does not hold alone"
    );
}

#[test]
fn a_reader_waits_for_the_nearest_writer_only() {
    assert_eq!(ahead("r1 r2 r3", "r3", Mode::Read).place().position, 0);
    let place = ahead("w1 r2 w3 r4 r5", "r5", Mode::Read).place();
    assert_eq!((place.watch, place.is_heir), (vec![name("w3")], false));
    assert!(ahead("w1 r2 r3", "r3", Mode::Read).place().is_heir);
    let mut queue = ahead("w1 r2 w3 r4", "r4", Mode::Read);
    queue.remove(&name("w3"), false);
    assert_eq!(queue.place().watch, [name("w1")]);
    let mut queue = ahead("w1 r2 w3 r4", "r4", Mode::Read);
    queue.remove(&name("w3"), true);
    assert_eq!(queue.place().position, 0);
}

#[test]
fn a_writer_waits_for_everybody_and_is_heir_behind_readers() {
    let mut queue = ahead("r1 r2 w3", "w3", Mode::Write);
    assert_eq!(
        (queue.place().watch, queue.place().is_heir),
        (vec![name("r1"), name("r2")], true)
    );
    queue.remove(&name("r2"), true);
    assert_eq!(queue.place().watch, [name("r1")], "another reader may still hold");
    assert_eq!(ahead("w1 r2 w3", "w3", Mode::Write).place().watch, [name("r2")]);
    assert!(!ahead("r1 w2 w3", "w3", Mode::Write).place().is_heir);
}
