//! Probes and metrics over TCP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lockkeeper_daemon::exit::Exit;
use lockkeeper_lock::{BootInstant, LockState, LockStatus, LossReason, Timing};
use lockkeeper_sidecar::admin::AdminServer;
use lockkeeper_sidecar::link::protocol::Containment;
use lockkeeper_sidecar::metrics::{ReleaseOutcome, StopSignal};
use served::{Served, body, held, waiting};

#[path = "support/served.rs"]
mod served;

/// Status codes of startupz, readyz, queuedz and livez.
fn probes(served: &Served) -> [u16; 4] {
    ["/startupz", "/readyz", "/queuedz", "/livez"].map(|path| {
        let answer = served.probe(path);
        answer
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or_else(|| panic!("{answer}"))
    })
}

fn metric(served: &Served, name: &str) -> f64 {
    let answer = served.probe("/metrics");
    let value = body(&answer)
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value
        .unwrap_or_else(|| panic!("no {name} in {answer}"))
        .parse()
        .unwrap()
}

#[test]
fn probes_tell_the_truth_through_the_life_of_a_lock() {
    let scratch = tempfile::tempdir().unwrap();
    let mut served = Served::start(scratch.path());
    let minute = Duration::from_secs(60);
    assert_eq!(probes(&served), [503, 503, 200, 200]);
    assert_eq!(
        body(&served.probe("/readyz")),
        "the lock is not held: it is waiting in the queue, 2 before us\n"
    );
    served.publish(held(minute));
    assert_eq!(probes(&served), [200, 200, 200, 200]);
    assert_eq!(body(&served.probe("/readyz")), "the lock is held\n");
    served.metrics.acquired(Duration::ZERO);
    served.publish(LockStatus {
        state: LockState::Suspended,
        ..held(minute)
    });
    assert_eq!(
        probes(&served),
        [200, 200, 503, 200],
        "held, and the session is in doubt"
    );
    served.publish(LockStatus {
        state: LockState::Connecting,
        ..LockStatus::new()
    });
    assert_eq!(probes(&served), [200, 503, 503, 200]);
    served.publish(held(minute));
    drop(served.status.take());
    assert_eq!(
        probes(&served),
        [200, 503, 503, 503],
        "the task of the lock is gone"
    );
}

#[test]
fn every_metric_and_label_is_there_from_the_start() {
    let scratch = tempfile::tempdir().unwrap();
    let served = Served::start(scratch.path());
    let answer = served.probe("/metrics");
    assert!(
        answer.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
        "{answer}"
    );
    let mut names: Vec<_> = body(&answer)
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains("_bucket"))
        .map(|line| line.rsplit_once(' ').unwrap().0)
        .collect();
    names.sort_unstable();
    let version = format!(
        "lockkeeper_build_info{{version=\"{}\"}}",
        env!("CARGO_PKG_VERSION")
    );
    let mut expected = vec![
        "lockkeeper_acquisitions_total",
        &version,
        "lockkeeper_fencing_token",
        "lockkeeper_held",
        "lockkeeper_hold_duration_seconds_count",
        "lockkeeper_hold_duration_seconds_sum",
        "lockkeeper_kills_total{signal=\"SIGKILL\"}",
        "lockkeeper_kills_total{signal=\"SIGSTOP\"}",
        "lockkeeper_kills_total{signal=\"SIGTERM\"}",
        "lockkeeper_kept_for_survivors",
        "lockkeeper_lease_remaining_seconds",
        "lockkeeper_losses_total{reason=\"ContenderDeleted\"}",
        "lockkeeper_losses_total{reason=\"DeadlineReached\"}",
        "lockkeeper_losses_total{reason=\"Refused\"}",
        "lockkeeper_losses_total{reason=\"SessionEnded\"}",
        "lockkeeper_losses_total{reason=\"SessionExpired\"}",
        "lockkeeper_max_holders",
        "lockkeeper_patience_seconds",
        "lockkeeper_queue_position",
        "lockkeeper_releases_total{outcome=\"abandoned\"}",
        "lockkeeper_releases_total{outcome=\"confirmed\"}",
        "lockkeeper_renewal_interval_seconds",
        "lockkeeper_session_timeout_seconds",
        "lockkeeper_renewal_duration_seconds_count",
        "lockkeeper_renewal_duration_seconds_sum",
        "lockkeeper_session_moves_total",
        "lockkeeper_stop_grace_seconds",
        "lockkeeper_survivors_total",
        "lockkeeper_takeovers_total",
        "lockkeeper_wait_duration_seconds_count",
        "lockkeeper_wait_duration_seconds_sum",
    ];
    let states = LockState::ALL.map(|state| format!("lockkeeper_state{{state=\"{}\"}}", state.name()));
    expected.extend(states.iter().map(String::as_str));
    let containments = Containment::ALL.map(|by| format!("lockkeeper_containment{{by=\"{}\"}}", by.name()));
    expected.extend(containments.iter().map(String::as_str));
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert!(answer.ends_with("# EOF\n"), "{answer}");
}

#[test]
fn what_happens_is_counted() {
    let scratch = tempfile::tempdir().unwrap();
    let served = Served::start(scratch.path());
    let metrics = &served.metrics;
    metrics.acquired(Duration::from_millis(1_500));
    metrics.renewed(Duration::from_millis(4));
    metrics.session_moved();
    metrics.killed(StopSignal::Term);
    metrics.killed(StopSignal::Kill);
    metrics.lost(LossReason::DeadlineReached, Some(Duration::from_secs(7)));
    metrics.lost(LossReason::SessionExpired, None);
    metrics.released(ReleaseOutcome::Confirmed, Duration::from_secs(3));
    for (name, value) in [
        ("lockkeeper_acquisitions_total", 1.0),
        ("lockkeeper_wait_duration_seconds_sum", 1.5),
        ("lockkeeper_renewal_duration_seconds_bucket{le=\"0.005\"}", 1.0),
        ("lockkeeper_renewal_duration_seconds_bucket{le=\"0.0025\"}", 0.0),
        ("lockkeeper_session_moves_total", 1.0),
        ("lockkeeper_kills_total{signal=\"SIGTERM\"}", 1.0),
        ("lockkeeper_kills_total{signal=\"SIGSTOP\"}", 0.0),
        ("lockkeeper_losses_total{reason=\"DeadlineReached\"}", 1.0),
        ("lockkeeper_losses_total{reason=\"SessionExpired\"}", 1.0),
        ("lockkeeper_hold_duration_seconds_sum", 10.0),
        ("lockkeeper_hold_duration_seconds_count", 2.0),
        ("lockkeeper_releases_total{outcome=\"confirmed\"}", 1.0),
        ("lockkeeper_releases_total{outcome=\"abandoned\"}", 0.0),
    ] {
        assert_eq!(metric(&served, name), value, "{name}");
    }
}

#[test]
fn the_patience_follows_from_the_times_and_from_the_session_timeout_that_a_server_grants() {
    let scratch = tempfile::tempdir().unwrap();
    let served = Served::start(scratch.path());
    let granting = |session_timeout| {
        served.publish(LockStatus {
            session_timeout: Some(session_timeout),
            ..held(Duration::from_secs(60))
        });
        metric(&served, "lockkeeper_patience_seconds")
    };
    let of = |timing: Timing| timing.least_spare().unwrap().as_secs_f64();
    let timing = Timing::new(Duration::from_secs(15));
    assert_eq!(granting(timing.session_timeout), of(timing));
    let less = Duration::from_secs(12);
    assert_eq!(granting(less), of(Timing::new(less)));
    assert_eq!(metric(&served, "lockkeeper_stop_grace_seconds"), 3.0);
}

#[test]
fn gauges_are_computed_at_the_moment_of_the_scrape() {
    let scratch = tempfile::tempdir().unwrap();
    let served = Served::start(scratch.path());
    assert_eq!(metric(&served, "lockkeeper_queue_position"), 2.0);
    assert_eq!(metric(&served, "lockkeeper_state{state=\"Waiting\"}"), 1.0);
    assert_eq!(metric(&served, "lockkeeper_fencing_token"), 0.0);
    served.publish(held(Duration::from_millis(850)));
    assert!(metric(&served, "lockkeeper_lease_remaining_seconds") <= 0.5);
    // No status is published: the deadline passes by itself.
    served::eventually::until("it is not held", || metric(&served, "lockkeeper_held") == 0.0);
    assert_eq!(metric(&served, "lockkeeper_lease_remaining_seconds"), 0.0);
    assert_eq!(metric(&served, "lockkeeper_fencing_token"), 0.0);
    assert_eq!(metric(&served, "lockkeeper_state{state=\"Lost\"}"), 1.0);
    assert_eq!(metric(&served, "lockkeeper_state{state=\"Held\"}"), 0.0);

    served.publish(LockStatus {
        token: Some(lockkeeper_lock::FencingToken(i64::MAX)),
        ..held(Duration::from_secs(60))
    });
    assert!(
        served
            .probe("/metrics")
            .contains("lockkeeper_fencing_token 9223372036854775807\n")
    );
    served.publish(LockStatus {
        position: None,
        ..waiting(0)
    });
    assert!(
        !served.probe("/metrics").contains("\nlockkeeper_queue_position "),
        "not known is not 0"
    );
}

#[test]
fn wrong_questions_are_refused_and_head_is_answered_without_a_body() {
    let scratch = tempfile::tempdir().unwrap();
    let served = Served::start(scratch.path());
    let answer = served.probe("/healthz");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert!(
        answer.contains("there is /startupz, /readyz, /queuedz, /livez, /metrics and, with the right token, /app/TOKEN/KIND"),
        "{answer}"
    );
    let answer = served.probe_raw("POST /readyz HTTP/1.1\r\nhost: lock\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    let answer = served.probe_raw("HEAD /livez HTTP/1.1\r\nhost: lock\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && body(&answer).is_empty(),
        "{answer}"
    );
}

#[test]
fn a_probe_is_answered_within_the_kubelets_second_behind_300_half_requests() {
    // The best of five rounds: on a machine with much to do one may take long by itself.
    let mut rounds = (0..5).map(|_| time_behind_half_requests());
    assert!(
        rounds.any(|took| took < Duration::from_secs(1)),
        "not in any round"
    );
}

/// How long a probe takes behind 300 of them, which are all cut off.
fn time_behind_half_requests() -> Duration {
    let scratch = tempfile::tempdir().unwrap();
    let served = Served::start(scratch.path());
    // More than there are places for.
    let half: Vec<_> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(served.admin).unwrap();
            stream.set_read_timeout(Some(served::PATIENCE)).unwrap();
            stream.write_all(b"GET /livez HTTP/1.1\r\n").unwrap();
            stream
        })
        .collect();
    let begun = BootInstant::now();
    assert!(served.probe("/livez").starts_with("HTTP/1.1 200 "));
    let took = BootInstant::now() - begun;
    println!("it took {took:?}");
    // The server cuts all of them off; on TCP that may also show as a reset.
    for mut stream in half {
        let read = stream.read(&mut [0; 16]);
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
    took
}

#[test]
fn a_port_that_is_taken_is_said_in_a_sentence() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _context = runtime.enter();
    let first = AdminServer::bind("[::]:0".parse().unwrap()).unwrap();
    let address = first.local_address().unwrap();
    std::net::TcpStream::connect(("127.0.0.1", address.port())).expect("[::] includes IPv4");
    let failure = AdminServer::bind(address).unwrap_err();
    assert_eq!(failure.exit, Exit::Unavailable);
    assert!(
        failure.sentence.contains("choose another --admin-listen"),
        "{failure}"
    );
}
