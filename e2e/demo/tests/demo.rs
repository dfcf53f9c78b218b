//! The demonstration, as a new user runs it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockkeeper_testbed::Process;
use lockkeeper_testbed::binaries::WITH_TESTS;
use lockkeeper_testbed::owner::MARK;
use lockkeeper_testbed::process::wait_for;
use rustix::process::{Pid, Signal};

/// An act takes some 50 s. The machine may be busy, and cargo builds the programs first. For those of the images that took
/// more than 15 minutes beside all other tests, on a machine where nothing was built.
const BOUND: Duration = Duration::from_secs(1800);

/// A demonstration that writes all its files into a directory.
fn start(directory: &Path, arguments: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper-demo"));
    command
        .args(arguments)
        .env(WITH_TESTS, "1")
        .arg("--results")
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(fs::File::create(directory.join("stdout")).unwrap())
        .stderr(fs::File::create(directory.join("stderr")).unwrap());
    Process::spawn("demo", command).unwrap()
}

fn said(directory: &Path) -> String {
    fs::read_to_string(directory.join("stdout")).unwrap()
}

/// Its output, once it has ended by itself.
fn ends_well(demo: &mut Process, directory: &Path) -> String {
    let status = demo
        .wait(BOUND)
        .unwrap()
        .unwrap_or_else(|| panic!("it does not end: {}", said(directory)));
    let said = said(directory);
    println!("{said}");
    let complaint = fs::read_to_string(directory.join("stderr")).unwrap();
    assert!(status.success(), "{complaint}");
    said
}

/// Its leftovers: processes that it or one of its children has started, and its directory.
fn leftovers(demo: Pid) -> Vec<String> {
    let demo = demo.as_raw_pid().to_string();
    let is_its = |mark: &str| mark.split('.').nth(1) == Some(&demo);
    let marked = |entry: &fs::DirEntry| {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        environment
            .split(|&byte| byte == 0)
            .filter_map(|variable| {
                std::str::from_utf8(variable)
                    .ok()?
                    .strip_prefix(MARK)?
                    .strip_prefix('=')
            })
            .any(is_its)
    };
    let processes = fs::read_dir("/proc").unwrap().flatten().filter(marked);
    let directories = fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let directories = directories.filter(|entry| {
        let name = entry.file_name();
        let mark = name
            .to_str()
            .and_then(|name| name.strip_prefix("lockkeeper-e2e."));
        mark.is_some_and(is_its)
    });
    processes
        .chain(directories)
        .map(|entry| entry.path().display().to_string())
        .collect()
}

#[test]
fn the_demonstration_proves_that_nobody_overlaps_draws_it_and_leaves_nothing_running() {
    let directory = tempfile::tempdir().unwrap();
    let picture = directory.path().join("picture.svg");
    let mut demo = start(directory.path(), &["--svg", picture.to_str().unwrap()]);
    let pid = demo.pid();
    let said = ends_well(&mut demo, directory.path());
    assert!(
        said.contains("Nobody ran at the same moment as another: "),
        "{said}"
    );
    assert!(said.contains(" holds, 0 overlaps, tokens grew."), "{said}");
    assert!(!said.contains('\x1b'), "escape codes in a file");
    let drawn = fs::read_to_string(directory.path().join("picture-dark.svg")).unwrap();
    assert_eq!(
        drawn,
        fs::read_to_string(directory.path().join("timeline-dark.svg")).unwrap()
    );
    for worker in ["alice", "bob", "carol"] {
        assert!(
            drawn.contains(&format!(">{worker}</text>")),
            "{worker} is not drawn"
        );
    }
    assert_eq!(leftovers(pid), Vec::<String>::new());
}

#[test]
fn the_second_act_shows_a_rollout_and_a_node_that_is_cut_off_and_leaves_nothing_running() {
    let directory = tempfile::tempdir().unwrap();
    let mut demo = start(directory.path(), &["--act", "2"]);
    let pid = demo.pid();
    let said = ends_well(&mut demo, directory.path());
    if !said.contains("This act is left out") {
        // On a busy machine the lock may move once more.
        let (before, _) = said.split_once(" holds, 0 overlaps, tokens grew.").expect(&said);
        let holds: u32 = before.split_whitespace().last().unwrap().parse().unwrap();
        assert!(holds >= 3, "{said}");
        let drawn = fs::read_to_string(directory.path().join("kubernetes-light.svg")).unwrap();
        assert!(drawn.contains("node cut off"), "the fault is not drawn");
        for (picture, shown) in [
            ("pod-light.svg", ">application</text>"),
            ("handoff-light.svg", ">the last instruction</text>"),
            ("rollout-light.svg", ">rollout</text>"),
        ] {
            let drawn = fs::read_to_string(directory.path().join(picture)).unwrap();
            assert!(drawn.contains(shown), "{picture}: {drawn}");
        }
    }
    assert_eq!(leftovers(pid), Vec::<String>::new());
}

#[test]
fn an_interrupted_demonstration_says_so_and_leaves_nothing_running() {
    let directory = tempfile::tempdir().unwrap();
    let mut demo = start(directory.path(), &["--loopback"]);
    let pid = demo.pid();
    let runs = || said(directory.path()).contains("alice runs").then_some(());
    wait_for(BOUND, runs).expect("the first act begins");
    assert!(!leftovers(pid).is_empty());
    demo.signal(Signal::INT);
    let status = demo.wait(BOUND).unwrap().expect("it ends");
    assert_eq!(status.code(), Some(130));
    let complaint = fs::read_to_string(directory.path().join("stderr")).unwrap();
    assert!(
        complaint.contains("everything that was started has been stopped"),
        "{complaint}"
    );
    assert_eq!(leftovers(pid), Vec::<String>::new());
}
