//! Bad input: one sentence that says what is wrong, where, and what would be right; exit code 64;
//! nothing done.

use std::process::Command;

use refused::{refused, run, with_run};

#[path = "support/refused.rs"]
mod refused;

#[test]
fn a_command_line_that_cannot_be_understood_is_refused_with_a_hint_to_the_help() {
    refused(&[
        (&[], &[], &["what to do is missing", "see `lockkeeper --help`"]),
        (
            &["frobnicate"],
            &[],
            &["unrecognized subcommand 'frobnicate'", "see `lockkeeper --help`"],
        ),
        (
            &["run"],
            &[],
            &[
                "--connect <HOSTS> --lock <PATH> <CMD>...",
                "see `lockkeeper run --help`",
            ],
        ),
        (
            with_run!("--frobnicate"),
            &[],
            &[
                "unexpected argument '--frobnicate'",
                "see `lockkeeper run --help`",
            ],
        ),
        (
            &["run", "--connect", "zk", "--lock", "/l", "sleep", "1"],
            &[],
            &["unexpected argument 'sleep' found: the command to run goes after --"],
        ),
        (
            &["run", "--connect", "zk", "--lock", "/l", "--"],
            &[],
            &["<CMD>..."],
        ),
        (
            &["run", "--connect", "zk", "--lock", "/l", "--", ""],
            &[],
            &["the command after -- is empty"],
        ),
        (
            with_run!("--lock", "/other"),
            &[],
            &["'--lock <PATH>' cannot be used multiple times"],
        ),
        (with_run!("--stop-grace"), &[], &["'--stop-grace <DURATION>'"]),
        (&["guard"], &[], &["<CMD>...", "see `lockkeeper guard --help`"]),
        (&["install"], &[], &["<DIR>"]),
    ]);
}

#[test]
fn a_value_that_is_wrong_is_refused_with_what_would_be_right() {
    refused(&[
        (
            with_run!("--stop-grace", "5"),
            &[],
            &["'5' for '--stop-grace", "5ms, 5s, 5m or 5h"],
        ),
        (
            with_run!("--lock-delay=-5s"),
            &[],
            &["--lock-delay", "cannot be negative"],
        ),
        (
            with_run!("--session-timeout", "1000h"),
            &[],
            &["--session-timeout", "2147483647ms"],
        ),
        (
            with_run!("--log", "loud"),
            &[],
            &["`loud` is not a level; write off, error, warn"],
        ),
        (
            with_run!("--max-holders", "0"),
            &[],
            &["--max-holders", "a whole number from 1"],
        ),
        (
            with_run!("--admin-listen", "9808"),
            &[],
            &["--admin-listen", "IP:PORT, such as 127.0.0.1:9808"],
        ),
        (with_run!("--socket", ""), &[], &["--socket"]),
        (
            with_run!("--socket", "/"),
            &[],
            &["the path of a socket names a file"],
        ),
        (
            with_run!(
                "--socket",
                "/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678"
            ),
            &[],
            &["at most 107 bytes and this one has 110"],
        ),
        (
            with_run!("zk:port";),
            &[],
            &[
                "--connect",
                "`port` in `zk:port` is not a port; a port is a number from 1 to 65535",
            ],
        ),
        (
            with_run!("zk", "/l/";),
            &[],
            &["'/l/' for '--lock <PATH>': the path of a lock must not end with a slash"],
        ),
        (
            &["wait", "--timeout", "soon"],
            &[],
            &["--timeout", "such as 15s or 500ms"],
        ),
        (
            &["install", "/proc/version"],
            &[],
            &["cannot install into /proc/version: it is not a directory"],
        ),
    ]);
}

#[test]
fn a_value_that_is_none_of_a_few_is_refused_with_all_of_them() {
    for (words, flag, values) in [
        (&with_run!("--on-loss", "x")[..], "--on-loss", "kill, pause"),
        (with_run!("--on-suspect", "x"), "--on-suspect", "continue, pause"),
        (with_run!("--on-exit", "x"), "--on-exit", "release, hold"),
        (with_run!("--restart", "x"), "--restart", "never, always"),
        (with_run!("--access", "x"), "--access", "write, read"),
        (with_run!("--log-format", "x"), "--log-format", "text, json"),
        (&["status", "-o", "x"], "--output", "text, json"),
        (&["wait", "--for", "x"], "--for", "held, released, queued"),
        (
            &["probe", "--kind", "x", "--", "true"],
            "--kind",
            "liveness, readiness, startup, post-start, pre-stop",
        ),
    ] {
        refused(&[(
            words,
            &[],
            &["'x'", flag, &format!("[possible values: {values}]")],
        )]);
    }
}

#[test]
fn values_that_do_not_fit_together_are_refused_with_the_reason() {
    refused(&[
        (
            with_run!("--access", "read", "--max-holders", "2"),
            &[],
            &["--access and --max-holders 2 exclude each other"],
        ),
        (
            with_run!("--on-exit", "hold"),
            &[],
            &["--restart never", "add --restart always"],
        ),
        (
            with_run!("--stop-grace", "10s"),
            &[],
            &[
                "session timeout 15s is too short",
                "10s stop grace",
                "lower the stop grace",
            ],
        ),
        (
            with_run!("--lease-duration", "4s"),
            &[],
            &[
                "lease duration 4s is too short",
                "four fifths of it (3.2s)",
                "raise the lease duration",
            ],
        ),
        (
            with_run!("--lease-duration", "soon"),
            &[],
            &["soon", "or auto, or off"],
        ),
        (
            with_run!("--renew-interval", "0"),
            &[],
            &["must all be longer than zero"],
        ),
        (
            with_run!("zk", "/zookeeper/l";),
            &[],
            &["--lock /zookeeper/l is ZooKeeper's own"],
        ),
        (
            with_run!("zk/zookeeper", "/l";),
            &[],
            &["--lock /zookeeper/l is ZooKeeper's own"],
        ),
        (
            &["sidecar", "--connect", "zk", "--lock", "/l", "--stop-grace", "1h"],
            &[],
            &["session timeout 15s is too short"],
        ),
    ]);
}

/// One server of two wants TLS.
const TO_A_TLS_SERVER: &[&str] = with_run!("zk,tcp+tls://zk:2281";);

#[cfg(not(feature = "tls"))]
#[test]
fn tls_is_refused_by_a_binary_without_it() {
    refused(&[
        (
            TO_A_TLS_SERVER,
            &[],
            &["--connect tcp+tls://zk:2281 wants TLS", "--features tls"],
        ),
        (
            with_run!("--tls-ca", "ca.pem"),
            &[],
            &["unexpected argument '--tls-ca'"],
        ),
    ]);
}

#[cfg(feature = "tls")]
#[test]
fn tls_files_that_do_not_fit_are_refused() {
    refused(&[
        (
            with_run!("--tls-cert", "c"),
            &[],
            &["--tls-cert needs the key of the certificate"],
        ),
        (
            with_run!("--tls-ca", "/none"),
            &[],
            &["cannot read the authorities file /none: No such file"],
        ),
        (
            with_run!("--tls-ca", "/proc/version"),
            &[],
            &["/proc/version is not PEM"],
        ),
        (
            TO_A_TLS_SERVER,
            &[],
            &["--connect tcp+tls://zk:2281 wants TLS", "add --tls-ca"],
        ),
    ]);
}

#[test]
fn a_word_that_is_not_utf_8_is_refused_and_not_a_crash() {
    use std::os::unix::ffi::OsStrExt;
    let output = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(["run", "--connect", "zk", "--lock"])
        .arg(std::ffi::OsStr::from_bytes(b"/\xff"))
        .args(["--", "true"])
        .env_clear()
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1);
}

#[test]
fn help_and_version_go_to_stdout_and_are_no_errors() {
    let scratch = tempfile::tempdir().unwrap();
    for words in [
        &["--help"][..],
        &["run", "--help"],
        &["sidecar", "-h"],
        &["guard", "-h"],
        &["wait", "--help"],
    ] {
        let (code, out, err) = run(scratch.path(), words, &[]);
        assert_eq!((code, &*err), (0, ""), "{words:?}");
        assert!(out.contains("Usage: lockkeeper"), "{out}");
    }
    let (code, out, _) = run(scratch.path(), &["--version"], &[]);
    let build = format!("lockkeeper {} (no release", env!("CARGO_PKG_VERSION"));
    assert!(code == 0 && out.starts_with(&build), "{out}");
    let (code, out, _) = run(scratch.path(), &["-V"], &[]);
    assert_eq!(
        (code, out),
        (0, format!("lockkeeper {}\n", env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn install_copies_this_binary_and_the_copy_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("bin");
    let variables = [("LOCKKEEPER_INSTALL_DIR", directory.to_str().unwrap())];
    for _ in 0..2 {
        let (code, out, err) = run(scratch.path(), &["install"], &variables);
        assert_eq!((code, &*err), (0, ""));
        assert_eq!(out, format!("installed {}/lockkeeper\n", directory.display()));
    }
    let copy = Command::new(directory.join("lockkeeper"))
        .arg("--version")
        .output()
        .unwrap();
    assert!(copy.status.success());
}
