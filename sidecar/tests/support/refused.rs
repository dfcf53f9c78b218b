//! Runs the binary and looks at how it refuses bad input.

#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "each test uses its part of it"
)]

use std::path::Path;
use std::process::{Command, Stdio};

/// Runs the binary in a directory and with nothing but the given variables; exit code, stdout, stderr.
pub fn run(directory: &Path, words: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(words)
        .env_clear()
        .envs(variables.iter().copied())
        .env("XDG_RUNTIME_DIR", directory)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// Words of the command line, variables, and parts of the sentence that refuses them.
pub type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a [&'a str]);

/// Each command line is refused with a sentence that has all the parts, and leaves no trace.
pub fn refused(cases: &[Case<'_>]) {
    for (words, variables, parts) in cases {
        let scratch = tempfile::tempdir().unwrap();
        let (code, out, err) = run(scratch.path(), words, variables);
        assert_eq!(code, 64, "{words:?}: {err}");
        assert_eq!(out, "", "{words:?}");
        assert!(
            err.starts_with("lockkeeper: ") && err.lines().count() == 1,
            "{words:?}: {err}"
        );
        for part in *parts {
            assert!(err.contains(part), "{words:?}: {part:?} is not in {err}");
        }
        assert_eq!(
            std::fs::read_dir(scratch.path()).unwrap().count(),
            0,
            "{words:?} left something"
        );
    }
}

/// `run` with good arguments, these, and a command; before a semicolon another ensemble and lock.
macro_rules! with_run {
    ($connect:literal; $($word:literal),*) => { with_run!($connect, "/locks/report"; $($word),*) };
    ($connect:literal, $lock:literal; $($word:literal),*) => {
        &["run", "--connect", $connect, "--lock", $lock, $($word,)* "--", "true"]
    };
    ($($word:literal),*) => {
        with_run!("zk:2181"; $($word),*)
    };
}

pub(crate) use with_run;
