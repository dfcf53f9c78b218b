//! Variables and secret files: bad ones are refused with their name, and the command line goes first.

use refused::{refused, with_run};

#[path = "support/refused.rs"]
mod refused;

#[test]
fn a_secret_that_cannot_be_read_is_named_and_never_shown() {
    refused(&[
        (
            with_run!("--auth-file", "/none"),
            &[],
            &["cannot read the credentials file /none: No such file"],
        ),
        (
            with_run!("--auth-file", "/proc/self"),
            &[],
            &["/proc/self: Is a directory"],
        ),
        (
            with_run!(),
            &[("LOCKKEEPER_AUTH_FILE", "/proc/sys/kernel/ostype")],
            &["the credentials file /proc/sys/kernel/ostype must hold USER:PASSWORD or digest:USER:PASSWORD"],
        ),
    ]);
}

#[test]
fn a_wrong_value_from_the_environment_is_traced_to_its_variable() {
    refused(&[
        (
            with_run!(),
            &[("LOCKKEEPER_STOP_GRACE", "5")],
            &[
                "'5' for '--stop-grace",
                "(from the environment variable LOCKKEEPER_STOP_GRACE)",
            ],
        ),
        (
            &["run", "--", "--connect", "true"],
            &[("LOCKKEEPER_CONNECT", "zk:0"), ("LOCKKEEPER_LOCK", "/l")],
            &["(from the environment variable LOCKKEEPER_CONNECT)"],
        ),
        (
            &["run", "--", "true"],
            &[("LOCKKEEPER_CONNECT", "zk"), ("LOCKKEEPER_LOCK", "")],
            &["--lock", "(from the environment variable LOCKKEEPER_LOCK)"],
        ),
        (
            with_run!(),
            &[("LOCKKEEPER_ON_LOSS", "x")],
            &["environment variable LOCKKEEPER_ON_LOSS"],
        ),
        (
            with_run!(),
            &[("LOCKKEEPER_RUN_SOCKET", "/")],
            &["environment variable LOCKKEEPER_RUN_SOCKET"],
        ),
        (
            &["wait"],
            &[("LOCKKEEPER_WAIT_FOR", "x")],
            &["environment variable LOCKKEEPER_WAIT_FOR"],
        ),
    ]);
}

#[test]
fn the_environment_is_read_and_the_command_line_comes_before_it() {
    let environment = &[
        ("LOCKKEEPER_CONNECT", "zk/zookeeper"),
        ("LOCKKEEPER_LOCK", "/x"),
        ("LOCKKEEPER_MAX_HOLDERS", "3"),
        ("LOCKKEEPER_ACCESS", "Write"),
    ];
    refused(&[
        (
            &["run", "--", "true"],
            environment,
            &["--access and --max-holders 3 exclude each other"],
        ),
        (
            &["run", "--max-holders", "1", "--", "true"],
            environment,
            &["--lock /zookeeper/x"],
        ),
    ]);
}

#[test]
fn capitals_as_in_the_kubernetes_api_are_accepted() {
    // The last one is wrong on purpose: a complaint about it means that the others were accepted.
    refused(&[(
        with_run!(
            "--on-loss",
            "Pause",
            "--on-suspect",
            "Pause",
            "--on-exit",
            "Hold",
            "--restart",
            "Always",
            "--access",
            "READ",
            "--log-format",
            "JSON",
            "--max-holders",
            "2"
        ),
        &[],
        &["--access and --max-holders 2 exclude each other"],
    )]);
}
