//! How the application is asked.

use std::net::TcpListener;

use super::application::Application;
use super::{TOKEN, ask, run, serve, status};

#[test]
fn nothing_is_asked_while_the_application_does_not_run() {
    let scratch = tempfile::tempdir().unwrap();
    let application = Application::start("500 No");
    let get = format!(
        r#"{{"httpGet":{{"port":{}}},"timeoutSeconds":20}}"#,
        application.port
    );
    let served = serve(
        scratch.path(),
        &format!(
            r#"{{"liveness":{get},"readiness":{get},"startup":{get},"postStart":{get},"preStop":{get}}}"#
        ),
    );
    let kinds = ["liveness", "readiness", "startup", "postStart", "preStop"];
    for kind in kinds {
        let (status, why) = ask(&served, kind);
        assert_eq!(status, 200, "{kind}");
        assert!(why.contains("does not run under the lock"), "{why}");
    }
    assert!(application.asked().is_empty());

    run(&served, 1);
    assert_eq!(status(&served, "readiness"), 503);
    served.app.send_replace(None);
    assert_eq!(
        kinds.map(|kind| status(&served, kind)),
        [200; 5],
        "paused, or ended"
    );
}

#[test]
fn the_status_of_http_is_judged_as_a_kubelet_judges_it() {
    let scratch = tempfile::tempdir().unwrap();
    let application = Application::start("200 OK");
    let served = serve(
        scratch.path(),
        &format!(
            r#"{{"liveness":{{"httpGet":{{"port":{}}},"timeoutSeconds":20}}}}"#,
            application.port
        ),
    );
    run(&served, 1);
    for (answer, expected) in [
        ("200 OK", 200),
        ("204 Nothing", 200),
        ("304 Same", 200),
        ("399 What", 200),
        ("400 No", 503),
        ("404 Gone", 503),
        ("503 Busy", 503),
    ] {
        application.answers(answer);
        let (status, why) = ask(&served, "liveness");
        assert_eq!(status, expected, "{answer}: {why}");
    }
    assert!(ask(&served, "liveness").1.contains("answered 503"));
}

#[test]
fn path_query_and_headers_arrive_as_they_were_written() {
    let scratch = tempfile::tempdir().unwrap();
    let application = Application::start("200 OK");
    let served = serve(
        scratch.path(),
        &format!(
            r#"{{"liveness":{{"httpGet":{{"port":{},"path":"/health?deep=1","httpHeaders":[
                {{"name":"X-One","value":"a"}},{{"name":"Host","value":"app.example"}},{{"name":"X-One","value":"b"}}]}},"timeoutSeconds":20}}}}"#,
            application.port
        ),
    );
    run(&served, 1);
    assert_eq!(status(&served, "liveness"), 200);
    let request = application.asked().remove(0).to_lowercase();
    assert!(
        request.starts_with("get /health?deep=1 http/1.1\r\n"),
        "{request}"
    );
    for line in [
        "x-one: a\r\n",
        "x-one: b\r\n",
        "host: app.example\r\n",
        "user-agent: kube-probe/",
        "accept: */*\r\n",
    ] {
        assert_eq!(request.matches(line).count(), 1, "{line} in {request}");
    }
}

#[test]
fn redirects_are_followed_on_the_same_host_only() {
    let scratch = tempfile::tempdir().unwrap();
    let application = Application::start("200 OK");
    let other = Application::start("500 No");
    let served = serve(
        scratch.path(),
        &format!(
            r#"{{"liveness":{{"httpGet":{{"port":{},"path":"/a/b"}},"timeoutSeconds":20}}}}"#,
            application.port
        ),
    );
    run(&served, 1);
    // Another port is the same host.
    application.answers(&format!(
        "302 Found\r\nlocation: http://127.0.0.1:{}/x",
        other.port
    ));
    assert_eq!(status(&served, "liveness"), 503);
    assert_eq!(other.asked_for("/x"), 1);
    // Another host is its own affair.
    application.answers(&format!(
        "302 Found\r\nlocation: http://localhost:{}/y",
        other.port
    ));
    assert_eq!(status(&served, "liveness"), 200);
    assert_eq!(other.asked_for("/y"), 0);
    // Round and round.
    application.answers("307 Again\r\nlocation: c");
    let (status, why) = ask(&served, "liveness");
    assert_eq!(status, 503);
    assert!(why.contains("redirected more than 10 times"), "{why}");
    assert!(application.asked_for("/a/c") == 10, "{:?}", application.asked());
}

#[test]
fn a_port_that_accepts_connections_is_enough_for_tcp() {
    let scratch = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = serve(
        scratch.path(),
        &format!(r#"{{"readiness":{{"tcpSocket":{{"port":{port}}},"timeoutSeconds":20}}}}"#),
    );
    run(&served, 1);
    assert_eq!(status(&served, "readiness"), 200);
    drop(listener);
    let (status, why) = ask(&served, "readiness");
    assert_eq!(status, 503);
    assert!(
        why.contains(&format!("cannot connect to 127.0.0.1:{port}")),
        "{why}"
    );
}

#[test]
fn an_application_that_does_not_answer_in_time_has_failed() {
    let scratch = tempfile::tempdir().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let served = serve(
        scratch.path(),
        &format!(
            r#"{{"liveness":{{"httpGet":{{"port":{port}}}}},"readiness":{{"grpc":{{"port":{port}}}}}}}"#
        ),
    );
    run(&served, 1);
    for kind in ["liveness", "readiness"] {
        let (status, why) = ask(&served, kind);
        assert_eq!((status, why.as_str()), (503, "no answer within 1s\n"), "{kind}");
    }
}

#[test]
fn an_application_that_is_stopped_in_the_middle_of_an_answer_is_not_restarted_for_it() {
    let scratch = tempfile::tempdir().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let served = serve(
        scratch.path(),
        &format!(r#"{{"liveness":{{"httpGet":{{"port":{port}}},"timeoutSeconds":60}}}}"#),
    );
    run(&served, 1);
    std::thread::scope(|scope| {
        let probe = scope.spawn(|| ask(&served, "liveness"));
        let (asked, _) = silent.accept().unwrap();
        served.app.send_replace(None);
        // It is killed: its connections break.
        drop(asked);
        assert_eq!(probe.join().unwrap().0, 200);
    });
}

#[test]
fn a_kind_that_was_not_given_is_not_answered() {
    let scratch = tempfile::tempdir().unwrap();
    let served = serve(scratch.path(), "{}");
    let (status, why) = ask(&served, "liveness");
    assert_eq!(status, 404);
    assert!(why.contains("--app-probes has no liveness"), "{why}");
    let (status, why) = ask(&served, "health");
    assert_eq!(status, 404);
    assert!(
        why.contains("liveness, readiness, startup, postStart, preStop"),
        "{why}"
    );
    let answer = served.probe_raw(&format!(
        "POST /app/{TOKEN}/liveness HTTP/1.1\r\nhost: lock\r\n\r\n"
    ));
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    assert!(!answer.contains(TOKEN), "{answer}");
}
