//! Processes as they are read, marked and signalled.

use super::*;

fn parse(stat: &str) -> Option<Process> {
    Process::parse(rustix::process::getpid(), stat.as_bytes())
}

#[test]
fn a_name_with_blanks_and_brackets_does_not_hide_a_process() {
    let stat = "7 (a) R 1 (b) T 42 7 7 0 -1 64 0 0 0 0 0 0 0 0 20 0 3 0 9999 0 0";
    let process = parse(stat).expect("readable");
    assert_eq!((process.parent, process.threads, process.started), (42, 3, 9999));
    assert!(process.main_thread_is_stopped());
}

#[test]
fn a_number_that_no_kernel_writes_is_not_taken_for_another_one() {
    let with = |parent: u64, threads: u64| {
        parse(&format!(
            "7 (x) S {parent} 7 7 0 -1 64 0 0 0 0 0 0 0 0 20 0 {threads} 0 5 0"
        ))
    };
    assert!(with(42, 1).is_some());
    // Cut to 32 bits this would be process 42, and that no thread.
    assert_eq!(with((1 << 32) + 42, 1), None);
    assert_eq!(with(42, 1 << 32), None);
}

#[test]
fn a_main_thread_counts_as_stopped_only_when_it_cannot_run() {
    let in_state = |state, threads| {
        parse(&format!(
            "7 (x) {state} 1 7 7 0 -1 64 0 0 0 0 0 0 0 0 20 0 {threads} 0 5 0"
        ))
        .expect("readable")
    };
    assert!(in_state('T', 9).main_thread_is_stopped());
    assert!(in_state('Z', 1).is_zombie() && !in_state('Z', 2).is_zombie());
    for state in ['R', 'S', 'D', 't'] {
        assert!(!in_state(state, 1).main_thread_is_stopped(), "{state}");
    }
}

#[test]
fn a_process_is_stopped_when_all_of_its_threads_are() {
    let mut processes = Processes::open().expect("/proc is mounted");
    let own = rustix::process::getpid();
    let mut process = stat(&processes.proc, own).expect("readable");
    // As it is seen while SIGSTOP has reached the main thread alone: this thread runs.
    process.state = b'T';
    process.threads = process.threads.max(2);
    assert!(!processes.is_stopped(&process));
}

#[test]
fn the_table_shows_this_process_under_its_parent() {
    let mut processes = Processes::open().expect("/proc is mounted");
    processes.scan();
    assert!(processes.is_complete());
    let parent = rustix::process::getppid().expect("a parent");
    processes.mark_descendants(parent, None, None, 0);
    assert!(
        processes
            .guarded()
            .any(|process| process.pid == rustix::process::getpid())
    );
    processes.scan();
    processes.mark_descendants(parent, None, Some(rustix::process::getpid()), 0);
    assert!(
        !processes
            .guarded()
            .any(|process| process.pid == rustix::process::getpid())
    );
}

#[test]
fn a_signal_is_for_the_process_that_was_seen_and_for_no_later_one_of_its_number() {
    let processes = Processes::open().expect("/proc is mounted");
    let own = rustix::process::getpid();
    let started = processes.started(own).expect("readable");
    // 0 is no signal: it asks whether one would arrive.
    assert_eq!(processes.signal(own, started, 0), Ok(()));
    assert_eq!(processes.signal(own, started - 1, 0), Err(Errno::SRCH));
}
