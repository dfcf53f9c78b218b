//! What `lockkeeper run` costs while it holds a lock and nothing happens: prints a table.
//!
//! It measures the binary that users get, so it builds none: `LOCKKEEPER_BINARY` names it (a static
//! release build for figures worth quoting), `LOCKKEEPER_CONNECT` and `LOCKKEEPER_TICK_TIME` the
//! ensemble.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// For how long CPU time is counted.
const IDLE: Duration = Duration::from_secs(10);

/// Ends the run when the measurement fails half way: its guard ends the rest.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(guard) = rustix::process::Pid::from_raw(self.0.id().cast_signed()) {
            let _ = rustix::process::kill_process(guard, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

fn main() {
    let variable = |name: &str| std::env::var(name).ok();
    let (Some(binary), Some(connect)) = (variable("LOCKKEEPER_BINARY"), variable("LOCKKEEPER_CONNECT"))
    else {
        println!("footprint: not measured; set LOCKKEEPER_BINARY and LOCKKEEPER_CONNECT");
        return;
    };
    let size = std::fs::metadata(&binary)
        .expect("LOCKKEEPER_BINARY names a file")
        .len();
    let mark = format!("/tmp/lockkeeper-footprint-{}", std::process::id());
    let run = Command::new(&binary)
        .args(["run", "--connect", &connect, "--lock"])
        .arg(format!("/lockkeeper-footprint/{}", std::process::id()))
        .args(["--", "sh", "-c", r#"echo > "$0"; exec sleep 600"#, &mark])
        .stdin(Stdio::null())
        .spawn()
        .expect("LOCKKEEPER_BINARY is executable");
    let mut run = Run(run);
    while !Path::new(&mark).exists() {
        let end = run.0.try_wait().expect("our child");
        assert!(end.is_none(), "the lock was not acquired: {end:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::fs::remove_file(&mark).expect("removed");

    let guard = run.0.id();
    let mut processes = vec![("guard", guard)];
    for child in children(guard) {
        let is_keeper = read(child, "environ").contains("LOCKKEEPER_KEEPER_SOCKET=");
        processes.push((if is_keeper { "keeper" } else { "anchor" }, child));
    }
    let before: Vec<_> = processes.iter().map(|(_, pid)| cpu_time(*pid)).collect();
    std::thread::sleep(IDLE);
    println!("binary: {size} bytes");
    println!("process   VmRSS  RssAnon  RssFile  threads  CPU in {IDLE:?}");
    for ((name, pid), before) in processes.into_iter().zip(before) {
        let status = read(pid, "status");
        let field = |name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        println!(
            "{name:7} {:>8} {:>8} {:>8} {:>5} {:>9?}",
            field("VmRSS:"),
            field("RssAnon:"),
            field("RssFile:"),
            field("Threads:"),
            cpu_time(pid) - before
        );
    }
}

fn read(pid: u32, file: &str) -> String {
    std::fs::read(format!("/proc/{pid}/{file}"))
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .expect("the process is there")
}

fn children(pid: u32) -> Vec<u32> {
    let children = read(pid, &format!("task/{pid}/children"));
    children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Time on a CPU since the process started, over all threads: `schedstat` counts
/// nanoseconds, where `stat` counts ticks of 10 ms.
fn cpu_time(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
    let nanos = tasks.filter_map(|task| {
        let schedstat = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        schedstat.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}
