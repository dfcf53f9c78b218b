//! Gone by the deadline, whatever the keeper does.

use std::process::Command;

use lockkeeper_lock::BootInstant;
use lockkeeper_sidecar::link::protocol::ToGuard;
use rustix::process::Pid;

use crate::harness::{
    A, B, Guard, assert_in_time, eventually, is_alive, is_root, last_stamp, shell, until, until_paused,
};
use crate::tests;

tests![
    the_application_is_gone_by_the_deadline_when_the_keeper_is_frozen,
    the_application_is_gone_by_the_deadline_when_the_keeper_has_crashed,
    an_application_that_obeys_sigterm_has_all_of_its_grace,
    a_later_grant_keeps_the_application_running,
    a_newer_grant_that_ends_earlier_ends_the_application_earlier,
    a_revoked_application_is_gone_at_once,
    a_stopped_application_that_is_told_to_end_can_act_on_it,
    the_guard_is_small,
    what_a_kill_needs_of_guard_and_anchor_is_locked_in_memory,
    guard_and_anchor_go_before_what_they_stop_where_the_kernel_permits_it,
    a_guard_that_watches_a_paused_application_holds_up_no_other_process,
    a_policy_that_a_user_has_chosen_stays_with_the_guard_and_its_application,
    a_nice_value_that_a_user_has_chosen_stays_with_the_application,
];

const STUBBORN: &str = "trap '' TERM; exec $recorder role:record record";

fn the_application_is_gone_by_the_deadline_when_the_keeper_is_frozen() {
    let begun = [(); 5].map(|()| {
        let mut guard = Guard::run(&["subreaper"], STUBBORN);
        // By the first grant: nothing is heard of the keeper any more.
        let kill_at = guard.begin(A, 2_400, 2_500);
        let pids = guard.recorders("record", 1);
        (guard, kill_at, pids)
    });
    for (mut guard, kill_at, pids) in begun {
        guard.expect_gone(A);
        assert!(!pids.into_iter().any(is_alive));
        assert_in_time(&guard.file("record"), kill_at);
    }
}

fn the_application_is_gone_by_the_deadline_when_the_keeper_has_crashed() {
    let mut guard = Guard::run(&["subreaper"], STUBBORN);
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 1);
    let kill_at = guard.shorten(A, false, 900, 1000);
    let crashed = BootInstant::now();
    guard.hang_up();
    assert_eq!(guard.exit_code(), Some(75));
    assert_in_time(&guard.file("record"), kill_at);
    assert!(
        last_stamp(&guard.file("record")) > crashed,
        "the keeper's crash is not the loss of the lock"
    );
}

fn an_application_that_obeys_sigterm_has_all_of_its_grace() {
    let script = "trap 'date >done; exit 3' TERM; echo >ready; while :; do sleep 0.01; done";
    let mut guard = Guard::run(&["subreaper"], script);
    guard.begin(A, 60_000, 60_000);
    until("the trap is set", || guard.file("ready").exists());
    guard.shorten(A, false, 100, 20_000);
    let code = guard.expect("Gone", |frame| match frame {
        lockkeeper_sidecar::link::protocol::FromGuard::Gone { code, .. } => Some(code),
        _ => None,
    });
    assert_eq!(code, Some(3));
    assert!(guard.file("done").exists());
}

fn a_later_grant_keeps_the_application_running() {
    let mut guard = Guard::run(&["subreaper"], STUBBORN);
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 1);
    let first = guard.shorten(A, false, 1900, 2000);
    let second = guard.grant(A, false, false, 2400, 2500);
    guard.expect_gone(A);
    assert!(last_stamp(&guard.file("record")) > first);
    assert_in_time(&guard.file("record"), second);
}

fn a_newer_grant_that_ends_earlier_ends_the_application_earlier() {
    let mut guard = Guard::run(&["subreaper"], STUBBORN);
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 1);
    let earlier = guard.shorten(A, false, 300, 400);
    guard.expect_gone(A);
    assert_in_time(&guard.file("record"), earlier);
}

fn a_revoked_application_is_gone_at_once() {
    let mut guard = Guard::run(&["subreaper"], STUBBORN);
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 1);
    let revoked = BootInstant::now();
    guard.send(ToGuard::Revoke { token: A });
    guard.expect_gone(A);
    println!("  gone {:?} after it was revoked", BootInstant::now() - revoked);
    assert_in_time(&guard.file("record"), revoked);
}

fn a_stopped_application_that_is_told_to_end_can_act_on_it() {
    let script = "trap 'date >done; exit 0' TERM; echo >ready; while :; do sleep 0.01; done";
    let mut guard = Guard::run(&["subreaper"], script);
    guard.begin(B, 60_000, 60_000);
    until("the trap is set", || guard.file("ready").exists());
    guard.send(ToGuard::Suspect { token: B });
    guard.send(ToGuard::Stop {
        token: B,
        kill_at: BootInstant::now() + crate::harness::LONG,
    });
    guard.expect_gone(B);
    assert!(guard.file("done").exists());
}

fn what_a_kill_needs_of_guard_and_anchor_is_locked_in_memory() {
    if !is_root() {
        return;
    }
    let mut guard = Guard::run(&["subreaper"], STUBBORN);
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 1);
    let anchor = crate::harness::children(guard.pid())[0];
    for (name, pid) in [("guard", guard.pid()), ("anchor", anchor)] {
        // Of the mappings of code: how much is in memory (its share, where others use it too), and how much of
        // that is locked.
        let code = || {
            let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("proc(5)");
            let mut is_code = false;
            let (mut resident, mut locked) = (0, 0);
            for line in smaps.lines() {
                let mut words = line.split_whitespace();
                let kib = match (words.next(), words.next()) {
                    (Some("Pss:"), Some(kib)) if is_code => (kib, &mut resident),
                    (Some("Locked:"), Some(kib)) if is_code => (kib, &mut locked),
                    (Some(range), Some(rights)) if range.contains('-') && rights.len() == 4 => {
                        is_code = rights == "r-xp" && line.contains('/');
                        continue;
                    }
                    _ => continue,
                };
                *kib.1 += kib.0.parse::<u64>().expect("KiB");
            }
            (resident, locked)
        };
        let (resident, locked) =
            eventually("a locked page", || Some(code()).filter(|(_, locked)| *locked > 0));
        println!("  {name}: {locked} of {resident} KiB of code are locked");
        assert!(locked > 0);
    }
}

fn the_guard_is_small() {
    let mut guard = Guard::run(&["subreaper"], STUBBORN);
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 1);
    let anchor = crate::harness::children(guard.pid())[0];
    for (name, pid) in [("guard", guard.pid()), ("anchor", anchor)] {
        let status = eventually("a status", || {
            std::fs::read_to_string(format!("/proc/{pid}/status")).ok()
        });
        let wanted = ["VmRSS", "RssAnon", "RssFile"];
        let figures: Vec<_> = status
            .lines()
            .filter(|line| wanted.iter().any(|w| line.starts_with(w)))
            .collect();
        let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let pss = smaps
            .lines()
            .find(|line| line.starts_with("Pss:"))
            .unwrap_or("Pss: unknown");
        println!("  {name}: {} {pss}", figures.join(" ").replace(['\t', ' '], ""));
        let rss = figures[0]
            .split_whitespace()
            .nth(1)
            .and_then(|kib| kib.parse::<u64>().ok())
            .expect("KiB");
        // Far above the figure that is printed: unoptimized test programs are large.
        assert!(rss < 16 * 1024, "{name} has {rss} KiB resident");
    }
}

/// The policy of the scheduler, as a number (sched(7)).
fn policy(pid: Pid) -> Option<i32> {
    stat(pid, 41)
}

/// A field of proc_pid_stat(5); the third comes after the name.
fn stat(pid: Pid, field: usize) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(field - 3)?.parse().ok()
}

/// Whether `chrt` (util-linux) may give a program a real-time policy.
fn may_have_precedence() -> bool {
    let chrt = Command::new("chrt").args(["--fifo", "1", "true"]).output();
    chrt.expect("chrt").status.success()
}

fn guard_and_anchor_go_before_what_they_stop_where_the_kernel_permits_it() {
    let expected = if may_have_precedence() {
        libc::SCHED_FIFO
    } else {
        libc::SCHED_OTHER
    };
    println!("  policy {expected}");
    let mut guard = Guard::run(&["subreaper"], STUBBORN);
    guard.begin(A, 60_000, 60_000);
    let application = guard.recorders("record", 1)[0];
    let anchor = crate::harness::children(guard.pid())[0];
    for pid in [guard.pid(), anchor] {
        until("precedence", || policy(pid) == Some(expected));
    }
    assert_eq!(policy(application), Some(libc::SCHED_OTHER));
}

fn a_guard_that_watches_a_paused_application_holds_up_no_other_process() {
    until_paused(|| {
        let mut guard = Guard::run(&["subreaper"], STUBBORN);
        guard.grant(A, true, true, 60_000, 60_000);
        guard.expect_started(A);
        guard.recorders("record", 1);
        guard.shorten(A, true, 300, 400);
        guard.is_paused().then(|| {
            until("no precedence", || policy(guard.pid()) == Some(libc::SCHED_OTHER));
        })
    });
}

fn a_policy_that_a_user_has_chosen_stays_with_the_guard_and_its_application() {
    let chosen = ["chrt", "--batch", "0"];
    let mut guard = Guard::start(&chosen, &["subreaper"], &shell(STUBBORN));
    guard.begin(A, 60_000, 60_000);
    let application = guard.recorders("record", 1)[0];
    assert_eq!(
        [guard.pid(), application].map(policy),
        [Some(libc::SCHED_BATCH); 2]
    );
}

fn a_nice_value_that_a_user_has_chosen_stays_with_the_application() {
    let mut guard = Guard::start(&["nice", "-n", "5"], &["subreaper"], &shell(STUBBORN));
    guard.begin(A, 60_000, 60_000);
    let application = guard.recorders("record", 1)[0];
    assert_eq!(stat(application, 19), Some(5));
}
