//! `lockkeeper run` within the application of another, and outside of it with the same environment.

use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::Command;

use lockkeeper_product::binaries;
use lockkeeper_product::worker::{anchor_of, keeper_of, program_of};
use lockkeeper_testbed::faults;
use lockkeeper_testbed::process::wait_for;
use rustix::process::Pid;

use crate::harness::{BOUND, Run, ensemble};

fn environment(pid: &str) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let text = |bytes: &[u8]| std::ffi::OsString::from_vec(bytes.to_vec());
    bytes
        .split(|byte| *byte == 0)
        .filter_map(|variable| {
            let at = variable.iter().position(|byte| *byte == b'=')?;
            Some((text(&variable[..at]), text(&variable[at + 1..])))
        })
        .collect()
}

#[test]
fn only_what_descends_from_the_application_is_inside_whatever_the_environment_says() {
    let ensemble = ensemble();
    let lock = "/nested/inside";
    let lockkeeper = binaries::lockkeeper().unwrap();
    let inner = format!("{} run --wait-timeout 0s -- echo inside", lockkeeper.display());
    // This includes a process that has left its parent and its session.
    let script = format!("{inner}; (setsid sh -c '{inner}' &); echo $$; exec sleep 1000");
    let outer = Run::start(&ensemble, "nested-outer", lock, &[], &["sh", "-c", &script]);
    let lines = || {
        let text = outer.stdout();
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        (lines.len() == 3).then_some(lines)
    };
    let lines = wait_for(BOUND, lines).unwrap_or_else(|| panic!("{}{}", outer.stdout(), outer.stderr()));
    assert_eq!(
        lines.iter().filter(|line| *line == "inside").count(),
        2,
        "{lines:?}"
    );
    let application = lines.iter().find(|line| *line != "inside").unwrap();

    // As with `at`: the process keeps the variables, but is not a part of the tree.
    let mut job = Command::new(&lockkeeper);
    job.args([
        "run",
        "--wait-timeout",
        "0s",
        "--session-timeout",
        "4s",
        "--stop-grace",
        "400ms",
    ])
    .args(["--tick-time", "1s", "--", "echo", "ran"])
    .env_clear()
    .envs(environment(application));
    let mut job = Run::spawn(&ensemble, "nested-job", job);
    assert_eq!(job.code(), 80, "{}{}", job.stdout(), job.stderr());
    assert_eq!(job.stdout(), "");
    assert!(
        job.stderr()
            .contains("is not free, and --wait-timeout says not to wait"),
        "{}",
        job.stderr()
    );
}

/// Only the outer keeper is left to do it, and it knows nothing of the inner run.
#[test]
fn what_a_nested_run_has_started_does_not_outlive_both_guards_and_anchors() {
    let ensemble = ensemble();
    let lockkeeper = binaries::lockkeeper().unwrap();
    let lockkeeper = lockkeeper.to_str().unwrap();
    let inner = [lockkeeper, "run", "--lock", "/nested/inner", "--tick-time", "1s"];
    let times = ["--session-timeout", "4s", "--stop-grace", "400ms"];
    let script = "setsid sh -c 'echo $$; exec sleep 600' & exec sleep 601";
    let command = [
        &inner[..],
        &times,
        &["--containment", "sweep", "--", "sh", "-c", script],
    ]
    .concat();
    let options = ["--containment", "sweep"];
    let mut outer = Run::start(&ensemble, "nested-killed", "/nested/outer", &options, &command);
    let left = Pid::from_raw(outer.first_line().parse().unwrap()).expect("its number");

    let outer_guard = outer.process.pid();
    let inner_guard = program_of(outer_guard).expect("the inner run");
    let inner_keeper = keeper_of(inner_guard).expect("the inner keeper");
    let anchors = [outer_guard, inner_guard].map(|guard| anchor_of(guard).expect("an anchor"));
    let others = [outer_guard, inner_guard, inner_keeper];
    // Stopped processes do not react to the kill of others.
    for pid in others {
        faults::stop(pid).unwrap();
    }
    for pid in anchors.into_iter().chain(others) {
        faults::kill(pid).unwrap();
    }
    outer.wait();
    let is_gone = || (!Path::new(&format!("/proc/{left}")).exists()).then_some(());
    wait_for(BOUND, is_gone).expect("it is killed");
}
