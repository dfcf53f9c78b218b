//! Whether the machine itself stood still, as a virtual machine does whose host is busy: then no process kept a deadline, and
//! that a guard did not says nothing of the guard.
//!
//! One process sleeps and looks how long that took; the lanes ask it by a file.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use lockkeeper_lock::BootInstant;

use super::MARGIN;

/// Names the file.
pub const FILE: &str = "LOCKKEEPER_WITNESS";

/// A process that was woken this much too late speaks of the machine, and not of its scheduler.
const LATE: Duration = Duration::from_millis(MARGIN.as_millis() as u64 / 2);

const SLEEP: Duration = Duration::from_millis(2);

/// Notes until the end of this process when the machine stood still.
pub fn watch(file: &Path) {
    let mut notes = File::create(file).expect("a file for the witness");
    std::thread::spawn(move || {
        loop {
            let before = BootInstant::now();
            std::thread::sleep(SLEEP);
            let late = (BootInstant::now() - before).saturating_sub(SLEEP);
            if late > LATE {
                let now = BootInstant::now().as_nanos();
                writeln!(notes, "{now} {}", late.as_nanos()).expect("a note");
            }
        }
    });
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
