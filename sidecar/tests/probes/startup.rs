//! The startup budget is counted from each start of the application.

use std::time::Duration;

use lockkeeper_lock::BootInstant;
use lockkeeper_sidecar::client;
use lockkeeper_sidecar::probes::Kind;
use lockkeeper_sidecar::probes::health::{Running, Verdict};

use super::application::Application;
use super::served::Served;
use super::{ask, run, serve, status};

/// A budget of 10 s for what may be started.
fn starting(directory: &std::path::Path, application: &Application) -> Served {
    let get = |path| {
        format!(
            r#""httpGet":{{"port":{},"path":"{path}"}},"timeoutSeconds":20"#,
            application.port
        )
    };
    serve(
        directory,
        &format!(
            r#"{{"liveness":{{{}}},"readiness":{{{}}},"startup":{{{},"periodSeconds":5,"failureThreshold":2}}}}"#,
            get("/live"),
            get("/ready"),
            get("/started")
        ),
    )
}

fn run_since(served: &Served, start: u64, seconds: u64) {
    let since = BootInstant::now().saturating_sub(Duration::from_secs(seconds));
    served.app.send_replace(Some(Running { start, since }));
}

#[test]
fn an_application_that_is_starting_is_alive_and_not_ready() {
    let scratch = tempfile::tempdir().unwrap();
    let application = Application::start("503 Not yet");
    let served = starting(scratch.path(), &application);
    run(&served, 1);
    assert_eq!(status(&served, "startup"), 200);
    assert_eq!(status(&served, "liveness"), 200);
    assert_eq!(status(&served, "readiness"), 503);
    assert_eq!(
        application.asked_for("/live") + application.asked_for("/ready"),
        0
    );

    application.answers("200 OK");
    assert_eq!(status(&served, "readiness"), 200);
    let checks = application.asked_for("/started");
    application.answers("500 Broken");
    for kind in ["liveness", "readiness"] {
        assert_eq!(status(&served, kind), 503, "{kind}: it had started");
    }
    assert_eq!(status(&served, "startup"), 200);
    assert_eq!(
        application.asked_for("/started"),
        checks,
        "asked once more than enough"
    );
}

#[test]
fn an_application_that_has_not_started_within_its_budget_is_to_be_restarted() {
    let scratch = tempfile::tempdir().unwrap();
    let application = Application::start("503 Not yet");
    let served = starting(scratch.path(), &application);
    run_since(&served, 1, 5);
    assert_eq!(status(&served, "liveness"), 200);
    run_since(&served, 1, 11);
    for kind in ["liveness", "readiness", "startup"] {
        let (status, why) = ask(&served, kind);
        assert_eq!(status, 503, "{kind}");
        assert!(why.contains("not started within 10s"), "{why}");
    }
    // Better late than restarted.
    application.answers("200 OK");
    assert_eq!(status(&served, "liveness"), 200);
}

#[test]
fn each_start_has_a_budget_of_its_own() {
    let scratch = tempfile::tempdir().unwrap();
    let application = Application::start("200 OK");
    let served = starting(scratch.path(), &application);
    run_since(&served, 1, 3600);
    assert_eq!(status(&served, "liveness"), 200);
    served.app.send_replace(None);
    application.answers("503 Not yet");
    run(&served, 2);
    assert_eq!(status(&served, "liveness"), 200);
    assert_eq!(status(&served, "readiness"), 503);
    run_since(&served, 2, 11);
    assert_eq!(status(&served, "liveness"), 503);
}

#[test]
fn the_initial_delay_belongs_to_the_budget_and_nothing_is_asked_in_it() {
    let scratch = tempfile::tempdir().unwrap();
    let application = Application::start("200 OK");
    let served = serve(
        scratch.path(),
        &format!(
            r#"{{"startup":{{"httpGet":{{"port":{}}},"initialDelaySeconds":100,"failureThreshold":1,"timeoutSeconds":20}}}}"#,
            application.port
        ),
    );
    run_since(&served, 1, 50);
    assert_eq!(status(&served, "liveness"), 200, "also without a liveness probe");
    assert_eq!(application.asked().len(), 0);
    run_since(&served, 1, 101);
    assert_eq!(status(&served, "liveness"), 200);
    assert_eq!(application.asked().len(), 1);
}

#[test]
fn a_startup_check_that_is_a_command_is_ordered_from_whoever_can_execute_it() {
    let scratch = tempfile::tempdir().unwrap();
    let served = serve(
        scratch.path(),
        r#"{"startup":{"exec":{"command":["is-up","-q"]},"failureThreshold":1}}"#,
    );
    let order = |kind| client::probe(&served.socket, kind).unwrap();
    for kind in Kind::ALL {
        assert_eq!(order(kind).verdict, Verdict::Pass, "{kind:?} in standby");
    }
    run_since(&served, 3, 5);
    assert_eq!(order(Kind::Startup).verdict, Verdict::Pass);
    assert_eq!(status(&served, "liveness"), 200, "it cannot be known");
    for (seconds, is_over) in [(5, false), (11, true)] {
        run_since(&served, 3, seconds);
        for kind in [Kind::Liveness, Kind::Readiness] {
            let order = order(kind);
            let startup = order.startup.unwrap();
            assert_eq!(order.verdict, Verdict::Run);
            assert_eq!(startup.command, ["is-up", "-q"]);
            assert_eq!((startup.start, startup.is_over), (3, is_over));
        }
    }
    client::tell_started(&served.socket, 3).unwrap();
    let order = order(Kind::Liveness);
    assert_eq!((order.verdict, order.startup), (Verdict::Run, None));
}

#[test]
fn hooks_that_are_commands_are_executed_only_while_the_application_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let served = serve(scratch.path(), "{}");
    run(&served, 1);
    for kind in [Kind::PostStart, Kind::PreStop, Kind::Startup] {
        assert_eq!(client::probe(&served.socket, kind).unwrap().verdict, Verdict::Run);
    }
}
