//! Tests that a machine cannot run: they print the reason, are counted, and fail where all tests have to run.
//!
//! With `LOCKKEEPER_REQUIRE=all` a test that cannot run fails. Otherwise it prints `SKIPPED: ` and the reason, and
//! appends a line to the file that `LOCKKEEPER_SKIPPED` names, from which `make test` makes its last lines.

#![warn(unreachable_pub)]

use std::fmt::Display;
use std::fs::File;
use std::io::Write;

/// Reports that the test of this thread does not run, and why.
///
/// # Panics
/// When `LOCKKEEPER_REQUIRE` is `all`, or the file of `LOCKKEEPER_SKIPPED` cannot be written.
#[track_caller]
pub fn skip(reason: impl Display) {
    // The harness names the thread of each test after it.
    let thread = std::thread::current();
    skip_test(thread.name().unwrap_or("a test"), reason);
}

/// The same for a test whose thread has another name.
///
/// # Panics
/// See [`skip`].
#[track_caller]
pub fn skip_test(test: &str, reason: impl Display) {
    let is_required = std::env::var_os("LOCKKEEPER_REQUIRE").is_some_and(|required| required == "all");
    assert!(
        !is_required,
        "LOCKKEEPER_REQUIRE=all, but {test} cannot run here: {reason}"
    );
    println!("SKIPPED: {reason}");
    if let Some(path) = std::env::var_os("LOCKKEEPER_SKIPPED") {
        let file = File::options().create(true).append(true).open(path);
        // One write, so that the lines of several programs do not mix.
        file.and_then(|mut file| file.write_all(format!("{reason}: {test}\n").as_bytes()))
            .expect("the file that LOCKKEEPER_SKIPPED names can be written");
    }
}
