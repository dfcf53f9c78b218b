//! Processes of Lockkeeper itself that die or are stopped.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use lockkeeper_product::space::{BOUND, GUARD, KEEPER, Pair, Space, short};
use lockkeeper_testbed::process::wait_for;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;

/// Sends a signal to a process of the pod that holds, and waits until another pod holds.
fn after(name: &'static str, command: &str, signal: Signal) {
    let Some(space) = Space::new(name) else {
        return;
    };
    // It ignores SIGTERM, so only the guard ends it.
    let pair = space.pair(&short(), &["--ignore-sigterm"]);
    kill_process(space.process(&pair.holder, command), signal).unwrap();
    let (_, next) = space.assert_handed_over(&pair);
    println!("{} lost it to {next}", pair.holder);
    // The pod recovers.
    space.wait_until_waiting("report", 1);
    space.assert_exclusive();
}

#[test]
fn an_application_goes_on_when_its_keeper_is_killed() {
    let Some(space) = Space::new("keeper-killed") else {
        return;
    };
    let pair = space.pair(&LONG, &["--ignore-sigterm"]);
    let keeper = space.process(&pair.holder, KEEPER);
    kill_process(keeper, Signal::KILL).unwrap();
    assert_it_goes_on(&space, &pair, keeper);
}

/// Time for a kubelet to start a container again on a busy machine: with this the lease duration is 45 s, and an application
/// without its keeper runs on for 38 s at least.
static LONG: LazyLock<serde_json::Value> = LazyLock::new(|| json!({ "sessionTimeout": "80s" }));

/// Longer than that lease.
const LONGER: Duration = Duration::from_secs(50);

/// Waits until the pod has another keeper, and longer than what the one before had left.
fn assert_it_goes_on(space: &Space, pair: &Pair, before: Pid) {
    wait_for(BOUND, || {
        (space.process(&pair.holder, KEEPER) != before).then_some(())
    })
    .unwrap_or_else(|| panic!("{}", space.story()));
    std::thread::sleep(LONGER);
    space.assert_undisturbed(pair);
    space.assert_exclusive();
}

#[test]
fn a_keeper_that_stands_still_costs_its_application_the_lock_in_time() {
    after("keeper-stopped", KEEPER, Signal::STOP);
}

#[test]
fn a_killed_guard_takes_its_application_along_and_the_lock_goes_on() {
    after("guard-killed", GUARD, Signal::KILL);
}

#[test]
fn a_second_guard_in_the_container_of_the_holder_changes_nothing() {
    let Some(space) = Space::new("second-guard") else {
        return;
    };
    let pair = space.pair(&json!({}), &[]);
    let binary = "/lockkeeper/lockkeeper";
    let exec = ["exec", &pair.holder, "--", binary, "guard", "--", "true"];
    let refused = space
        .kubectl(&exec)
        .expect_err("it is not the first process of the container");
    let sentence = "is for the first process of a container";
    assert!(format!("{refused:#}").contains(sentence), "{refused:#}");
    // Within its session timeout the other pod would have the lock.
    std::thread::sleep(Duration::from_secs(25));
    space.assert_undisturbed(&pair);
    space.assert_exclusive();
}

#[test]
fn an_application_goes_on_when_its_keeper_runs_out_of_memory() {
    let Some(space) = Space::new("keeper-memory") else {
        return;
    };
    let pair = space.pair(&LONG, &["--ignore-sigterm"]);
    let keeper = space.process(&pair.holder, KEEPER);
    let exec = [
        "exec",
        &pair.holder,
        "--container=lockkeeper",
        "--",
        "/lockkeeper",
        "status",
    ];
    let killed = || {
        allow_no_more_memory(keeper);
        // This needs memory, and the kernel kills the largest process.
        let _ = space.kubectl(&exec);
        test_kill_process(keeper).is_err().then_some(())
    };
    wait_for(BOUND, killed).unwrap_or_else(|| panic!("{}", space.story()));
    assert_it_goes_on(&space, &pair, keeper);
    let reason = r#"--output=jsonpath={.status.initContainerStatuses[?(@.name=="lockkeeper")].lastState.terminated.reason}"#;
    space.wait_for(&["get", "pod", &pair.holder, reason], |reason| {
        reason == "OOMKilled"
    });
}

#[test]
fn an_application_goes_on_when_the_image_of_its_sidecar_is_replaced() {
    let Some(space) = Space::new("keeper-image") else {
        return;
    };
    let pair = space.pair(&LONG, &["--ignore-sigterm"]);
    let keeper = space.process(&pair.holder, KEEPER);
    // The same image under another name: the kubelet replaces the container for it.
    let digest = r#"--output=jsonpath={.status.initContainerStatuses[?(@.name=="lockkeeper")].imageID}"#;
    // The kubelet says it some time after the start.
    let image = space.wait_for(&["get", "pod", &pair.holder, digest], |image| !image.is_empty());
    let container = json!({ "name": "lockkeeper", "image": image });
    let patch = json!({ "spec": { "initContainers": [container] } }).to_string();
    space
        .kubectl(&["patch", "pod", &pair.holder, "--patch", &patch])
        .unwrap();
    assert_it_goes_on(&space, &pair, keeper);
}

/// Sets the memory limit of a container to its present use, by cgroup v2 or v1 (cgroups(7)).
fn allow_no_more_memory(process: Pid) {
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", process.as_raw_pid())).unwrap_or_default();
    let of = |mark: &str| {
        groups
            .lines()
            .find_map(|line| line.split_once(mark))
            .map(|(_, path)| path)
    };
    let root = PathBuf::from("/sys/fs/cgroup");
    let (folder, usage, limit) = match of(":memory:") {
        Some(path) => (
            root.join("memory").join(path.trim_start_matches('/')),
            "memory.usage_in_bytes",
            "memory.limit_in_bytes",
        ),
        None => (
            root.join(of("0::").unwrap_or_default().trim_start_matches('/')),
            "memory.current",
            "memory.max",
        ),
    };
    // The process may be gone already. Version 1 refuses a limit that the use has exceeded meanwhile: then
    // try again.
    if let Ok(bytes) = fs::read_to_string(folder.join(usage)) {
        let _ = fs::write(folder.join(limit), bytes.trim());
    }
}
