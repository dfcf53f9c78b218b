//! Runs tests, starts guards, and plays the keeper.

#[path = "../support/eventually.rs"]
mod eventually;
mod guard;
mod processes;
pub mod witness;

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use lockkeeper_lock::{BootInstant, FencingToken};

pub use self::eventually::{eventually, until};
pub use self::guard::Guard;
pub use self::processes::{assert_in_time, children, group, is_alive, last_stamp, recorder, state};
use crate::Test;

/// The tokens of two turns.
pub const A: FencingToken = FencingToken(4_294_967_331);
pub const B: FencingToken = FencingToken(4_294_967_400);

/// A command that becomes a user without any right, and executes what follows.
pub const AS_NOBODY: [&str; 6] = [
    "setpriv",
    "--reuid",
    "65534",
    "--regid",
    "65534",
    "--clear-groups",
];

/// Longer than anything here takes on a loaded machine.
pub const LONG: Duration = Duration::from_secs(20);

/// The fixed part of the margin behind the deadline.
pub const MARGIN: Duration = lockkeeper_lock::KILL_ALLOWANCE;

/// Processes that the tests are shared out to: these mostly wait, for deadlines.
const LANES: usize = 3;

/// Which of the lanes a process is; `STORMS` for what runs before them, alone.
const LANE: &str = "LOCKKEEPER_LANE";

/// Tests with this in their names fork without end. Beside them other guards miss their deadlines, and end themselves.
const STORMS: &str = "storm";

/// How often a test is tried on a machine that stands still meanwhile.
const TRIES: usize = 3;

/// The test program's main: `[--list] [part of a name ...]`; without names all tests, as in the standard harness.
pub fn main(groups: &[&[Test]]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parts: Vec<_> = arguments
        .iter()
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let chosen = groups
        .iter()
        .copied()
        .flatten()
        .filter(|(name, _)| parts.is_empty() || parts.iter().any(|part| name.contains(*part)));
    if arguments.iter().any(|argument| argument == "--list") {
        chosen.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let is_storm = |test: &&Test| test.0.contains(STORMS);
    match std::env::var(LANE) {
        Ok(lane) if lane == STORMS => run(chosen.filter(is_storm)),
        Ok(lane) => {
            let others = chosen.filter(|test| !is_storm(test));
            run(others.skip(lane.parse().expect("a number")).step_by(LANES))
        }
        Err(_) => run_in_lanes(&arguments),
    }
}

fn run_in_lanes(arguments: &[String]) -> ExitCode {
    let directory = tempfile::tempdir().expect("a directory");
    let notes = directory.path().join("witness");
    let lane = |lane: &str| {
        let mut command = Command::new(own_program());
        command.args(arguments).env(LANE, lane);
        command
    };
    // Without a witness: a storm is to be gone in time whatever else happens.
    let mut has_passed = lane(STORMS).status().expect("its end").success();
    let witness = witness::start(&notes);
    let lanes: Vec<Child> = (0..LANES)
        .map(|number| lane(&number.to_string()).env(witness::FILE, &notes).spawn())
        .map(|lane| lane.expect("this program starts"))
        .collect();
    for mut lane in lanes {
        has_passed &= lane.wait().expect("its end").success();
    }
    if let Some(mut witness) = witness {
        witness.kill().expect("the witness is ours");
        witness.wait().expect("its end");
    }
    ExitCode::from(u8::from(!has_passed))
}

fn run<'a>(chosen: impl Iterator<Item = &'a Test>) -> ExitCode {
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in chosen {
        println!("test {name} ...");
        TEST.set(name);
        if passes(name, *test) {
            passed += 1;
            println!("test {name} ... ok");
        } else {
            failed += 1;
            println!("test {name} ... FAILED");
        }
    }
    println!("test result: {passed} passed; {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// Whether a test passes. One that failed while the machine stood still is tried again.
fn passes(name: &str, test: fn()) -> bool {
    for _ in 1..TRIES {
        let began = BootInstant::now();
        if std::panic::catch_unwind(test).is_ok() {
            return true;
        }
        let Some(pause) = witness::stood_still(began) else {
            return false;
        };
        println!("test {name} ... again, since the machine stood still for {pause:?}");
    }
    std::panic::catch_unwind(test).is_ok()
}

pub fn open_for_everybody(dir: &Path) {
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).expect("permissions");
}

thread_local! {
    /// The name of the test that runs.
    static TEST: Cell<&'static str> = const { Cell::new("") };
}

pub fn skip(reason: &str) {
    lockkeeper_skip::skip_test(TEST.get(), reason);
}

/// Whether this program was started with SIGHUP, SIGINT or SIGQUIT ignored, as `nohup` and shells in
/// the background do. Everything below would ignore them, too, and rightly so: not what is tested here.
pub fn ignores_signals() -> bool {
    // Bits of `SigIgn` in proc(5): signal 1 is the lowest.
    const PLAIN: u64 = 0b111;
    let status = std::fs::read_to_string("/proc/self/status").expect("proc(5)");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.expect("a mask") & PLAIN != 0
}

/// Starts over with these signals as they are by default.
pub fn main_with_plain_signals(arguments: &[OsString]) -> ExitCode {
    let error = Command::new("env")
        .arg("--default-signal=HUP,INT,QUIT")
        .arg(own_program())
        .args(arguments)
        .exec();
    panic!("env(1) of coreutils: {error}")
}

/// Whether the tests run as root; says so if they do not.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("needs root");
    }
    root
}

/// This program in another role.
pub fn own_program() -> OsString {
    std::env::current_exe().expect("own path").into_os_string()
}

/// A shell command in which `record FILE` runs the recorder.
pub fn shell(script: &str) -> Vec<OsString> {
    let program = own_program();
    let function = format!(
        "record() {{ {:?} role:record \"$@\"; }}\nrecorder={:?}\n",
        program, program
    );
    vec!["sh".into(), "-c".into(), (function + script).into()]
}

/// Beside compilers and two clusters on two cores, a control group with a storm of forks needs 5 to 105 ms until the kernel
/// says that it is frozen. Half of the margin is 100 ms.
const ROUNDS: usize = 100;

/// Plays rounds until the tree of one is paused. A machine with too much to do may not stop a tree within half of
/// the margin: then it is killed, and there is nothing to look at.
pub fn until_paused<T>(round: impl FnMut() -> Option<T>) -> T {
    std::iter::repeat_with(round)
        .take(ROUNDS)
        .flatten()
        .next()
        .unwrap_or_else(|| panic!("it is paused in none of {ROUNDS} rounds"))
}

/// Whether a program is there; says so if it is not.
pub fn has(program: &str) -> bool {
    let found = lockkeeper_sidecar::guard::resolve_command(OsStr::new(program)).is_ok();
    if !found {
        skip(&format!("needs {program}"));
    }
    found
}
