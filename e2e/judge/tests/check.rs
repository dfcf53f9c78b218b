//! The checker as a program: its output about record files, and its exit codes.

use std::path::Path;
use std::process::{Command, Output};

/// A record in which each of these ran, as (token, from, to) in milliseconds.
fn record(file: &Path, holds: &[(i64, u64, u64)]) {
    let line = |word: &str, token: i64, millis: u64, rest: &str| {
        format!("{word} {token} {} {token}{rest}\n", millis * 1_000_000)
    };
    let lines: String = holds
        .iter()
        .flat_map(|&(token, from, to)| {
            [
                line("begin", token, from, &format!(" worker-{token}")),
                line("end", token, to, ""),
            ]
        })
        .collect();
    std::fs::write(file, lines).unwrap();
}

fn check(arguments: &[&Path]) -> (Option<i32>, String) {
    let Output { status, stdout, .. } = Command::new(env!("CARGO_BIN_EXE_lockkeeper-check"))
        .args(arguments)
        .output()
        .unwrap();
    (status.code(), String::from_utf8(stdout).unwrap())
}

#[test]
fn files_of_programs_that_never_overlap_pass_and_are_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let [one, two, picture] = ["one", "two", "picture.svg"].map(|name| directory.path().join(name));
    record(&one, &[(7, 10, 20), (9, 50, 60)]);
    record(&two, &[(8, 30, 40)]);
    let (code, said) = check(&[&one, &two, Path::new("--svg"), &picture]);
    assert_eq!(code, Some(0), "{said}");
    let drawn = ["light", "dark"]
        .map(|theme| std::fs::read_to_string(directory.path().join(format!("picture-{theme}.svg"))).unwrap());
    for name in ["worker-7", "worker-8", "worker-9"] {
        assert!(said.contains(name), "{said}");
        let label = format!(">{name}</text>");
        assert!(
            drawn.iter().all(|drawn| drawn.contains(&label)),
            "{name} is not drawn"
        );
    }
}

#[test]
fn two_that_ran_at_the_same_moment_fail_the_check_unless_as_many_may_hold() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("record");
    record(&file, &[(7, 10, 40), (8, 30, 50)]);
    assert_eq!(check(&[&file]).0, Some(1));
    let two_may_hold = [&file, Path::new("--max-holders"), Path::new("2")];
    assert_eq!(check(&two_may_hold).0, Some(0));
}

#[test]
fn a_file_without_a_record_proves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("record");
    std::fs::write(&file, "").unwrap();
    assert_eq!(check(&[&file]).0, Some(2));
}
