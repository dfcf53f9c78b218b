//! The log, as another process sees it on stderr.

use std::process::{Command, Stdio};

use lockkeeper_daemon::log::{self, LogFormat};

/// Set for the process that logs.
const CHILD: &str = "LOG_FORMAT_OF_CHILD";

const FILTER: &str = "warn,lockkeeper_test=info";

/// The log of a test in a process of its own: there is one log per process.
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

/// In the child process: logs, and returns true.
fn is_child() -> bool {
    let Some(format) = std::env::var_os(CHILD) else {
        return false;
    };
    let format = if format == "json" {
        LogFormat::Json
    } else {
        LogFormat::Text
    };
    let _log = log::init(format, FILTER.parse().unwrap()).unwrap();
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
