//! Processes in uninterruptible sleep (state D), which SIGKILL does not end: they write to a frozen file
//! system (`fsfreeze(8)`), as to a disk that is gone.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_judge::record::{Record, Records};
use lockkeeper_product::binaries;
use lockkeeper_product::worker::Worker;
use lockkeeper_testbed::Ensemble;
use lockkeeper_testbed::process::wait_for;

use crate::harness::{BOUND, Run, client, ensemble, wait_for_contenders, worker};
use crate::survivors::survivor;

/// A file system of its own on a loop device.
pub struct Disk(pub PathBuf);

impl Disk {
    /// `None` where the machine cannot mount one; prints why.
    pub fn new(directory: &Path) -> Option<Self> {
        let (image, point) = (directory.join("disk"), directory.join("mounted"));
        std::fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
        std::fs::create_dir(&point).unwrap();
        let is_there = do_as("mkfs.ext4", ["-q".as_ref(), "-F".as_ref(), image.as_os_str()])
            && do_as(
                "mount",
                [
                    "-o".as_ref(),
                    "loop".as_ref(),
                    image.as_os_str(),
                    point.as_os_str(),
                ],
            );
        if !is_there {
            lockkeeper_skip::skip("needs root, loop devices, and ext4");
            return None;
        }
        Some(Self(point))
    }

    pub fn freeze(&self) {
        assert!(
            do_as("fsfreeze", ["-f".as_ref(), self.0.as_os_str()]),
            "it cannot be frozen"
        );
    }

    pub fn thaw(&self) {
        assert!(
            do_as("fsfreeze", ["-u".as_ref(), self.0.as_os_str()]),
            "it cannot be thawed"
        );
    }
}

/// Thaws it also after a failed test: processes that hang on it would never end.
impl Drop for Disk {
    fn drop(&mut self) {
        if std::thread::panicking() {
            do_as("fsfreeze", ["-u".as_ref(), self.0.as_os_str()]);
        }
        let is_unmounted = || do_as("umount", [self.0.as_os_str()]).then_some(());
        wait_for(BOUND, is_unmounted);
    }
}

fn do_as<'a>(program: &str, arguments: impl IntoIterator<Item = &'a OsStr>) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        output.status.success()
    })
}

/// Of 20 s, by which alone another one could get the lock.
const LONGER_THAN_A_SESSION: Duration = Duration::from_secs(24);

/// A holder whose application writes to the disk, and the next contender.
struct Pair {
    run: Run,
    socket: String,
    record: PathBuf,
    next: Worker,
}

impl Pair {
    fn start(ensemble: &Ensemble, disk: &Disk, test: &str, containment: &str) -> Self {
        let (name, lock) = (
            format!("{test}-{containment}"),
            format!("/frozen/{test}-{containment}"),
        );
        let (socket, record) = (
            ensemble.directory().join(format!("{name}.sock")),
            disk.0.join(&name),
        );
        let socket = socket.to_str().unwrap().to_owned();
        let options = [
            "--session-timeout",
            "20s",
            "--lease-duration",
            "off",
            "--socket",
            &socket,
            "--containment",
            containment,
        ];
        let recorder = binaries::recorder().unwrap();
        let command = [
            recorder.to_str().unwrap(),
            record.to_str().unwrap(),
            "--name",
            &name,
        ];
        let run = Run::start(ensemble, &name, &lock, &options, &command);
        wait_for_contenders(ensemble, &lock, 1);
        let next = worker(ensemble, &format!("{name}-next"), &lock, &[], &[]);
        wait_for_contenders(ensemble, &lock, 2);
        let pair = Self {
            run,
            socket,
            record,
            next,
        };
        wait_for(BOUND, || (!pair.records().is_empty()).then_some(()))
            .unwrap_or_else(|| panic!("it does not run: {}", pair.run.stderr()));
        pair
    }

    fn records(&self) -> Vec<Record> {
        if !self.record.exists() {
            return Vec::new();
        }
        Records::read(&self.record).unwrap().records
    }

    fn wait_until_it_hangs(&self) {
        let own = self.record.to_str().unwrap();
        let hangs = || {
            let mut processes = std::fs::read_dir("/proc").unwrap().flatten();
            processes.find(|process| {
                let read = |file| std::fs::read_to_string(process.path().join(file)).unwrap_or_default();
                read("cmdline").split('\0').nth(1) == Some(own) && read("stat").contains(") D ")
            })
        };
        wait_for(BOUND, hangs).unwrap_or_else(|| panic!("it does not hang: {}", self.run.stderr()));
    }

    fn wait_for_survivor(&self) {
        println!("{}", survivor(&self.run, &self.socket));
    }

    fn assert_that_it_keeps_the_lock(&self) {
        assert!(self.next.records().unwrap().is_empty(), "{}", self.next.log());
    }

    fn assert_that_they_alternate(&self) {
        let token = self.records()[0].token;
        self.next.wait_until_it_runs(token, BOUND).unwrap();
        let report = check(
            &[self.records(), self.next.records().unwrap()].concat(),
            Rule::Exclusive,
        );
        assert!(report.is_clean() && report.holds.len() == 2, "{report}");
    }
}

/// Makes a fault while all processes of the application hang on the disk.
fn nobody_runs_beside_what_hangs(test: &str, fault: impl Fn(&mut Pair)) {
    let ensemble = ensemble();
    let directory = ensemble.directory().join(test);
    std::fs::create_dir(&directory).unwrap();
    let Some(disk) = Disk::new(&directory) else { return };
    let mut pairs =
        ["cgroup", "pidns", "sweep"].map(|containment| Pair::start(&ensemble, &disk, test, containment));
    disk.freeze();
    for pair in &mut pairs {
        pair.wait_until_it_hangs();
        fault(pair);
    }
    pairs.iter().for_each(Pair::wait_for_survivor);
    std::thread::sleep(LONGER_THAN_A_SESSION);
    pairs.iter().for_each(Pair::assert_that_it_keeps_the_lock);
    disk.thaw();
    pairs.iter().for_each(Pair::assert_that_they_alternate);
}

#[test]
fn nobody_gets_the_lock_while_an_application_that_was_stopped_hangs_on_a_disk() {
    nobody_runs_beside_what_hangs("stopped", |pair| {
        let (code, said) = client(&["release", "--socket", &pair.socket]);
        assert_ne!(code, 0, "it was released: {said}");
    });
}

#[test]
fn nobody_gets_the_lock_while_the_application_of_a_guard_that_was_killed_hangs_on_a_disk() {
    nobody_runs_beside_what_hangs("killed", |pair| pair.run.process.kill());
}
