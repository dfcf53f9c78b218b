//! Stopped instead of ended: `onLoss: Pause` and `onSuspect: Pause`.

use std::path::Path;

use lockkeeper_lock::BootInstant;
use lockkeeper_sidecar::link::protocol::{FromGuard, ToGuard};
use rustix::process::{Pid, Signal};

use crate::harness::{A, B, Guard, MARGIN, is_alive, last_stamp, state, until, until_paused};
use crate::tests;

tests![
    a_paused_tree_stands_still_until_a_new_lock_is_held,
    a_paused_tree_that_somebody_resumes_is_killed,
    a_suspected_tree_stands_still_until_it_is_confirmed,
    a_suspected_tree_is_gone_by_the_deadline,
    a_paused_tree_is_killed_when_nobody_can_ever_resume_it,
];

const TWO: &str = "record record-a & exec $recorder role:record record-main";

/// A guard whose application, these processes, is paused since this deadline.
fn paused() -> (Guard, Vec<Pid>, BootInstant) {
    until_paused(|| {
        let mut guard = Guard::run(&["subreaper"], TWO);
        guard.grant(A, true, true, 60_000, 60_000);
        guard.expect_started(A);
        let pids = guard.recorders("record", 2);
        let kill_at = guard.shorten(A, true, 300, 400);
        guard.is_paused().then_some((guard, pids, kill_at))
    })
}

fn goes_on(file: &Path) {
    let from = BootInstant::now();
    until("it goes on", || last_stamp(file) > from);
}

fn a_paused_tree_stands_still_until_a_new_lock_is_held() {
    until_paused(|| {
        let (guard, pids, kill_at) = paused();
        stands_still_until_b_is_held(guard, &pids, kill_at).then_some(())
    });
}

/// Whether it was paused a second time.
fn stands_still_until_b_is_held(mut guard: Guard, pids: &[Pid], kill_at: BootInstant) -> bool {
    println!(
        "  Paused was read {:?} after the deadline",
        BootInstant::now() - kill_at
    );
    assert!(pids.iter().all(|pid| state(*pid) == Some('T')));

    // The old lock is over, whatever comes late of it.
    guard.grant(A, true, true, 60_000, 60_000);
    guard.send(ToGuard::Confirm { token: A });
    guard.signal(Signal::CONT);
    std::thread::sleep(MARGIN);
    assert!(pids.iter().all(|pid| state(*pid) == Some('T')));
    for name in ["record-a", "record-main"] {
        assert!(last_stamp(&guard.file(name)) < kill_at + MARGIN);
    }

    guard.grant(B, true, true, 60_000, 60_000);
    guard.expect_started(B);
    goes_on(&guard.file("record-a"));
    goes_on(&guard.file("record-main"));
    let again = guard.shorten(B, true, 300, 400);
    let is_paused = guard.is_paused();
    assert!(last_stamp(&guard.file("record-main")) < again + MARGIN);
    if is_paused {
        guard.send(ToGuard::Revoke { token: B });
        guard.expect_gone(B);
    }
    assert!(!pids.iter().copied().any(is_alive));
    is_paused
}

fn a_paused_tree_that_somebody_resumes_is_killed() {
    let (mut guard, pids, _) = paused();
    rustix::process::kill_process(pids[0], Signal::CONT).expect("resumed");
    guard.expect("its end", |frame| match frame {
        FromGuard::Gone { token: A, .. } | FromGuard::Exited { token: A, .. } => Some(()),
        _ => None,
    });
    assert!(!pids.into_iter().any(is_alive));
}

fn a_suspected_tree_stands_still_until_it_is_confirmed() {
    let mut guard = Guard::run(&["subreaper"], TWO);
    guard.begin(A, 60_000, 60_000);
    let pids = guard.recorders("record", 2);
    guard.send(ToGuard::Suspect { token: A });
    until("it stands still", || {
        pids.iter().all(|pid| state(*pid) == Some('T'))
    });
    guard.send(ToGuard::Confirm { token: A });
    goes_on(&guard.file("record-a"));
    goes_on(&guard.file("record-main"));
}

fn a_suspected_tree_is_gone_by_the_deadline() {
    let mut guard = Guard::run(&["subreaper"], &format!("trap '' TERM; {TWO}"));
    guard.begin(A, 60_000, 60_000);
    let pids = guard.recorders("record", 2);
    let kill_at = guard.shorten(A, false, 900, 1000);
    guard.send(ToGuard::Suspect { token: A });
    guard.expect_gone(A);
    assert!(BootInstant::now() < kill_at + crate::harness::LONG);
    assert!(!pids.into_iter().any(is_alive));
    crate::harness::assert_in_time(&guard.file("record-a"), kill_at);
}

fn a_paused_tree_is_killed_when_nobody_can_ever_resume_it() {
    let (mut guard, pids, _) = paused();
    guard.hang_up();
    assert_eq!(guard.exit_code(), Some(75));
    assert!(!pids.into_iter().any(is_alive));
}
