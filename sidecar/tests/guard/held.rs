//! Held together by a control group or a PID namespace: stopped in one step, also against `fork`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use lockkeeper_sidecar::guard::{ContainmentChoice, Hold};
use lockkeeper_sidecar::link::protocol::ToGuard;
use rustix::process::{Pid, Signal};

use crate::harness::{
    A, AS_NOBODY, B, Guard, assert_in_time, children, group, has, is_alive, is_root, last_stamp, own_program,
    recorder, shell, skip, until, until_paused,
};
use crate::tests;

tests![
    a_storm_of_forks_is_gone_at_the_deadline,
    a_storm_of_forks_stands_still_while_it_is_paused,
    a_pause_is_not_reported_while_a_thread_still_writes,
    a_frozen_application_ends_with_its_guard,
    a_group_that_somebody_thaws_is_killed,
    who_has_left_the_group_is_found_by_descent,
    the_group_is_removed_with_its_guard,
    another_application_runs_where_one_was_killed,
    an_application_is_in_its_group_from_its_first_instruction_whatever_the_kernel_can,
    an_application_in_a_namespace_sees_its_own_numbers_in_proc_and_gets_its_signals,
    what_cannot_be_had_is_refused_in_a_sentence,
];

const HELD: [&str; 2] = ["cgroup", "pidns"];

/// Whether both can be had; says so if not.
fn can_hold() -> bool {
    if !is_root() {
        return false;
    }
    for choice in [ContainmentChoice::Cgroup, ContainmentChoice::Pidns] {
        if let Err(error) = Hold::new(choice) {
            skip(&error.to_string());
            return false;
        }
    }
    true
}

/// Chains of processes, each of which writes down the time since boot, forks the next one, and ends. The shell does all
/// of that by itself, so that no `exec` makes it slower. (Not by a function, which may not call itself more than a
/// thousand times.)
fn storm(chains: u32) -> String {
    format!(
        "trap '' TERM
        link='read up idle </proc/uptime; echo $up >>chain-$chain; eval \"$link\" &'
        for chain in $(seq {chains}); do eval \"$link\"; done
        exec $recorder role:record record-main"
    )
}

/// What is to be killed.
const MANY: u32 = 8;

/// What is to be paused: the kernel calls a group frozen when each of its processes has had a turn to stop, and on a
/// busy machine the turns of many take longer than a guard waits for a pause.
const FEW: u32 = 2;

fn chains(guard: &Guard, count: u32) -> Vec<PathBuf> {
    (1..=count)
        .map(|chain| guard.file(&format!("chain-{chain}")))
        .collect()
}

fn last_links(guard: &Guard, count: u32) -> Vec<Option<BootInstant>> {
    chains(guard, count)
        .iter()
        .map(|chain| last_link(chain))
        .collect()
}

/// When a chain last wrote: in steps of 10 ms.
fn last_link(chain: &Path) -> Option<BootInstant> {
    let links = std::fs::read_to_string(chain).ok()?;
    let seconds: f64 = links.lines().last()?.parse().ok()?;
    Some(BootInstant::from_nanos((seconds * 1e9) as u64))
}

fn storm_is_raging(guard: &Guard, count: u32) {
    let begun = BootInstant::now();
    let goes_on = |chain: &PathBuf| last_link(chain).is_some_and(|last| last > begun);
    until("the storm", || chains(guard, count).iter().all(goes_on));
}

fn a_storm_of_forks_is_gone_at_the_deadline() {
    if !can_hold() {
        return;
    }
    for held in HELD {
        for _ in 0..3 {
            let mut guard = Guard::run(&[held], &storm(MANY));
            guard.begin(A, 60_000, 60_000);
            storm_is_raging(&guard, MANY);
            until("the recorder beside it", || {
                recorder(&guard.file("record-main")).is_some()
            });
            let kill_at = guard.shorten(A, false, 300, 400);
            guard.expect_gone(A);
            let gone = BootInstant::now();
            let links = last_links(&guard, MANY);
            let last = links
                .into_iter()
                .flatten()
                .chain([last_stamp(&guard.file("record-main"))])
                .max()
                .expect("a storm");
            // How long that takes on a machine with ten times as much to do is measured: the trial `storm`.
            println!(
                "  {held}: gone {:?}, last link {:?} after the deadline",
                gone - kill_at,
                last.saturating_since(kill_at)
            );
            assert!(last <= gone, "something was called gone that is not");
            // A process that was missed would go on and write.
            let before = last_links(&guard, MANY);
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(last_links(&guard, MANY), before, "the storm goes on");
        }
    }
}

fn a_storm_of_forks_stands_still_while_it_is_paused() {
    if !can_hold() {
        return;
    }
    for held in HELD {
        let (mut guard, deadline) = until_paused(|| {
            let mut guard = Guard::run(&[held], &storm(FEW));
            guard.grant(A, true, true, 60_000, 60_000);
            guard.expect_started(A);
            storm_is_raging(&guard, FEW);
            let deadline = guard.shorten(A, true, 300, 300);
            guard.is_paused().then_some((guard, deadline))
        });
        println!(
            "  {held}: Paused was read {:?} after the deadline",
            BootInstant::now() - deadline
        );
        let before = last_links(&guard, FEW);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(last_links(&guard, FEW), before, "the storm goes on");
        guard.grant(B, true, true, 60_000, 60_000);
        guard.expect_started(B);
        storm_is_raging(&guard, FEW);
        guard.send(ToGuard::Revoke { token: B });
        guard.expect_gone(B);
    }
}

fn a_pause_is_not_reported_while_a_thread_still_writes() {
    let kinds: &[&str] = if can_hold() {
        &["subreaper", "cgroup", "pidns"]
    } else {
        &["subreaper"]
    };
    for held in kinds {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a file system in memory");
        let file = directory.path().join("written");
        // No chance to be missed by luck: each round stops it somewhere else in a write.
        for round in 0..3 {
            let script = format!("exec $recorder role:write {}", file.display());
            let mut guard = Guard::run(&[held], &script);
            guard.grant(A, true, true, 60_000, 60_000);
            guard.expect_started(A);
            let size = || std::fs::metadata(&file).map_or(0, |file| file.len());
            until("it writes", || size() > 0);
            let deadline = guard.shorten(A, true, 300 + 7 * round, 300 + 7 * round);
            // Half of the margin may not be enough: then it is killed.
            let said = if guard.is_paused() { "Paused" } else { "Gone" };
            let before = size();
            let after = BootInstant::now() - deadline;
            std::thread::sleep(Duration::from_millis(50));
            println!("  {held}: {said} was read {after:?} after the deadline");
            assert_eq!(size(), before, "{said} was said and a thread went on writing");
        }
    }
}

const TWO: &str = "trap '' TERM; record record-a & exec $recorder role:record record-main";

/// A guard whose application is paused.
fn paused(held: &str) -> Guard {
    until_paused(|| {
        let mut guard = Guard::run(&[held], TWO);
        guard.grant(A, true, true, 60_000, 60_000);
        guard.expect_started(A);
        guard.recorders("record", 2);
        guard.shorten(A, true, 300, 300);
        guard.is_paused().then_some(guard)
    })
}

/// The processes of a guard's application: all but the anchor.
fn application(guard: &Guard) -> Vec<Pid> {
    fn below(pid: Pid) -> Vec<Pid> {
        children(pid)
            .into_iter()
            .flat_map(|child| [vec![child], below(child)].concat())
            .collect()
    }
    children(guard.pid()).into_iter().flat_map(below).collect()
}

fn a_frozen_application_ends_with_its_guard() {
    if !can_hold() {
        return;
    }
    for held in HELD {
        let guard = paused(held);
        let pids = application(&guard);
        let directory = group(pids[0]);
        guard.signal(Signal::KILL);
        let killed = BootInstant::now();
        until("the tree's end", || !pids.iter().copied().any(is_alive));
        println!(
            "  {held}: all gone {:?} after the guard was killed",
            BootInstant::now() - killed
        );
        if held == "cgroup" {
            until("the group's end", || !directory.exists());
        }
    }
}

fn a_group_that_somebody_thaws_is_killed() {
    if !can_hold() {
        return;
    }
    let mut guard = paused("cgroup");
    let pids = application(&guard);
    std::fs::write(group(pids[0]).join("cgroup.freeze"), "0").expect("thawed");
    guard.expect_gone(A);
    assert!(!pids.into_iter().any(is_alive));
}

fn who_has_left_the_group_is_found_by_descent() {
    if !can_hold() {
        return;
    }
    // One of the application's that is in the guard's group now, and the deadline.
    let leave = |pause| {
        let mut guard = Guard::run(&["cgroup"], TWO);
        guard.grant(A, true, pause, 60_000, 60_000);
        guard.expect_started(A);
        let leaver = guard.recorders("record-a", 1)[0];
        guard.recorders("record-main", 1);
        let inside = group(leaver);
        let outside = inside.parent().expect("the guard's group");
        std::fs::write(outside.join("cgroup.procs"), leaver.to_string()).expect("moved");
        let deadline = guard.shorten(A, pause, 300, 300);
        (guard, leaver, deadline)
    };
    let is_gone = |mut guard: Guard, leaver, deadline| {
        guard.expect_gone(A);
        assert!(!is_alive(leaver));
        assert_in_time(&guard.file("record-a"), deadline);
    };
    let (guard, leaver, deadline) = leave(false);
    is_gone(guard, leaver, deadline);

    let (mut guard, leaver, deadline) = until_paused(|| {
        let (mut guard, leaver, deadline) = leave(true);
        guard.is_paused().then_some((guard, leaver, deadline))
    });
    let last = last_stamp(&guard.file("record-a"));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(last_stamp(&guard.file("record-a")), last, "it goes on");
    guard.send(ToGuard::Revoke { token: A });
    is_gone(guard, leaver, deadline);
}

fn the_group_is_removed_with_its_guard() {
    if !can_hold() {
        return;
    }
    let mut guard = Guard::run(&["cgroup"], TWO);
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 2);
    let pids = application(&guard);
    let directory = group(pids[0]);
    assert_ne!(directory, group(guard.pid()), "the guard is outside");
    guard.send(ToGuard::Finish { code: 7 });
    assert_eq!(guard.exit_code(), Some(7));
    assert!(!pids.into_iter().any(is_alive));
    assert!(!directory.exists());
}

fn another_application_runs_where_one_was_killed() {
    if !can_hold() {
        return;
    }
    for hold in HELD {
        let mut guard = Guard::run(&[hold], TWO);
        guard.begin(A, 60_000, 60_000);
        guard.recorders("record", 2);
        guard.shorten(A, false, 300, 300);
        guard.expect_gone(A);
        let last = last_stamp(&guard.file("record-main"));
        guard.begin(B, 60_000, 60_000);
        until("the next one records", || {
            last_stamp(&guard.file("record-main")) > last
        });
        guard.send(ToGuard::Revoke { token: B });
        guard.expect_gone(B);
    }
}

fn an_application_is_in_its_group_from_its_first_instruction_whatever_the_kernel_can() {
    if !can_hold() {
        return;
    }
    let program = own_program().into_string().expect("a plain path");
    for prefix in [&[][..], &[&program, "role:old-kernel"]] {
        let script =
            "while read -r line; do case $line in 0::*) echo $line >group;; esac; done </proc/self/cgroup
            echo >ready; exec sleep 60";
        let mut guard = Guard::start(prefix, &["cgroup"], &shell(script));
        // The first one is forked into the group where that can be, and the second one moves there.
        for token in [A, B] {
            guard.begin(token, 60_000, 60_000);
            until("it runs", || guard.file("ready").exists());
            let found = std::fs::read_to_string(guard.file("group")).expect("its group");
            let own = found.rsplit('/').next().expect("a path");
            assert!(own.starts_with("lockkeeper-"), "{prefix:?}: {found}");
            std::fs::remove_file(guard.file("ready")).expect("made by the application");
            guard.shorten(token, false, 300, 400);
            guard.expect_gone(token);
        }
    }
}

fn an_application_in_a_namespace_sees_its_own_numbers_in_proc_and_gets_its_signals() {
    if !can_hold() {
        return;
    }
    let script = "trap 'echo term >signals; exit 3' TERM
        read own rest </proc/self/stat; echo $$ $own $PPID >numbers; echo >ready
        while :; do sleep 0.01; done";
    let mut guard = Guard::run(&["pidns"], script);
    guard.grant(A, true, false, 60_000, 60_000);
    let pid = guard.expect_started(A);
    until("it runs", || guard.file("ready").exists());
    let numbers = std::fs::read_to_string(guard.file("numbers")).expect("numbers");
    assert_eq!(numbers.trim(), "2 2 1");
    // Outside it has the number that the guard told.
    assert_eq!(application(&guard)[0].as_raw_nonzero().get().unsigned_abs(), pid);
    guard.signal(Signal::TERM);
    assert_eq!(guard.expect_exited(A), 3);
    assert!(guard.file("signals").exists());
}

fn what_cannot_be_had_is_refused_in_a_sentence() {
    if !is_root() || !has("setpriv") {
        return;
    }
    let refused = |choice: &str| {
        let output = std::process::Command::new(AS_NOBODY[0])
            .args(&AS_NOBODY[1..])
            .arg(env!("CARGO_BIN_EXE_lockkeeper"))
            .args([
                "run",
                "--connect",
                "127.0.0.1:1",
                "--lock",
                "/l",
                "--containment",
                choice,
            ])
            .args(["--", "true"])
            .output()
            .expect("executed");
        let words = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(64), "{words}");
        words
    };
    for choice in HELD {
        let words = refused(choice);
        println!("  {}", words.trim());
        assert_eq!(words.lines().count(), 1);
        assert!(words.starts_with(&format!("lockkeeper: --containment {choice} is not available: ")));
    }
}
