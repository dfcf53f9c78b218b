//! How `lockkeeper run` ends when it is asked to, and what is left then: nothing.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lockkeeper_e2e::binaries;
use lockkeeper_e2e::process::wait_for;
use rustix::process::Signal;

use crate::harness::{BOUND, Run, contenders, ensemble, wait_for_contenders, worker};

/// Prints where its socket is, and goes on until a signal.
const TELL_SOCKET: [&str; 3] = ["sh", "-c", "echo $LOCKKEEPER_SOCKET; exec sleep 600"];

/// Processes of the run that serves at this socket: the command's, and the keeper.
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

fn assert_nothing_is_left(socket: &Path) {
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
        "{} run --connect {} --lock {lock} --session-timeout 4s --stop-grace 400ms --tick-time 1s -- \
         sh -c 'echo $LOCKKEEPER_SOCKET; exec sleep 600'",
        lockkeeper.display(),
        ensemble.connect_string()
    );
    // script(1) of util-linux gives it a terminal, and types what we write. Whoever runs the tests in
    // the background ignores SIGINT, and so would everything below.
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
fn nothing_is_left_of_a_run_whose_guard_or_keeper_was_killed() {
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
        "killed-keeper",
        "/ending/killed-keeper",
        &[],
        &TELL_SOCKET,
    );
    let socket = PathBuf::from(run.first_line());
    let keeper = lockkeeper_e2e::worker::keeper_of(run.process.pid()).expect("it has a keeper");
    lockkeeper_e2e::faults::kill(keeper).unwrap();
    let mut run = run;
    assert_eq!(run.code(), 75, "{}", run.stderr());
    assert_nothing_is_left(&socket);
}
