//! What the log of a run says at its start.

use std::process::{Command, Stdio};

/// Whether a group can be made depends on the machine and the user: what `auto` says and what `cgroup` does go together.
#[test]
fn a_run_that_takes_a_sweep_since_there_is_no_control_group_says_why_once_and_what_would_help() {
    let scratch = tempfile::tempdir().unwrap();
    let run = |containment: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        command.args([
            "run",
            "--connect",
            "unknown.invalid:2181",
            "--lock",
            "/locks/report",
        ]);
        command.args(["--containment", containment, "--", "true"]);
        command.env_clear().env("XDG_RUNTIME_DIR", scratch.path());
        let output = command.stdin(Stdio::null()).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap().replace("\\\"", "\""),
        )
    };
    let (code, refused) = run("cgroup");
    let why = refused
        .strip_prefix("lockkeeper: --containment cgroup is not available: ")
        .and_then(|rest| rest.split("; choose another value").next());
    assert_eq!(code, Some(if why.is_some() { 64 } else { 69 }), "{refused}");
    let (code, said) = run("auto");
    assert_eq!(code, Some(69), "{said}");
    let lines: Vec<_> = said
        .lines()
        .filter(|line| line.contains("No control group for the command"))
        .collect();
    assert_eq!(lines.len(), usize::from(why.is_some()), "{said}");
    for line in lines {
        let parts = [" WARN ", "root", "Delegate=yes", "--containment pidns"];
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
        assert!(line.contains(why.unwrap()), "{line}");
    }
    // With an explicit sweep there is no warning.
    assert!(!run("sweep").1.contains("No control group"));
}
