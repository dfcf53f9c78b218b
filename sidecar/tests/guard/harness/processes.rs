//! What a test sees of processes, and of the records that they write.

use std::path::{Path, PathBuf};

use lockkeeper_lock::BootInstant;
use rustix::process::Pid;

use super::MARGIN;

/// The process that writes a record, once it has set itself up.
pub fn recorder(file: &Path) -> Option<Pid> {
    let content = std::fs::read_to_string(file).ok()?;
    // A first stamp shows that it is running and has set itself up.
    let mut lines = content.lines();
    let pid = lines.next()?.parse().ok()?;
    lines.next()?;
    Pid::from_raw(pid)
}

/// When the recorder of a file last ran.
pub fn last_stamp(file: &Path) -> BootInstant {
    let content = std::fs::read_to_string(file).expect("a record");
    let complete = content.rsplit_once('\n').expect("a line").0;
    let stamp = complete.lines().skip(1).last().expect("a stamp");
    BootInstant::from_nanos(stamp.parse().expect("a number"))
}

/// The letter of `/proc/PID/stat`; `None` when there is no such process.
pub fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether a process can still do anything. A process that a test orphans may have to wait for the machine's init to
/// reap it; a process that is ending may have to wait for a CPU before it is a zombie.
pub fn is_alive(pid: Pid) -> bool {
    let has_memory = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Field 23 of proc_pid_stat(5); the third comes after the name. The kernel takes a process's memory, and with
        // it all that it could execute, and then its files, long before it calls it a zombie.
        Some(stat.rsplit_once(") ")?.1.split(' ').nth(23 - 3)? != "0")
    };
    state(pid).is_some_and(|state| state != 'Z') && has_memory().unwrap_or(false)
}

/// Asserts that what wrote `file` ended by the end of the margin, and prints how far from it.
pub fn assert_in_time(file: &Path, kill_at: BootInstant) {
    let last = last_stamp(file);
    let (after, before) = (last - kill_at, kill_at - last);
    println!("  last ran {after:?} after / {before:?} before the deadline");
    assert!(last < kill_at + MARGIN, "ran {after:?} beyond its deadline");
}

pub fn children(of: Pid) -> Vec<Pid> {
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = all.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| parent(*pid) == Some(of)).collect()
}

fn parent(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    Pid::from_raw(fields.split(' ').nth(1)?.parse().ok()?)
}

/// The directory of the control group in which a process is.
pub fn group(pid: Pid) -> PathBuf {
    let read = |file: String| std::fs::read_to_string(file).expect("proc(5)");
    let groups = read(format!("/proc/{pid}/cgroup"));
    let path = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .expect("version 2");
    let mounts = read("/proc/self/mountinfo".to_owned());
    let mount = mounts
        .lines()
        .find(|line| line.contains(" - cgroup2 "))
        .expect("mounted");
    let point = mount.split(' ').nth(4).expect("a mount point");
    PathBuf::from(format!("{point}{path}"))
}
