//! However a cluster ends, it leaves nothing behind, and another one can start.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper_testbed::clock::since_boot;
use lockkeeper_testbed::cluster::{self, Config};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Cluster, Process};
use rustix::process::{Pid, Signal};

const BOUND: Duration = Duration::from_secs(180);

/// A number that no other tests give their cluster.
const ANOTHER: &str = "9";

/// Set in a process that is to start a cluster and be killed.
const USER: &str = "LOCKKEEPER_E2E_USER_OF_A_CLUSTER";

/// There is one cluster of a number per machine.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cluster of this test; `None`, with a message, where no cluster can run.
fn start() -> Option<Cluster> {
    let began = since_boot();
    let cluster = Cluster::start_or_skip(&Config::default())?;
    println!("ready after {:.1?}", since_boot() - began);
    Some(cluster)
}

/// A pod with processes, mounts and an address on each node.
fn run_pods(cluster: &Cluster, name: &str) {
    for node in ["n1", "n2"] {
        let pod = format!("{name}-{node}");
        cluster
            .apply(&format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: {pod}}}, spec: {{nodeName: {node}, \
                 containers: [{{name: app, image: '10.77.0.1:5000/lockkeeper/pause:1', \
                 volumeMounts: [{{name: v, mountPath: /v}}]}}], volumes: [{{name: v, emptyDir: {{medium: Memory}}}}]}}}}"
            ))
            .unwrap();
        let phase = ["get", "pod", &pod, "--output", "jsonpath={.status.phase}"];
        cluster
            .wait_for(BOUND, &phase, |phase| phase == "Running")
            .unwrap();
    }
}

fn assert_no_trace() {
    let gone = || cluster::traces().unwrap().is_empty().then_some(());
    assert!(wait_for(BOUND, gone).is_some(), "{:?}", cluster::traces());
}

#[test]
fn nothing_is_left_of_a_cluster_that_is_stopped() {
    let _alone = alone();
    let Some(cluster) = start() else { return };
    run_pods(&cluster, "app");
    assert!(!cluster::traces().unwrap().is_empty());
    let began = since_boot();
    drop(cluster);
    println!("stopped after {:.1?}", since_boot() - began);
    assert_eq!(cluster::traces().unwrap(), Vec::<String>::new());
}

#[test]
fn nothing_is_left_of_a_cluster_whose_user_is_killed() {
    if std::env::var_os(USER).is_some() {
        let _cluster = start().unwrap();
        println!("{USER}");
        loop {
            std::thread::park();
        }
    }
    let _alone = alone();
    // Where no cluster can run, this prints why, and the test is skipped.
    let Some(cluster) = start() else { return };
    drop(cluster);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "nothing_is_left_of_a_cluster_whose_user_is_killed",
            "--nocapture",
        ])
        .env(USER, "1")
        .stdout(Stdio::piped());
    let mut user = Process::spawn("user of a cluster", command).unwrap();
    let output = user.child_mut().stdout.take().unwrap();
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains(USER)), "it starts a cluster");
    assert!(!cluster::traces().unwrap().is_empty());
    user.kill();
    assert_no_trace();
}

#[test]
fn a_cluster_starts_after_one_whose_supervisor_was_killed_and_removes_what_it_left() {
    let _alone = alone();
    let Some(killed) = start() else { return };
    run_pods(&killed, "app");
    let supervisor = Pid::from_raw(killed.supervisor().unwrap() as i32).unwrap();
    rustix::process::kill_process(supervisor, Signal::KILL).unwrap();
    drop(killed);
    assert!(!cluster::traces().unwrap().is_empty(), "pods outlive a kill -9");
    let cluster = start().expect("what was left is no hindrance");
    run_pods(&cluster, "app");
    drop(cluster);
    assert_eq!(cluster::traces().unwrap(), Vec::<String>::new());
}

#[test]
fn clusters_of_two_numbers_run_side_by_side_and_neither_ends_with_the_other() {
    if std::env::var(cluster::NUMBER).as_deref() == Ok(ANOTHER) {
        let cluster = start().unwrap();
        run_pods(&cluster, "app");
        drop(cluster);
        assert_eq!(cluster::traces().unwrap(), Vec::<String>::new());
        return;
    }
    let _alone = alone();
    let Some(cluster) = start() else { return };
    let other = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "clusters_of_two_numbers_run_side_by_side_and_neither_ends_with_the_other",
        ])
        .env(cluster::NUMBER, ANOTHER)
        .output()
        .unwrap();
    assert!(
        other.status.success(),
        "{}",
        String::from_utf8_lossy(&other.stdout)
    );
    // With the mounts of its nodes, which the other cluster had at the same places.
    run_pods(&cluster, "app");
    drop(cluster);
    assert_eq!(cluster::traces().unwrap(), Vec::<String>::new());
}
