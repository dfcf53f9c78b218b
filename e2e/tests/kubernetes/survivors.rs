//! A process of a pod in uninterruptible sleep (state D), which SIGKILL does not end: it writes to a frozen file system
//! (`fsfreeze(8)`), as to a disk that is gone.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use lockkeeper_product::binaries;
use lockkeeper_product::space::{APPLICATION, BOUND, Space};
use lockkeeper_testbed::process::wait_for;
use rustix::process::Pid;
use serde_json::json;
use tempfile::NamedTempFile;

/// Longer than the lock's session lives without its keeper.
const SOME_SESSIONS: Duration = Duration::from_secs(25);

/// A file system of its own, which each node has at the same place.
struct Disk<'a> {
    space: &'a Space,
    /// The loop device; its file is gone once it has no user.
    device: String,
    point: PathBuf,
}

impl<'a> Disk<'a> {
    /// `None` where the machine cannot make one; prints why.
    fn new(space: &'a Space) -> Option<Self> {
        let image = NamedTempFile::new().unwrap();
        image.as_file().set_len(32 << 20).unwrap();
        let path = image.path().to_str().unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-F", path]).output();
        let attached = made.and_then(|_| Command::new("losetup").args(["--find", "--show", path]).output());
        let Some(attached) = attached.ok().filter(|attached| attached.status.success()) else {
            lockkeeper_skip::skip("needs loop devices, and ext4");
            return None;
        };
        let disk = Self {
            space,
            device: String::from_utf8(attached.stdout).unwrap().trim().to_owned(),
            point: space.records_directory().join("disk"),
        };
        std::fs::create_dir(&disk.point).unwrap();
        disk.on_each_node("mount", &[&disk.device, disk.point()]);
        Some(disk)
    }

    fn point(&self) -> &str {
        self.point.to_str().unwrap()
    }

    fn on_node(&self, number: u8, program: &str, words: &[&str]) -> anyhow::Result<Output> {
        self.space.cluster.node(number)?.run(Path::new(program), words)
    }

    fn on_each_node(&self, program: &str, words: &[&str]) {
        for number in 1..=2 {
            let done = self.on_node(number, program, words).unwrap();
            assert!(done.status.success(), "{program} on n{number}: {done:?}");
        }
    }

    fn freeze(&self) {
        let done = self.on_node(1, "fsfreeze", &["-f", self.point()]).unwrap();
        assert!(done.status.success(), "it cannot be frozen: {done:?}");
    }

    fn thaw(&self) {
        let done = self.on_node(1, "fsfreeze", &["-u", self.point()]).unwrap();
        assert!(done.status.success(), "it cannot be thawed: {done:?}");
    }
}

/// Thaws it also after a failed test: processes that hang on it would never end.
impl Drop for Disk<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.on_node(1, "fsfreeze", &["-u", self.point()]);
        }
        for number in 1..=2 {
            // Pods may still use it.
            let _ = self.on_node(number, "umount", &["--lazy", self.point()]);
        }
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
    }
}

fn hangs(pid: Pid) -> bool {
    std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()))
        .is_ok_and(|stat| stat.contains(") D "))
}

#[test]
fn a_pod_with_a_process_that_outlives_sigkill_keeps_the_lock_and_is_named_until_a_user_gives_it_up() {
    assert_it_keeps_the_lock_until_a_user_gives_it_up("survivors", "wrap");
}

#[test]
fn a_container_beside_its_guard_that_outlives_sigkill_keeps_the_lock_until_a_user_gives_it_up() {
    assert_it_keeps_the_lock_until_a_user_gives_it_up("beside-survivors", "signal");
}

fn assert_it_keeps_the_lock_until_a_user_gives_it_up(name: &str, guard: &str) {
    let Some(space) = Space::new(name) else {
        return;
    };
    let Some(disk) = Disk::new(&space) else { return };
    let mut container = space.recording(&[]);
    container["command"][1] = json!("/records/disk/record");
    let mut workload = space.workload("Deployment", "report", Some(2), space.pod(&[container]));
    workload["metadata"]["annotations"]["lockkeeper.io/guard"] = json!(guard);
    space.apply(&[space.lock("report", &json!({})), workload]);
    space.wait_until_waiting("report", 1);
    space.wait_for_lock("report", "{.status.holders[*].guard}", |guards| guards == guard);
    let [holder] = &space.holders("report")[..] else {
        panic!("{}", space.story())
    };
    let application = space.process(holder, APPLICATION);
    disk.freeze();
    wait_for(BOUND, || hangs(application).then_some(())).unwrap_or_else(|| panic!("{}", space.story()));
    let said = space.ask_to_release(holder).expect_err("something of it is left");
    println!("{said:#}");

    let survivors = "{.status.holders[*].pod} {.status.holders[*].survivors}";
    let shown = space.wait_for_lock("report", survivors, |shown| {
        shown.starts_with(&format!("{holder} {{"))
    });
    println!("{shown}");
    // The first event may say only that something is left, if the guard was late with the number.
    space.wait_for_lock("report", survivors, |shown| shown.contains("\"processes\":1"));
    let notes = [
        "get",
        "events",
        "--field-selector=reason=ApplicationSurvives",
        "--output=jsonpath={.items[*].message}",
    ];
    let note = format!("{holder} keeps the lock: ");
    println!("{}", space.wait_for(&notes, |notes| notes.starts_with(&note)));
    std::thread::sleep(SOME_SESSIONS);
    assert_eq!(
        &space.holders("report")[..],
        std::slice::from_ref(holder),
        "{}",
        space.story()
    );

    let plugin = binaries::plugin().unwrap();
    let plugin = |words: [&str; 2]| {
        let mut command = Command::new(&plugin);
        command
            .args(words)
            .args(["--namespace", &space.name, "--kubeconfig"]);
        let said = command.arg(space.cluster.kubeconfig()).output().unwrap();
        let words = String::from_utf8([said.stdout, said.stderr].concat()).unwrap();
        (said.status.code(), words)
    };
    let names = space
        .kubectl(&["get", "pods", "--output=jsonpath={.items[*].metadata.name}"])
        .unwrap();
    let other = names.split_whitespace().find(|name| name != holder).unwrap();
    let (_, said) = plugin(["why", holder]);
    assert!(
        said.starts_with(&format!("{holder} keeps report and runs nothing: ")),
        "{said}"
    );
    let (_, said) = plugin(["why", other]);
    assert!(
        said.contains(&format!("{holder} keeps the lock until it has gone")),
        "{said}"
    );
    let (code, said) = plugin(["abandon-survivors", other]);
    assert_eq!(code, Some(77), "{said}");
    assert!(
        said.contains("nothing is known to have outlived its deadline"),
        "{said}"
    );
    assert_eq!(&space.holders("report")[..], std::slice::from_ref(holder));
    let (code, said) = plugin(["abandon-survivors", holder]);
    assert_eq!(code, Some(0), "{said}");
    space.wait_until_held_by(other, "report");
    assert!(hangs(application), "it was given up while it was there");

    disk.thaw();
    // The pod is in the queue again.
    space.wait_until_waiting_behind(other, "report", 1);
}
