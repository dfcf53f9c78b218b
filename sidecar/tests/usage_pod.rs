//! Bad input of a keeper in a pod: one sentence, exit code 64, nothing done.

use refused::{Case, refused};

#[path = "support/refused.rs"]
mod refused;

/// `sidecar` with good arguments and these.
macro_rules! with_sidecar {
    ($($word:literal),*) => {
        &["sidecar", "--connect", "zk:2181", "--lock", "/locks/report", $($word),*]
    };
}

const SIDECAR: &[&str] = with_sidecar!();

#[test]
fn a_control_node_that_cannot_be_one_is_refused() {
    refused(&[
        (
            with_sidecar!("--control", "control"),
            &[],
            &["--control", "must begin with a slash"],
        ),
        (
            with_sidecar!("--control", "/locks/report"),
            &[],
            &[
                "--control /locks/report is the lock itself or below it",
                "such as /locks/report-control",
            ],
        ),
        (
            with_sidecar!("--control", "/locks/report/control"),
            &[],
            &["only contenders may be"],
        ),
        (
            with_sidecar!("--control", "/zookeeper/c"),
            &[],
            &["--control /zookeeper/c is ZooKeeper's own"],
        ),
        (
            SIDECAR,
            &[("LOCKKEEPER_CONTROL", "/a//b")],
            &["two slashes in a row", "environment variable LOCKKEEPER_CONTROL"],
        ),
        (
            SIDECAR,
            &[("LOCKKEEPER_PROVISIONED", "perhaps")],
            &["--provisioned", "environment variable LOCKKEEPER_PROVISIONED"],
        ),
    ]);
}

#[test]
fn a_reader_that_may_be_a_password_is_refused_and_not_shown() {
    const RIGHT: &[&str] = &["--reader must be digest:USER:HASH", "28 characters"];
    for wrong in [
        "secret",
        "operator:secret",
        "digest:operator:secret",
        "digest:operator:xQJmxLMiHGwaqBvst5y6rkB6HQs=,secret",
        "",
    ] {
        let words = [SIDECAR, &["--reader", wrong]].concat();
        refused(&[
            (&words, &[], RIGHT),
            (SIDECAR, &[("LOCKKEEPER_READER", wrong)], RIGHT),
        ]);
        let scratch = tempfile::tempdir().unwrap();
        let (_, _, err) = refused::run(scratch.path(), &words, &[]);
        assert!(!err.contains("secret"), "{err}");
    }
}

#[test]
fn the_identity_of_a_pod_comes_whole_or_not_at_all() {
    const NAMESPACE: (&str, &str) = ("LOCKKEEPER_POD_NAMESPACE", "shop");
    const NAME: (&str, &str) = ("LOCKKEEPER_POD_NAME", "report-1");
    const UID: (&str, &str) = ("LOCKKEEPER_POD_UID", "u");
    const NODE: (&str, &str) = ("LOCKKEEPER_POD_NODE", "n1");
    let cases: [Case<'_>; 4] = [
        (
            SIDECAR,
            &[NAMESPACE, NAME, UID],
            &["incomplete: --pod-node is missing or empty"],
        ),
        (
            SIDECAR,
            &[NODE],
            &["--pod-namespace, --pod-name, --pod-uid are missing or empty"],
        ),
        (
            SIDECAR,
            &[NAMESPACE, NAME, UID, ("LOCKKEEPER_POD_NODE", "")],
            &["--pod-node is missing or empty"],
        ),
        (
            SIDECAR,
            &[("LOCKKEEPER_REVISION", "6c9d")],
            &["or none of them, and no --revision"],
        ),
    ];
    refused(&cases);
}

#[test]
fn probes_that_cannot_be_asked_are_refused() {
    refused(&[
        (
            SIDECAR,
            &[("LOCKKEEPER_APP_PROBES", "{")],
            &["--app-probes is not the JSON of probes", "as in {\"liveness\""],
        ),
        (
            with_sidecar!("--app-probes", r#"{"liveness":{"tcpSocket":{"port":"web"}}}"#),
            &[],
            &["--app-probes has the port \"web\"", "for liveness"],
        ),
        (
            with_sidecar!(
                "--container",
                "app",
                "--app-probes",
                r#"{"liveness":{"tcpSocket":{"port":80}}}"#
            ),
            &[],
            &["keeps its own probes: leave one of them out"],
        ),
        (
            with_sidecar!("--pod-ip", "here"),
            &[],
            &["'here' for '--pod-ip <IP>'"],
        ),
        (
            SIDECAR,
            &[("LOCKKEEPER_TERMINATION_GRACE", "soon")],
            &[
                "--termination-grace",
                "environment variable LOCKKEEPER_TERMINATION_GRACE",
            ],
        ),
        (
            &["probe", "--kind", "pre-stop"],
            &[],
            &["there is no command for preStop", "after --"],
        ),
        (&["probe", "--", "true"], &[], &["--kind <KIND>"]),
    ]);
}
