//! Which process belongs to which container, by its groups.

use super::*;

fn file(content: &str) -> OwnedFd {
    use std::io::{Seek, Write};
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(content.as_bytes()).expect("written");
    file.rewind().expect("rewound");
    file.into()
}

fn beside(own: &str) -> Groups {
    in_pod(own, "")
}

fn in_pod(own: &str, first: &str) -> Groups {
    Groups::beside(&file(own), &file(first), &mut Lines::new()).expect("groups")
}

/// Whether `other` is taken for one of the container of `member`.
fn is_member(own: &str, member: &str, other: &str) -> bool {
    let mut groups = beside(own);
    let mut lines = Lines::new();
    groups.learn(&file(member), &mut lines).expect("read");
    groups.has(&file(other), &mut lines).expect("read")
}

#[test]
fn a_process_is_known_by_the_group_of_another_one_on_version_2_and_1() {
    assert!(is_member("0::/\n", "0::/../app\n", "0::/../app\n"));
    assert!(is_member("0::/\n", "0::/../app\n", "0::/../app/below\n"));
    assert!(!is_member("0::/\n", "0::/../app\n", "0::/../app2\n"));
    let node = |name: &str| format!("9:name=systemd:/\n8:pids:/kubepods/pod1/{name}\n0::/\n");
    assert!(is_member(&node("keeper"), &node("app"), &node("app")));
    assert!(!is_member(&node("keeper"), &node("app"), &node("other")));
}

#[test]
fn a_group_that_we_are_in_ourselves_tells_nothing() {
    for (own, member) in [
        ("0::/\n", "0::/\n"),
        ("0::/a/b\n", "0::/a\n"),
        ("0::/\n", "0::/..\n"),
        ("0::/\n", "0::/../..\n"),
        ("0::/a/b\n", "0::/\n"),
    ] {
        assert!(!is_member(own, member, own), "{own} {member}");
        assert!(!is_member(own, member, member), "{own} {member}");
    }
}

#[test]
fn the_groups_of_the_last_restarts_are_remembered() {
    let mut groups = beside("0::/\n");
    let mut lines = Lines::new();
    for number in 0..6 {
        for _ in 0..2 {
            groups
                .learn(&file(&format!("0::/../{number}\n")), &mut lines)
                .expect("read");
        }
    }
    assert_eq!(groups.known(), 6);
    let remembered: Vec<_> = (0..6)
        .filter(|number| groups.has(&file(&format!("0::/../{number}\n")), &mut lines) == Ok(true))
        .collect();
    assert_eq!(remembered, [2, 3, 4, 5]);
}

#[test]
fn a_machine_without_control_groups_is_told() {
    assert!(Groups::beside(&file(""), &file(""), &mut Lines::new()).is_none());
    assert!(Groups::beside(&file("nonsense\n"), &file("0::/\n"), &mut Lines::new()).is_none());
}

fn is_strange(groups: &mut Groups, line: &str) -> bool {
    groups.is_strange(&file(line), &mut Lines::new()).expect("read")
}

#[test]
fn who_is_beside_us_in_the_pod_and_of_no_known_container_is_strange() {
    let v1 = |name: &str| format!("8:pids:/kubepods/pod1/{name}\n0::/\n");
    for (own, first, strange, others) in [
        // Version 2 with a namespace, of runc and of crun; then without one, with both; version 1.
        (
            "0::/\n",
            "0::/../box\n",
            "0::/../app\n",
            ["0::/", "0::/a", "0::/../../pod2/app", "0::/.."],
        ),
        (
            "0::/\n",
            "0::/../../box/c\n",
            "0::/../../app/c\n",
            ["0::/../b", "0::/..", "0::/../../box", "0::/../../../x"],
        ),
        (
            "0::/p/pod1/me\n",
            "0::/p/pod1/box\n",
            "0::/p/pod1/app/x\n",
            ["0::/p/pod1/me/x", "0::/p/pod2/app", "0::/p/pod1", "0::/p"],
        ),
        (
            "0::/p/pod1/me/c\n",
            "0::/p/pod1/box\n",
            "0::/p/pod1/app/c\n",
            ["0::/p/pod1/me", "0::/p/pod1/me/d", "0::/p/pod12/c", "0::/"],
        ),
        (
            &v1("me"),
            &v1("box"),
            &v1("app"),
            [
                "0::/",
                "8:pids:/kubepods/pod1/me/x",
                "8:pids:/kubepods/pod1",
                "9:cpu:/kubepods/pod1/app",
            ],
        ),
    ] {
        let mut groups = in_pod(own, first);
        assert!(is_strange(&mut groups, strange), "{own} {strange}");
        for line in others.into_iter().chain([own, first]) {
            assert!(!is_strange(&mut groups, line), "{own} {line}");
        }
        assert!(groups.read(&file(strange), &mut Lines::new()).expect("read"));
        groups.learn_other();
        assert!(!is_strange(&mut groups, strange), "{own} {strange} is known");
    }
}

#[test]
fn where_the_first_process_is_none_of_the_pod_nobody_is_strange() {
    for (own, first) in [
        ("0::/\n", "0::/\n"),
        ("0::/\n", ""),
        ("0::/\n", "0::/../../../../init.scope\n"),
        ("0::/a\n", "0::/init.scope\n"),
        ("0::/a/b\n", "0::/\n"),
        ("0::/a\n", "0::/a/b\n"),
        ("0::/a/b/c/d\n", "0::/a/init\n"),
        ("1:pids:/a/b\n", "2:cpu:/a/c\n"),
    ] {
        let mut groups = in_pod(own, first);
        for line in [
            "0::/../app\n",
            "0::/../../../../app\n",
            "0::/a/x\n",
            "0::/x\n",
            "1:pids:/a/x\n",
        ] {
            assert!(!is_strange(&mut groups, line), "{own} {first} {line}");
        }
    }
}

#[test]
fn the_group_of_another_container_is_not_forgotten_while_it_is_asked_for() {
    let mut groups = in_pod("0::/\n", "0::/../box\n");
    let mut lines = Lines::new();
    for number in 0..3 * MOST_OTHERS {
        let file = file(&format!("0::/../{number}\n"));
        assert!(groups.read(&file, &mut lines).expect("read"));
        groups.learn_other();
        assert!(!is_strange(&mut groups, "0::/../0\n"), "after {number}");
    }
    assert!(is_strange(&mut groups, "0::/../1\n"));
}
