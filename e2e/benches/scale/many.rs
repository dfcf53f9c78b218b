//! The cold start of an operator with many locks.

use std::time::Duration;

use lockkeeper_lock::{BootClock, BootInstant, Clock};
use lockkeeper_product::beside::{Environment, Operator};

use crate::load::{CONTENDERS, Load};

/// How long the operator is watched at rest.
const REST: Duration = Duration::from_secs(60);

/// Time from the last expected write until the operator is at rest.
const SETTLE: Duration = Duration::from_secs(5);

/// Time between two checks of the operator's progress.
const LOOK: Duration = Duration::from_millis(200);

/// Five times the promise.
const GIVE_UP: Duration = Duration::from_secs(300);

/// Prints one line for each number of locks, in ascending order.
pub async fn measure(environment: &Environment, counts: &[usize]) {
    drop(environment.take_operator());
    let mut load = Load::new(environment).await;
    println!("An operator that is started cold, {CONTENDERS} contenders for each lock:\n");
    println!(
        "| locks | statuses right | a second | only writing them | of that rate | memory at most | writes in {REST:?} at rest |"
    );
    println!("|---|---|---|---|---|---|---|");
    let (mut last, mut had) = (None, 0);
    for &count in counts {
        drop(last.take());
        load.grow(count).await;
        let raw = load.raw_writes().await;
        let started = BootClock.now();
        let operator = environment.operator("operator-many", &[]).await;
        let took = until_right(&operator, &load, count, started).await;
        eprintln!("{count} locks: all right after {took:.1?}; only writing them: {raw:.1?}");
        let writes = at_rest(&operator, count + (count - had)).await;
        println!(
            "| {count} | {:.1} s | {:.0} | {:.1} s | {:.0} % | {} MiB | {writes} |",
            took.as_secs_f64(),
            count as f64 / took.as_secs_f64(),
            raw.as_secs_f64(),
            100.0 * raw.as_secs_f64() / took.as_secs_f64(),
            memory(&operator),
        );
        (last, had) = (Some(operator), count);
    }
    let started = BootClock.now();
    load.leave(GIVE_UP).await;
    println!(
        "\nNamespace deleted, all queues empty: the last lock was gone after {:.0?}.",
        BootClock.now() - started
    );
    environment.put_operator(last.expect("some number of locks"));
}

async fn until_right(operator: &Operator, load: &Load, count: usize, started: BootInstant) -> Duration {
    let end = started + GIVE_UP;
    // To list ten thousand objects again and again would be most of the API server's work.
    while writes(operator, "status").await < count as u64 {
        assert!(BootClock.now() < end, "{}", operator.log());
        tokio::time::sleep(LOOK).await;
    }
    loop {
        let asked = BootClock.now();
        if load.right().await == count {
            return asked - started;
        }
        assert!(BootClock.now() < end, "{}", operator.log());
        tokio::time::sleep(LOOK).await;
    }
}

/// The writes in a time without events: after a status for each lock, and after a finalizer, which may come
/// late, for each new lock.
async fn at_rest(operator: &Operator, expected: usize) -> u64 {
    let end = BootClock.now() + GIVE_UP;
    while writes(operator, "").await < expected as u64 {
        assert!(BootClock.now() < end, "{}", operator.log());
        tokio::time::sleep(LOOK).await;
    }
    tokio::time::sleep(SETTLE).await;
    let before = writes(operator, "").await;
    tokio::time::sleep(REST).await;
    writes(operator, "").await - before
}

/// Writes to the API server so far, of one kind or of all.
async fn writes(operator: &Operator, kind: &str) -> u64 {
    let metrics = operator
        .pages
        .ask("/metrics")
        .await
        .expect("the operator answers");
    metrics
        .lines()
        .filter(|line| line.starts_with("lockkeeper_operator_api_writes_total") && line.contains(kind))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum()
}

/// The peak of resident memory so far, in MiB.
fn memory(operator: &Operator) -> u64 {
    let pid = operator.process.pid().as_raw_nonzero();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}
