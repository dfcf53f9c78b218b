//! `lockkeeper run` ends on request, and leaves nothing behind.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use lockkeeper_product::binaries;
use lockkeeper_product::worker::{anchor_of, keeper_of, program_of};
use lockkeeper_testbed::faults;
use lockkeeper_testbed::process::wait_for;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{
    BOUND, Run, SHORT, client, contenders, ensemble, has_ended, wait_for_contenders, worker,
};

/// Prints the path of its socket, and runs until a signal.
pub const TELL_SOCKET: [&str; 3] = ["sh", "-c", "echo $LOCKKEEPER_SOCKET; exec sleep 600"];

/// Processes of the run with this socket: the command's, and the keeper.
fn processes(socket: &Path) -> Vec<String> {
    let values =
        ["LOCKKEEPER_SOCKET", "LOCKKEEPER_KEEPER_SOCKET"].map(|name| format!("{name}={}", socket.display()));
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| {
            let environment = std::fs::read(path.join("environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|variable| values.iter().any(|value| value.as_bytes() == variable))
        })
        .map(|path| {
            std::fs::read_to_string(path.join("cmdline"))
                .unwrap_or_default()
                .replace('\0', " ")
        })
        .collect()
}

/// Processes with this word in their command lines.
fn bearers(word: &[u8]) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter(|entry| {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            line.windows(word.len()).any(|some| some == word)
        })
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .collect()
}

pub fn assert_nothing_is_left(socket: &Path) {
    wait_for(BOUND, || processes(socket).is_empty().then_some(()))
        .unwrap_or_else(|| panic!("still running: {:?}", processes(socket)));
    let directory = socket.parent().unwrap();
    wait_for(BOUND, || (!directory.exists()).then_some(()))
        .unwrap_or_else(|| panic!("{} is left", directory.display()));
}

#[test]
fn a_sigterm_is_for_the_command_and_the_lock_is_free_when_it_has_ended() {
    let ensemble = ensemble();
    let lock = "/ending/term-running";
    let command = [
        "sh",
        "-c",
        "trap 'echo stopped; exit 3' TERM; echo $LOCKKEEPER_SOCKET; while :; do sleep 0.1; done",
    ];
    let mut run = Run::start(&ensemble, "term-running", lock, &[], &command);
    let socket = PathBuf::from(run.first_line());
    run.signal(Signal::TERM);
    assert_eq!(run.code(), 3, "{}", run.stderr());
    assert_eq!(run.line(1), "stopped");
    assert_eq!(contenders(&ensemble, lock), Some(vec![]));
    assert_nothing_is_left(&socket);
}

/// As `pkill -9 -f` with a word of the command line: it kills the guard, the main process, and every other
/// process with that word.
#[test]
fn who_kills_all_that_bears_the_name_of_the_job_kills_the_whole_application() {
    let ensemble = ensemble();
    let lock = "/ending/nightly-report";
    // A child with another command line, in a session of its own.
    let command = [
        "sh",
        "-c",
        "setsid sleep 600 & echo $LOCKKEEPER_SOCKET; : nightly-report; sleep 601; :",
    ];
    for held in ["cgroup", "sweep"] {
        // If the keeper has the word too, the lock expires.
        let mut run = Run::start(&ensemble, held, lock, &["--containment", held], &command);
        let socket = PathBuf::from(run.first_line());
        wait_for(BOUND, || (processes(&socket).len() == 4).then_some(())).expect("keeper and application");
        let bearers = bearers(b"nightly-report");
        assert!(bearers.len() >= 2, "{bearers:?}");
        for bearer in bearers {
            let _ = kill_process(bearer, Signal::KILL);
        }
        run.wait();
        assert_nothing_is_left(&socket);
    }
}

#[test]
fn a_sigterm_while_waiting_ends_the_run_and_leaves_the_queue() {
    let ensemble = ensemble();
    let lock = "/ending/term-waiting";
    let holder = worker(&ensemble, "term-holder", lock, &[], &[]);
    holder.wait_until_it_runs(0, BOUND).unwrap();
    let mut waiting = Run::start(&ensemble, "term-waiting", lock, &[], &["echo", "ran"]);
    wait_for_contenders(&ensemble, lock, 2);
    waiting.signal(Signal::TERM);
    assert_eq!(
        (waiting.code(), waiting.stdout().as_str()),
        (143, ""),
        "{}",
        waiting.stderr()
    );
    assert_eq!(contenders(&ensemble, lock).unwrap().len(), 1);
}

#[test]
fn a_sigterm_while_no_server_answers_ends_the_run() {
    let ensemble = ensemble();
    let options = ["--connect", "127.0.0.1:1"];
    let mut run = Run::start(
        &ensemble,
        "term-connecting",
        "/ending/connecting",
        &options,
        &["echo", "ran"],
    );
    let connecting = || run.stderr().contains("Connecting").then_some(());
    wait_for(BOUND, connecting).unwrap_or_else(|| panic!("{}", run.stderr()));
    run.signal(Signal::TERM);
    assert_eq!((run.code(), run.stdout().as_str()), (143, ""), "{}", run.stderr());
}

#[test]
fn a_ctrl_c_in_the_terminal_ends_the_command_and_frees_the_lock() {
    let ensemble = ensemble();
    let lock = "/ending/ctrl-c";
    let lockkeeper = binaries::lockkeeper().unwrap();
    let inside = format!(
        "{} run --connect {} --lock {lock} --session-timeout 15s --stop-grace 400ms --tick-time 1s -- \
         sh -c 'echo $LOCKKEEPER_SOCKET; exec sleep 600'",
        lockkeeper.display(),
        ensemble.connect_string()
    );
    // script(1) of util-linux gives it a terminal, and types what we write. A shell that runs the tests in
    // the background ignores SIGINT, and so would all its descendants.
    let mut command = Command::new("env");
    command
        .args([
            "--default-signal=INT,QUIT",
            "script",
            "--quiet",
            "--return",
            "--flush",
            "--command",
            &inside,
            "/dev/null",
        ])
        .stdin(Stdio::piped());
    let mut run = Run::spawn(&ensemble, "ctrl-c", command);
    let socket = || {
        let text = run.stdout();
        let line = text.lines().find(|line| line.starts_with('/'))?;
        Some(PathBuf::from(line.trim()))
    };
    let socket = wait_for(BOUND, socket).unwrap_or_else(|| panic!("{}", run.stdout()));
    let mut keyboard = run.process.child_mut().stdin.take().unwrap();
    keyboard.write_all(b"\x03").unwrap();
    assert_eq!(run.code(), 130, "{}", run.stdout());
    assert_eq!(contenders(&ensemble, lock), Some(vec![]));
    assert_nothing_is_left(&socket);
}

#[test]
fn nothing_is_left_of_a_run_whose_guard_was_killed_or_whose_keeper_stands_still() {
    let ensemble = ensemble();
    let mut run = Run::start(
        &ensemble,
        "killed-guard",
        "/ending/killed-guard",
        &[],
        &TELL_SOCKET,
    );
    let socket = PathBuf::from(run.first_line());
    run.process.kill();
    assert_nothing_is_left(&socket);

    let run = Run::start(
        &ensemble,
        "still-keeper",
        "/ending/still-keeper",
        // The application runs on until the deadline.
        &SHORT,
        &TELL_SOCKET,
    );
    let socket = PathBuf::from(run.first_line());
    let keeper = keeper_of(run.process.pid()).expect("it has a keeper");
    faults::stop(keeper).unwrap();
    let mut run = run;
    // The keeper alone is left.
    let is_stopped = || (processes(&socket).len() == 1).then_some(());
    wait_for(BOUND, is_stopped).expect("the guard stops it at the deadline");
    faults::resume(keeper).unwrap();
    assert_eq!(run.code(), 75, "{}", run.stderr());
    assert_nothing_is_left(&socket);
}

/// Only the keeper is left to do it, and only its control group shows where that process comes from.
#[test]
fn a_keeper_whose_guard_and_anchor_were_killed_kills_the_control_group() {
    let ensemble = ensemble();
    let lock = "/ending/killed-both";
    let command = [
        "sh",
        "-c",
        "env -i setsid sh -c 'echo $$; exec sleep 600' & echo $LOCKKEEPER_SOCKET; exec sleep 601",
    ];
    let options = ["--containment", "cgroup"];
    let mut run = Run::start(&ensemble, "killed-both", lock, &options, &command);
    let lines = [run.line(0), run.line(1)];
    let bare = lines.iter().find_map(|line| Pid::from_raw(line.parse().ok()?));
    let bare = bare.expect("its number");
    let socket = PathBuf::from(lines.iter().find(|line| line.starts_with('/')).expect("a path"));
    kill_with_its_anchor(run.process.pid());
    run.wait();
    let is_gone = || (!Path::new(&format!("/proc/{bare}")).exists()).then_some(());
    wait_for(BOUND, is_gone).expect("it is killed");
    assert_nothing_is_left(&socket);
    assert!(!run.stderr().contains("releasing the lock"), "{}", run.stderr());
}

fn kill_with_its_anchor(guard: Pid) {
    let anchor = anchor_of(guard).expect("it has an anchor");
    // A stopped guard does not react to the kill of its anchor.
    faults::stop(guard).unwrap();
    faults::kill(anchor).unwrap();
    faults::kill(guard).unwrap();
}

#[test]
fn what_the_anchor_of_an_application_before_has_shown_proves_nothing_of_the_next_application() {
    let ensemble = ensemble();
    let lock = "/ending/killed-both-later";
    let options = ["--containment", "sweep"];
    let mut run = Run::start(&ensemble, "killed-both-later", lock, &options, &TELL_SOCKET);
    let socket = run.first_line();
    // The first application ends, and the lock comes back to the only contender.
    assert_eq!(client(&["release", "--socket", &socket]).0, 0);
    assert_eq!(run.line(1), socket);
    kill_with_its_anchor(run.process.pid());
    run.wait();
    assert_nothing_is_left(Path::new(&socket));
    assert!(!run.stderr().contains("releasing the lock"), "{}", run.stderr());
}

#[test]
fn the_lock_of_a_killed_guard_is_free_when_its_anchor_has_shown_that_nothing_is_left() {
    for containment in ["sweep", "cgroup"] {
        assert_free_after_a_kill_of_the_guard("alone", containment, |guard| faults::kill(guard).unwrap());
    }
}

/// As when one kill ends a whole control group, with the guard in it: the anchor sees its children end before it sees
/// that of the guard.
#[test]
fn the_lock_of_a_killed_guard_is_free_when_its_application_had_ended_before() {
    for containment in ["sweep", "cgroup"] {
        assert_free_after_a_kill_of_the_guard("before", containment, |guard| {
            let anchor = anchor_of(guard).expect("it has an anchor");
            let application = program_of(guard).expect("it runs");
            faults::stop(guard).unwrap();
            faults::kill(application).unwrap();
            wait_for(BOUND, || has_ended(anchor).then_some(())).expect("nothing is left below the anchor");
            faults::kill(guard).unwrap();
        });
    }
}

#[test]
fn the_lock_of_a_killed_guard_is_free_when_the_kernel_has_ended_its_namespace() {
    assert_free_after_a_kill_of_the_guard("alone", "pidns", |guard| faults::kill(guard).unwrap());
}

#[test]
fn the_lock_is_free_when_the_namespace_of_a_guard_has_ended_that_was_killed_with_its_anchor() {
    assert_free_after_a_kill_of_the_guard("both", "pidns", kill_with_its_anchor);
}

fn assert_free_after_a_kill_of_the_guard(case: &str, containment: &str, kill: impl FnOnce(Pid)) {
    let ensemble = ensemble();
    let name = format!("{case}-{containment}");
    let lock = format!("/ending/{name}");
    let timeout = Duration::from_secs(20);
    let options = [
        "--session-timeout",
        "20s",
        "--log",
        "debug",
        "--containment",
        containment,
    ];
    let mut run = Run::start(&ensemble, &name, &lock, &options, &TELL_SOCKET);
    let socket = PathBuf::from(run.first_line());
    if containment == "pidns" {
        let is_known = || run.stderr().contains("is_found=true").then_some(());
        wait_for(BOUND, is_known).expect("the keeper finds the namespace");
    }
    let killed = BootInstant::now();
    kill(run.process.pid());
    wait_for_contenders(&ensemble, &lock, 0);
    let free = BootInstant::now() - killed;
    println!("{containment}: free {free:?} after the kill");
    assert!(free < timeout / 2, "it expired: {free:?}");
    run.wait();
    assert_nothing_is_left(&socket);
    assert!(run.stderr().contains("releasing the lock"), "{}", run.stderr());
}
