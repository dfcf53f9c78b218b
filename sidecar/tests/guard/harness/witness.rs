//! Whether the machine itself stood still, as a virtual machine does whose host is busy: then no process kept a deadline, and
//! that a guard did not says nothing of the guard.
//!
//! One process sleeps and looks how long that took; the lanes ask it by a file. It goes before guard and anchor: what makes it
//! late holds them up whatever their priority is. Where the kernel does not permit that, there is no witness.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockkeeper_lock::BootInstant;

use super::{MARGIN, own_program};

/// Names the file.
pub const FILE: &str = "LOCKKEEPER_WITNESS";

/// Half of the margin.
const LATE: Duration = Duration::from_millis(MARGIN.as_millis() as u64 / 2);

const SLEEP: Duration = Duration::from_millis(2);

/// A witness, until it is killed. Guard and anchor take the priority 1 of `SCHED_FIFO` (`sched(7)`).
pub fn start(file: &Path) -> Option<Child> {
    let mut command = Command::new("chrt");
    command
        .args(["--fifo", "2"])
        .arg(own_program())
        .arg("role:witness")
        .arg(file)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().ok()
}

/// Notes until the end of this process when the machine stood still.
pub fn watch(file: &Path) -> ! {
    let mut notes = File::create(file).expect("a file for the witness");
    loop {
        let before = BootInstant::now();
        std::thread::sleep(SLEEP);
        let now = BootInstant::now();
        let late = (now - before).saturating_sub(SLEEP);
        if late > LATE {
            let note = format!("{} {}\n", now.as_nanos(), late.as_nanos());
            notes.write_all(note.as_bytes()).expect("a note");
        }
    }
}

/// For how long it stood still since then, at least once.
pub fn stood_still(since: BootInstant) -> Option<Duration> {
    // A note takes the witness a moment.
    std::thread::sleep(10 * SLEEP);
    let file = std::env::var_os(FILE)?;
    let notes = std::fs::read_to_string(file).ok()?;
    let notes = notes.lines().filter_map(|line| {
        let (end, late) = line.split_once(' ')?;
        let end = BootInstant::from_nanos(end.parse().ok()?);
        (end > since).then_some(Duration::from_nanos(late.parse().ok()?))
    });
    notes.max()
}
