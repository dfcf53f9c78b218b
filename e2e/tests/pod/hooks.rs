//! Probes and hooks that are commands, in a pod.

use std::fs;
use std::net::TcpListener;

use lockkeeper_product::pod::{BOUND, Pod};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble};

use crate::judging::is_root;

#[test]
fn a_standby_is_healthy_whatever_its_probes_would_say_and_its_hook_waits_for_the_start() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let lock = "/locks/pod";
    // The port has no listener, and the startup budget is ten minutes.
    let probes =
        r#"{"liveness":{"tcpSocket":{"port":9}},"startup":{"tcpSocket":{"port":9},"failureThreshold":60}}"#;
    let first = Pod::start_with(&ensemble, "first", lock, &["--app-probes", probes], &[]);
    let token = first.wait_until_it_runs(0);
    let second = Pod::start_with(&ensemble, "second", lock, &["--app-probes", probes], &[]);
    assert_eq!(
        second.lockkeeper(&["wait", "--for", "queued", "--timeout", "30s"]),
        Some(0)
    );

    let hooked = second.volume.join("hooked");
    let hook = format!("echo $LOCKKEEPER_FENCING_TOKEN >{}", hooked.display());
    let post_start = ["--kind", "post-start", "--", "sh", "-c", &hook];
    assert_eq!(second.executed("probe", &post_start), Some(0));
    assert!(!hooked.exists());
    let failing = ["probe", "--kind", "liveness", "--", "false"];
    assert_eq!(second.lockkeeper(&failing), Some(0));
    let (status, why) = second.probe("/app/liveness").unwrap();
    assert_eq!(status, 200);
    assert!(why.contains("does not run under the lock"), "{why}");
    // If the application runs already, the guard executes the hook at once.
    let failing = ["--kind", "post-start", "--", "false"];
    assert_eq!(first.executed("probe", &failing), Some(1));
    // The other pod runs within its startup budget: it is live, and ready only once it has started.
    assert_eq!(first.probe("/app/liveness").unwrap().0, 200);
    let ready = ["probe", "--kind", "readiness", "--", "true"];
    assert_eq!(first.lockkeeper(&ready), Some(69));

    assert_eq!(first.lockkeeper(&["release"]), Some(0));
    let next = second.wait_until_it_runs(token);
    let written = || {
        fs::read_to_string(&hooked)
            .ok()
            .filter(|text| text.ends_with('\n'))
    };
    let written = wait_for(BOUND, written).unwrap_or_else(|| panic!("{}", second.said()));
    assert_eq!(written.trim(), next.to_string());
    assert_eq!(first.lockkeeper(&ready), Some(0), "a standby again");
}

#[test]
fn an_http_hook_is_sent_after_the_start_and_ends_the_container_if_nobody_answers() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let mut pod = Pod::empty(&ensemble, "first");
    // The test answers the hook itself, and lets the application begin before it decides.
    let listener = pod
        .host
        .run(|| TcpListener::bind("127.0.0.1:0"))
        .unwrap()
        .unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let hook = format!(r#"{{"postStart":{{"httpGet":{{"port":{port},"host":"127.0.0.1"}}}}}}"#);
    pod.start_sidecar(&ensemble, "/locks/pod", &["--app-probes", &hook]);

    pod.start_container("first", &[]);
    let asked = wait_for(BOUND, || listener.accept().ok()).unwrap_or_else(|| panic!("{}", pod.said()));
    let token = pod.wait_until_it_runs(0);
    drop(asked);
    assert_eq!(pod.container_ends(), Some(1), "{}", pod.said());
    pod.says("The postStart hook has failed");
    assert_eq!(pod.lease_file(), None);

    // The kubelet restarts the container, and the pod gets the lock anew.
    pod.start_container("first", &[]);
    let asked = wait_for(BOUND, || listener.accept().ok()).unwrap_or_else(|| panic!("{}", pod.said()));
    assert!(pod.wait_until_it_runs(token) > token);
    drop(asked);
}
