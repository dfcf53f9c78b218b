//! The log, as another process sees it on stderr.

use std::process::{Command, Stdio};

use lockkeeper_sidecar::log::{self, LogFormat};

/// Set for the process that logs.
const CHILD: &str = "LOG_FORMAT_OF_CHILD";

const FILTER: &str = "warn,lockkeeper_test=info";

/// What this test binary logs in a process of its own: there is one log per process.
fn logged(test: &str, format: &str) -> Vec<String> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, format)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// In the child: logs, and answers true.
fn is_child() -> bool {
    let Some(format) = std::env::var_os(CHILD) else {
        return false;
    };
    let format = if format == "json" {
        LogFormat::Json
    } else {
        LogFormat::Text
    };
    log::init(format, FILTER.parse().unwrap()).unwrap();
    tracing::info!(target: "lockkeeper_test", lock = "/locks/report", token = 7, "Lock state changed");
    tracing::debug!(target: "lockkeeper_test", "Too much");
    tracing::info!(target: "other", "Not asked for");
    tracing::error!(target: "other", "Failed\nto do something");
    assert!(
        log::init(format, FILTER.parse().unwrap()).is_err(),
        "the second log is refused"
    );
    true
}

#[test]
fn a_line_of_text_has_a_time_a_level_and_no_colours() {
    if is_child() {
        return;
    }
    let lines = logged("a_line_of_text_has_a_time_a_level_and_no_colours", "text");
    assert!(
        lines[0].ends_with(r#"Z  INFO lockkeeper_test: Lock state changed lock="/locks/report" token=7"#),
        "{lines:?}"
    );
    assert!(!lines.concat().contains('\x1b'), "{lines:?}");
    assert!(
        !lines.concat().contains("Too much") && !lines.concat().contains("Not asked for"),
        "{lines:?}"
    );
}

#[test]
fn a_line_of_json_is_one_object_with_the_fields_at_its_top() {
    if is_child() {
        return;
    }
    let lines = logged("a_line_of_json_is_one_object_with_the_fields_at_its_top", "json");
    let objects: Vec<serde_json::Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(objects.len(), 2, "{lines:?}");
    assert_eq!(objects[0]["level"], "INFO");
    assert_eq!(objects[0]["message"], "Lock state changed");
    assert_eq!(objects[0]["lock"], "/locks/report");
    assert_eq!(objects[0]["token"], 7);
    assert!(
        objects[0]["timestamp"].as_str().unwrap().ends_with('Z'),
        "{lines:?}"
    );
    assert_eq!(objects[1]["message"], "Failed\nto do something");
}

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
        .strip_prefix("lockkeeper: --containment cgroup cannot be had: ")
        .and_then(|rest| rest.split("; take another one").next());
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
    // Whoever wants a sweep is told nothing.
    assert!(!run("sweep").1.contains("No control group"));
}
