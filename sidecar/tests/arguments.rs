//! What the arguments become once they are checked. (What is refused is in `usage.rs`.)

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use lockkeeper_lock::{Identity, LeaseDuration, Timing};
use lockkeeper_sidecar::access::Access;
use lockkeeper_sidecar::args::{self, Command, OnExit, OnLoss, OnSuspect, Parsed, Restart};
use lockkeeper_sidecar::probes::{AppProbes, Handler};

fn parse(words: &[&str]) -> Command {
    match args::parse(words.iter().map(OsString::from)) {
        Ok(Parsed::Do(command)) => command,
        other => panic!("{words:?}: {other:?}"),
    }
}

fn run(options: &[&str]) -> args::RunSettings {
    let mut words = vec![
        "lockkeeper",
        "run",
        "--connect",
        "a:1,b/x",
        "--lock",
        "/locks/report",
    ];
    words.extend(options);
    words.extend(["--", "sh", "-c", "true", "--", "--lock"]);
    match parse(&words) {
        Command::Run(args) => args.check().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn sidecar(options: &[&str]) -> args::SidecarSettings {
    let mut words = vec!["lockkeeper", "sidecar", "--connect", "zk", "--lock", "/l"];
    words.extend(options);
    match parse(&words) {
        Command::Sidecar(args) => args.check().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_defaults_of_run_are_those_of_the_manual() {
    let settings = run(&[]);
    assert_eq!(settings.command, ["sh", "-c", "true", "--", "--lock"]);
    assert_eq!((settings.wait_timeout, settings.restart), (None, Restart::Never));
    assert_eq!((settings.socket, settings.admin_listen), (None, None));
    let lock = settings.lock;
    assert_eq!(lock.connect.to_string(), "a:1,b:2181/x");
    assert_eq!((&*lock.lock, lock.access), ("/locks/report", Access::Exclusive));
    assert_eq!(
        lock.timing,
        Timing {
            session_timeout: Duration::from_secs(15),
            tick_time: Duration::from_secs(2),
            renew_interval: Duration::from_millis(1_875),
            stop_grace: Duration::from_secs(3),
            lease_duration: LeaseDuration::Auto,
        }
    );
    assert_eq!(
        (lock.on_loss, lock.on_suspect, lock.on_exit),
        (OnLoss::Kill, OnSuspect::Continue, OnExit::Release)
    );
    assert_eq!((lock.lock_delay, lock.credentials), (Duration::ZERO, None));
}

#[test]
fn every_option_of_run_arrives() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "digest:me:secret\n").unwrap();
    let settings = run(&[
        "--session-timeout",
        "30s",
        "--stop-grace",
        "500ms",
        "--renew-interval",
        "3s",
        "--lease-duration",
        "9s",
        "--tick-time",
        "1s",
        "--max-holders",
        "5",
        "--wait-timeout",
        "0",
        "--on-loss",
        "pause",
        "--on-suspect",
        "pause",
        "--on-exit",
        "hold",
        "--restart",
        "always",
        "--lock-delay",
        "1m",
        "--socket",
        "/run/x.sock",
        "--admin-listen",
        "127.0.0.1:9",
        "--auth-file",
        file.path().to_str().unwrap(),
    ]);
    assert_eq!(
        (settings.wait_timeout, settings.restart),
        (Some(Duration::ZERO), Restart::Always)
    );
    assert_eq!(settings.socket.as_deref(), Some(Path::new("/run/x.sock")));
    assert_eq!(settings.admin_listen, Some("127.0.0.1:9".parse().unwrap()));
    let lock = settings.lock;
    assert_eq!(
        lock.timing,
        Timing {
            session_timeout: Duration::from_secs(30),
            tick_time: Duration::from_secs(1),
            renew_interval: Duration::from_secs(3),
            stop_grace: Duration::from_millis(500),
            lease_duration: LeaseDuration::Of(Duration::from_secs(9)),
        }
    );
    assert_eq!(
        (lock.access, lock.lock_delay),
        (Access::Semaphore(5), Duration::from_secs(60))
    );
    assert_eq!(
        (lock.on_loss, lock.on_suspect, lock.on_exit),
        (OnLoss::Pause, OnSuspect::Pause, OnExit::Hold)
    );
    assert_eq!(lock.credentials.unwrap().identities(), ["me:secret"]);
}

#[test]
fn a_renewal_comes_every_eighth_of_any_session_timeout() {
    let timing = run(&["--session-timeout", "40s"]).lock.timing;
    assert_eq!(timing.renew_interval, Duration::from_secs(5));
}

#[test]
fn the_shortest_lease_that_loses_no_patience_can_be_asked_for_and_none_at_all() {
    let timing = run(&["--lease-duration", "auto"]).lock.timing;
    assert_eq!(timing.lease(), Some(Duration::from_millis(8_500)));
    assert_eq!(run(&["--lease-duration", "off"]).lock.timing.lease(), None);
}

#[test]
fn both_sides_of_a_read_write_lock_can_be_asked_for() {
    assert_eq!(run(&["--access", "read"]).lock.access, Access::Read);
    assert_eq!(
        run(&["--access", "Write", "--max-holders", "1"]).lock.access,
        Access::Write
    );
}

#[test]
fn the_sidecar_listens_where_the_pod_expects_it() {
    let settings = sidecar(&[]);
    assert_eq!(settings.socket, Path::new("/run/lockkeeper/lock.sock"));
    assert_eq!(settings.admin_listen, "[::]:9808".parse().unwrap());
    assert_eq!(settings.lease_file, Path::new("/run/lockkeeper/lease.env"));
}

#[test]
fn a_pod_that_says_nothing_of_itself_has_no_identity_and_the_grace_of_kubernetes() {
    let settings = sidecar(&["--revision", ""]);
    assert_eq!(settings.lock.identity, Identity::default());
    assert_eq!(settings.lock.control, "/l-control");
    assert!(!settings.lock.provisioned && settings.lock.readers.is_empty());
    assert_eq!(settings.pod.app_probes, AppProbes::default());
    assert_eq!(settings.pod.termination_grace, Duration::from_secs(30));
}

#[test]
fn what_a_pod_says_of_itself_arrives() {
    let reader = "digest:operator:xQJmxLMiHGwaqBvst5y6rkB6HQs=";
    let readers = format!("{reader},digest:other:xQJmxLMiHGwaqBvst5y6rkB6HQs=");
    let settings = sidecar(&[
        "--control",
        "/c/l",
        "--provisioned",
        "--ensemble-id",
        "6f1d57a4-2c3b-4d5e-8f90-a1b2c3d4e5f6",
        "--ensemble-id-node",
        "/ensemble-id",
        "--reader",
        &readers,
        "--pod-namespace",
        "shop",
        "--pod-name",
        "report-1",
        "--pod-uid",
        "u",
        "--pod-node",
        "n1",
        "--revision",
        "6c9d",
        "--pod-ip",
        "fd00::7",
        "--app-probes",
        r#"{"liveness":{"tcpSocket":{"port":80}}}"#,
        "--termination-grace",
        "120",
    ]);
    let lock = settings.lock;
    assert_eq!((&*lock.control, lock.provisioned), ("/c/l", true));
    let ensemble = lock.ensemble.unwrap();
    assert_eq!(ensemble.node, "/ensemble-id");
    assert_eq!(ensemble.id.to_string(), "6f1d57a4-2c3b-4d5e-8f90-a1b2c3d4e5f6");
    assert_eq!(lock.readers.len(), 2);
    assert_eq!(lock.readers[0], reader.parse().unwrap());
    let pod = lock.identity.pod.unwrap();
    assert_eq!(
        [&*pod.namespace, &*pod.name, &*pod.uid, &*pod.node],
        ["shop", "report-1", "u", "n1"]
    );
    assert_eq!(lock.identity.revision.as_deref(), Some("6c9d"));
    let liveness = settings.pod.app_probes.liveness.unwrap();
    assert_eq!(
        liveness.handler,
        Handler::Tcp {
            host: "fd00::7".to_owned(),
            port: 80
        }
    );
    assert_eq!(settings.pod.termination_grace, Duration::from_secs(120));
    let minutes = sidecar(&["--termination-grace", "2m"]).pod.termination_grace;
    assert_eq!(minutes, Duration::from_secs(120));
}

#[test]
fn the_guard_takes_its_command_as_it_is() {
    match parse(&["lockkeeper", "guard", "--", "app", "--help", "--", "-x"]) {
        Command::Guard(args) => assert_eq!(args.command, ["app", "--help", "--", "-x"]),
        other => panic!("{other:?}"),
    }
}
