//! The promises about tests that cannot run: each test here runs such a test in a process of its own.

use std::process::{Command, Output};

const REASON: &str = "needs a second moon";

/// Runs this test program again with only the test that skips.
fn skipping(variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "a_test_that_cannot_run", "--ignored", "--nocapture"])
        .env_remove("LOCKKEEPER_REQUIRE")
        .env_remove("LOCKKEEPER_SKIPPED")
        .envs(variables.iter().copied());
    command.output().unwrap()
}

#[test]
#[ignore = "the other tests run it"]
fn a_test_that_cannot_run() {
    lockkeeper_skip::skip(REASON);
}

#[test]
fn a_skipped_test_says_why_and_is_listed() {
    let list = tempfile::NamedTempFile::new().unwrap();
    let path = list.path().to_str().unwrap();
    for _ in 0..2 {
        let output = skipping(&[("LOCKKEEPER_SKIPPED", path)]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        assert!(said.contains(&format!("SKIPPED: {REASON}")), "{said}");
    }
    let line = format!("{REASON}: a_test_that_cannot_run\n");
    assert_eq!(std::fs::read_to_string(path).unwrap(), line.repeat(2));
}

#[test]
fn a_test_that_cannot_run_fails_where_all_are_required() {
    let output = skipping(&[("LOCKKEEPER_REQUIRE", "all")]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains(REASON) && said.contains("a_test_that_cannot_run"),
        "{said}"
    );
}
