//! The guard beside a container that has hidden its mounts: it knows it by its control group.

use lockkeeper_sidecar::link::protocol::ToGuard;
use rustix::process::Signal;

use crate::container::{Container, containers, guard, guard_in};
use crate::group::Group;
use crate::harness::{A, B, is_alive, own_program, state, until};
use crate::tests;

tests![
    a_process_that_has_hidden_its_mounts_is_found_by_its_control_group,
    a_container_that_was_hidden_from_the_first_look_on_is_spared_in_standby_and_killed_with_the_lock,
];

/// A daemon with a root of its own, in which none of the mounts outside shows, and without a parent of
/// the container.
const HIDDEN: &str = "mkdir -p jail; mount --bind / jail
    chroot jail setsid --fork $recorder role:record $PWD/record-hidden
    exec $recorder role:record record-main";

fn a_process_that_has_hidden_its_mounts_is_found_by_its_control_group() {
    let Some(group) = Group::new("lockkeeper-test-container") else {
        return;
    };
    let Some(mut guard) = guard() else { return };
    guard.begin(A, 60_000, 60_000);
    let script = format!("echo $$ >{}; {HIDDEN}", group.procs());
    let _app = Container::start(&guard, "app", &script);
    let hidden = guard.recorders("record-hidden", 1)[0];
    let main = guard.recorders("record-main", 1)[0];
    let mounts = std::fs::read_to_string(format!("/proc/{hidden}/mountinfo")).expect("proc(5)");
    assert!(!mounts.contains("/pods/"), "it hides nothing:\n{mounts}");
    // The guard looks while it is to be seen by its main process.
    guard.send(ToGuard::Suspect { token: A });
    until("all of it is stopped", || {
        [hidden, main].iter().all(|pid| state(*pid) == Some('T'))
    });
    guard.send(ToGuard::Confirm { token: A });
    // Alone it shows nothing that is known but its group.
    rustix::process::kill_process(main, Signal::KILL).expect("killed");
    until("the main process has ended", || !is_alive(main));
    guard.send(ToGuard::Revoke { token: A });
    guard.expect_gone(A);
    assert!(!is_alive(hidden), "something was called gone that is not");
}

/// A pod of four containers in control groups of their own, which share the process namespace of the first: its sandbox,
/// our own, one that goes into its group only when it has hidden its mounts, and one that shows them. The latter two wait
/// for a file.
const POD: &str = r#"echo 0 >$POD/box/cgroup.procs
    exec 4<&0
    (echo 0 >$POD/own/cgroup.procs; mount --bind $CONTAINERS/lockkeeper/77aa own-log && exec "$@") <&4 &
    mkdir jail && mount --bind / jail && exec 3>$POD/app/cgroup.procs
    (until [ -e hide ]; do sleep 0.02; done
     exec chroot jail sh -c "echo 0 >&3; exec $RECORDER role:record $PWD/record-hidden") &
    (until [ -e show ]; do sleep 0.02; done; echo 0 >$POD/seen/cgroup.procs
     mkdir -p $CONTAINERS/app && touch $CONTAINERS/app/0af3 app-log
     exec unshare --mount sh -c "$RECORDER role:record $PWD/record-seen &
         until [ -e mount ]; do sleep 0.02; done
         mount --bind $CONTAINERS/app/0af3 app-log; wait") &
    wait"#;

fn a_container_that_was_hidden_from_the_first_look_on_is_spared_in_standby_and_killed_with_the_lock() {
    let Some(pod) = Group::new("lockkeeper-test-pod") else {
        return;
    };
    let groups = ["box", "own", "app", "seen"].map(|name| Group::at(pod.0.join(name)));
    let script = format!(
        "POD={:?} CONTAINERS={:?} RECORDER={:?}\n{POD}",
        pod.0,
        containers(),
        own_program()
    );
    let prefix = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--mount-proc",
    ];
    let Some(mut guard) = guard_in(&[&prefix[..], &["--kill-child", "sh", "-c", &script, "sh"]].concat())
    else {
        return;
    };
    let dir = guard.dir.path().to_owned();
    let make = |file| std::fs::write(dir.join(file), "").expect("a file");
    // Nothing is left of what was there before this guard.
    guard.begin(A, 60_000, 60_000);
    guard.send(ToGuard::Revoke { token: A });
    guard.expect_gone(A);
    make("hide");
    guard.recorders("record-hidden", 1);
    make("show");
    guard.recorders("record-seen", 1);
    // Only now it shows the mount by which it is known, and killed.
    make("mount");
    until("what it knows is killed", || groups[3].is_empty());
    assert!(!groups[2].is_empty(), "it may be another container's");
    guard.begin(B, 60_000, 60_000);
    guard.send(ToGuard::Revoke { token: B });
    guard.expect_gone(B);
    assert!(groups[2].is_empty(), "something was called gone that is not");
    drop(guard);
    drop(groups);
}
