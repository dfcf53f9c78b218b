//! Session timeouts that the servers grant and that differ from the requested one.

use std::path::Path;
use std::time::Duration;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_product::worker::{Options, Worker, all_records};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble, faults};

use crate::harness::{BOUND, Run, client, contenders, wait_for_contenders};

/// A server that grants 4 s at most, with a tick of 1 s.
fn strict() -> Ensemble {
    let config = Config {
        servers: 1,
        extra: vec![("maxSessionTimeout".to_owned(), "4000".to_owned())],
        ..Config::default()
    };
    Ensemble::start(config).expect("the server starts")
}

#[test]
fn a_session_timeout_that_the_server_shortens_is_used_as_granted_and_refused_when_nothing_fits_in() {
    let ensemble = strict();
    let path = ensemble.directory().join("granted.sock");
    let socket = path.to_str().unwrap();
    let options = ["--session-timeout", "15s", "--socket", socket];
    let command = ["sh", "-c", "echo ran; exec sleep 600"];
    let run = Run::start(&ensemble, "granted", "/granted", &options, &command);
    assert_eq!(run.first_line(), "ran");
    let (code, said) = client(&["status", "--socket", socket, "--output", "json"]);
    assert_eq!(code, 0, "{said}");
    let status: serde_json::Value = serde_json::from_str(&said).unwrap();
    // 1 % of 4 s and 200 ms are the margin.
    let remaining = status["remainingMillis"].as_u64().unwrap();
    assert!(remaining <= 4_000 - 240, "{said}");

    let options = ["--session-timeout", "15s", "--stop-grace", "3s"];
    let mut refused = Run::start(&ensemble, "refused", "/refused", &options, &["echo", "ran"]);
    assert_eq!(
        (refused.code(), refused.stdout().as_str()),
        (77, ""),
        "{}",
        refused.stderr()
    );
    let sentences = refused.sentences();
    assert_eq!(sentences.len(), 1, "{}", refused.stderr());
    assert!(
        sentences[0].contains("grant a session timeout of 4s"),
        "{sentences:?}"
    );
    assert_eq!(contenders(&ensemble, "/refused"), None, "it queued all the same");
}

#[test]
fn a_run_that_started_before_its_servers_ends_with_64_once_they_tell_a_longer_tick_than_stated() {
    let ensemble = Ensemble::start(Config {
        servers: 1,
        ..Config::default()
    });
    let ensemble = ensemble.expect("the server starts");
    ensemble.kill(0);
    let options = ["--tick-time", "500ms", "--session-timeout", "20s"];
    let mut run = Run::start(&ensemble, "late-tick", "/late-tick", &options, &["sleep", "600"]);
    let waits = wait_for(BOUND, || {
        run.stderr().contains("does not tell its tickTime").then_some(())
    });
    waits.unwrap_or_else(|| panic!("{}", run.stderr()));
    ensemble.restart(0).unwrap();
    assert_eq!(run.code(), 64, "{}", run.stderr());
    let sentences = run.sentences();
    let last = sentences.last().expect("a sentence");
    assert!(last.contains("set --tick-time 1000ms"), "{}", run.stderr());
    assert_eq!(
        contenders(&ensemble, "/late-tick").unwrap_or_default(),
        [] as [&str; 0]
    );
}

/// A lease that is computed with the shorter tick may outlast the session.
#[test]
fn a_holder_whose_server_comes_back_with_a_longer_tick_than_stated_is_stopped_and_ends_with_64() {
    let ensemble = Ensemble::start(Config {
        servers: 1,
        ..Config::default()
    });
    let ensemble = ensemble.expect("the server starts");
    let lock = "/longer-tick";
    // Much longer than the restart takes, so the lock is not lost.
    let options = ["--session-timeout", "20s"];
    let command = ["sh", "-c", "echo $$; exec sleep 600"];
    let mut run = Run::start(&ensemble, "longer-tick", lock, &options, &command);
    let application = run.first_line();
    ensemble.restart_with(0, &[("tickTime", "2000")]).unwrap();
    assert_eq!(run.code(), 64, "{}", run.stderr());
    let sentences = run.sentences();
    let last = sentences.last().expect("a sentence");
    assert!(last.contains("set --tick-time 2000ms"), "{}", run.stderr());
    assert!(!Path::new(&format!("/proc/{application}")).exists());
    assert_eq!(
        contenders(&ensemble, lock).unwrap_or_default(),
        [] as [&str; 0],
        "the lock is released"
    );
}

/// Milliseconds until the deadline, as the keeper reports them.
fn remaining(socket: &str) -> Option<u64> {
    let (_, said) = client(&["status", "--socket", socket, "--output", "json"]);
    let status: serde_json::Value = serde_json::from_str(&said).ok()?;
    status["remainingMillis"].as_u64()
}

#[test]
fn a_holder_whose_servers_come_to_grant_less_time_is_stopped_by_the_earlier_deadline() {
    let config = Config {
        extra: vec![("maxSessionTimeout".to_owned(), "60000".to_owned())],
        ..Config::default()
    };
    let ensemble = Ensemble::start(config).expect("the servers start");
    let lock = "/granted-less";
    let path = ensemble.directory().join("granted-less.sock");
    let socket = path.to_str().unwrap();
    let options = |name| Options::new(&ensemble, name, lock).unwrap();
    let long = Options {
        // Much longer than the restarts take.
        session_timeout: Duration::from_secs(60),
        ..options("holder").with_run(&["--socket", socket])
    };
    let holder = Worker::start(&ensemble, long).unwrap();
    let token = holder.wait_until_it_runs(0, BOUND).unwrap();
    let waiter = Worker::start(&ensemble, options("waiter")).unwrap();
    wait_for_contenders(&ensemble, lock, 2);
    assert!(remaining(socket) > Some(20_000), "{}", holder.log());

    // As an administrator does: one server after the other, the leader last.
    let (leader, followers) = ensemble.wait_for_roles().unwrap();
    for server in followers.into_iter().chain([leader]) {
        ensemble
            .restart_with(server, &[("maxSessionTimeout", "4000")])
            .unwrap();
        ensemble.wait_for_quorum().unwrap();
    }
    wait_for_contenders(&ensemble, lock, 2);
    // 1 % of 4 s and 200 ms are the margin.
    wait_for(BOUND, || (remaining(socket)? <= 4_000 - 240).then_some(()))
        .unwrap_or_else(|| panic!("{}", holder.log()));

    // From now on only the guard can stop it, by its last deadline.
    faults::stop(holder.keeper_pid().unwrap()).unwrap();
    waiter.wait_until_it_runs(token, BOUND).unwrap();
    // The first one records often enough to show whether both ran together.
    let begun = waiter.last_stamp(waiter.records().unwrap()[0].token).unwrap();
    let is_past = || (lockkeeper_lock::BootInstant::now() > begun + Duration::from_secs(2)).then_some(());
    wait_for(BOUND, is_past).unwrap();
    let report = check(&all_records([&holder, &waiter]).unwrap(), Rule::Exclusive);
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.holds.len(), 2, "{report}");
}
