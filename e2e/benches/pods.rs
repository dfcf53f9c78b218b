//! `make bench-pods`: times on real nodes, with the charts installed by helm on a cluster of two nodes, and
//! an ensemble of three servers.
//!
//! It measures the time from one application's last instruction to the next one's first; the gap when a node
//! is cut off; the resources of a sidecar at rest; and the time that it adds to the start of a pod.

use std::fs;
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use lockkeeper_product::space::{BOUND, GUARD, KEEPER, Mend, Space, short};
use lockkeeper_testbed::process::wait_for;
use rustix::process::Pid;
use serde_json::{Value, json};

/// Handoffs in `wrap` mode, and in `signal` mode, which takes seconds.
const HANDOFFS: (usize, usize) = (50, 10);
/// Rounds in which the holder's node is cut off; `CUTS` changes it.
const CUTS: usize = 20;
/// How often the only pod of a lock loses it, in `signal` mode.
const LOSSES: usize = 5;
/// Pods that are started, of each kind.
const STARTS: usize = 5;
/// How long the holder is watched at rest.
const REST: Duration = Duration::from_secs(60);

fn main() {
    let Some(space) = Space::alone("bench-wrap") else {
        return;
    };
    handoffs(&space, "wrap", HANDOFFS.0);
    drop(space);
    rest();
    let space = Space::alone("bench-signal").expect("there is a cluster");
    handoffs(&space, "signal", HANDOFFS.1);
    drop(space);
    losses();
    starts();
    let rounds = std::env::var("CUTS").ok().and_then(|text| text.parse().ok());
    cuts(rounds.unwrap_or(CUTS));
}

/// Two pods behind one lock; the benchmark asks the holder to step down again and again.
fn handoffs(space: &Space, guard: &str, rounds: usize) {
    space.apply(&[space.lock("report", &short()), behind(space, guard, 2)]);
    let pair = space.started();
    let (mut token, mut holder) = (pair.token, pair.holder);
    for _ in 0..rounds {
        space.wait_until_waiting("report", 1);
        space.release(&holder);
        (token, holder, _) = space.wait_until_it_runs(token);
    }
    tell(
        &format!("Clean handoff between pods on two nodes, {guard}"),
        gaps(space),
    );
}

/// The only pod of a lock loses it, and gets it again: in `signal` mode the kubelet restarts all its
/// containers before.
fn losses() {
    let space = Space::alone("bench-loss").expect("there is a cluster");
    space.apply(&[space.lock("report", &short()), behind(&space, "signal", 1)]);
    let (mut token, mut holder, _) = space.wait_until_it_runs(0);
    for _ in 0..LOSSES {
        space.release(&holder);
        (token, holder, _) = space.wait_until_it_runs(token);
    }
    tell("The same pod again after a loss, signal", gaps(&space));
}

/// A Deployment behind the lock `report`.
fn behind(space: &Space, guard: &str, replicas: u32) -> Value {
    let mut container = space.recording(&["--period", "1ms"]);
    container["securityContext"] = json!({ "runAsUser": 1000 });
    let pod = space.pod(&[container]);
    let mut workload = space.workload("Deployment", "report", Some(replicas), pod);
    workload["metadata"]["annotations"]["lockkeeper.io/guard"] = json!(guard);
    workload
}

/// The times between two runs in which no pod ran.
fn gaps(space: &Space) -> Vec<Duration> {
    let gaps = space.assert_exclusive().gaps;
    gaps.into_iter().map(|(_, gap)| gap).collect()
}

/// Memory and processor time of the holder's keeper and guard, during renewals only, with the default times
/// of a lock.
fn rest() {
    let space = Space::alone("bench-rest").expect("there is a cluster");
    space.pair(&json!({ "sessionTimeout": "15s", "stopGrace": "3s" }), &[]);
    let holder = space.holders("report").remove(0);
    for (name, command) in [("keeper", KEEPER), ("guard", GUARD)] {
        let process = space.process(&holder, command);
        let (began, before) = (BootInstant::now(), on_processor(process));
        std::thread::sleep(REST);
        let share =
            (on_processor(process) - before).as_secs_f64() / (BootInstant::now() - began).as_secs_f64();
        println!(
            "{name} of a pod that holds (T 15 s): {} kB resident, {:.3} % of a core over {REST:?}",
            resident(process),
            share * 100.0
        );
    }
}

/// From the creation of a pod to its application's first instruction, with and without a lock.
fn starts() {
    let space = Space::alone("bench-start").expect("there is a cluster");
    space.apply(&[space.lock("report", &short())]);
    space
        .kubectl(&["wait", "--for=condition=Ready", "dlock/report", "--timeout=60s"])
        .unwrap();
    let mut medians = Vec::new();
    for (kind, marks) in [
        ("without a lock", json!({})),
        (
            "that gets the lock at once",
            json!({ "lockkeeper.io/lock": "report" }),
        ),
    ] {
        let mut times = Vec::new();
        for round in 0..STARTS {
            times.push(start(&space, &marks, round));
        }
        medians.push(tell(&format!("Start of a pod {kind}"), times));
    }
    println!(
        "The sidecar adds {:.0} ms to the start (medians)",
        (medians[1].as_secs_f64() - medians[0].as_secs_f64()) * 1e3
    );
}

fn start(space: &Space, marks: &Value, round: usize) -> Duration {
    let name = format!("start-{round}");
    let is_marked = marks.as_object().is_some_and(|marks| !marks.is_empty());
    // Tokens have to grow in the records, also for pods without a lock.
    let token = (i64::from(u32::MAX) * i64::from(is_marked) * 1_000).to_string();
    let words: &[&str] = if is_marked { &[] } else { &["--token", &token] };
    let mut pod = space.pod(&[space.recording(words)]);
    pod["terminationGracePeriodSeconds"] = json!(1);
    let before = space.records().len();
    let began = BootInstant::now();
    space.apply(&[json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": space.name, "annotations": marks },
        "spec": pod,
    })]);
    let first = || space.records().get(before).map(|record| record.at);
    let first = wait_for(BOUND, first).unwrap_or_else(|| panic!("{}", space.story()));
    if is_marked {
        let log = space.kubectl(&["logs", &name, "--container=lockkeeper"]).unwrap();
        for line in log.lines().filter(|line| line.contains("Lock state changed")) {
            let at = line.split_whitespace().next().unwrap_or_default();
            let to = line
                .split("lock.to=")
                .nth(1)
                .and_then(|rest| rest.split('"').nth(1));
            println!("  {name} {at} {}", to.unwrap_or_default());
        }
    }
    space.kubectl(&["delete", "pod", &name]).unwrap();
    first - began
}

/// From the cut of the holder's node to the next application's first instruction.
fn cuts(rounds: usize) {
    let space = Space::alone("bench-cut").expect("there is a cluster");
    let pair = space.pair(&short(), &["--ignore-sigterm"]);
    let (mut token, mut holder) = (pair.token, pair.holder);
    let mut times = Vec::new();
    for _ in 0..rounds {
        let node = space.cluster.node(space.node_of(&holder)).unwrap();
        let restored = Mend(|| {
            node.restore()?;
            space.wait_for_nodes()
        });
        let cut = BootInstant::now();
        node.cut().unwrap();
        let (next, pod, at) = space.wait_until_it_runs(token);
        times.push(at - cut);
        (token, holder) = (next, pod);
        drop(restored);
        space.wait_until_waiting("report", 1);
    }
    space.assert_exclusive();
    tell("Node cut off to the next application (T 6 s, tick 1 s)", times);
}

fn tell(what: &str, mut times: Vec<Duration>) -> Duration {
    times.sort();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{what}, {} times: p50 {:.1} ms, p90 {:.1} ms, most {:.1} ms",
        times.len(),
        ms(at(50)),
        ms(at(90)),
        ms(at(100))
    );
    at(50)
}

/// Kilobytes (`VmRSS`, proc(5)).
fn resident(process: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Time on a processor, of all threads (`schedstat`, in nanoseconds).
fn on_processor(process: Pid) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.as_raw_pid())).unwrap();
    let of_task = |task: fs::DirEntry| -> u64 {
        let stat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        stat.split(' ')
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    };
    Duration::from_nanos(tasks.flatten().map(of_task).sum())
}
