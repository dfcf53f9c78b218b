//! Only the kubelet can make the keeper ask the application, or send its hooks.

use lockkeeper_sidecar::probes::AppProbes;

use super::application::Application;
use super::served::{PATIENCE, Served, body};
use super::{TOKEN, ask, ask_at, run, serve};

const KINDS: [&str; 5] = ["liveness", "readiness", "startup", "postStart", "preStop"];

/// All kinds, for one application.
fn all(application: &Application) -> String {
    let get = |path| {
        format!(
            r#"{{"httpGet":{{"port":{},"path":"/{path}"}},"timeoutSeconds":20}}"#,
            application.port
        )
    };
    let kinds = KINDS.map(|kind| format!(r#""{kind}":{}"#, get(kind)));
    format!("{{{}}}", kinds.join(","))
}

#[test]
fn who_does_not_know_the_token_sends_no_hook_and_asks_nothing_of_the_application() {
    let scratch = tempfile::tempdir().unwrap();
    let application = Application::start("200 OK");
    let served = serve(scratch.path(), &all(&application));
    run(&served, 1);
    let (nearly, longer) = (&TOKEN[1..], format!("{TOKEN}A"));
    let other_case = TOKEN.to_lowercase();
    let said = ["", "liveness", nearly, &longer, &other_case, "%2e%2e", "app"];
    for kind in KINDS {
        let mut paths = said.map(|said| format!("/app/{said}/{kind}")).to_vec();
        paths.extend([
            format!("/app/{kind}"),
            format!("/app//{TOKEN}/{kind}"),
            format!("/app/app/{TOKEN}/{kind}"),
            format!("/app/{kind}?token={TOKEN}"),
            format!("/app/{kind}/{TOKEN}"),
            format!("/app/{TOKEN}%2F{kind}"),
            format!("/{TOKEN}/{kind}"),
            // What the socket answers is not on the port.
            format!("/v1/app/{kind}"),
            format!("/v1/app/{TOKEN}/{kind}"),
        ]);
        for path in paths {
            let (status, why) = ask_at(&served, &path);
            assert_eq!(status, 404, "{path}: {why}");
        }
    }
    assert_eq!(application.asked(), [""; 0]);

    assert_eq!(ask(&served, "preStop").0, 200);
    assert_eq!(application.asked_for("/preStop"), 1);
}

#[test]
fn a_wrong_token_is_answered_in_the_same_way_whatever_hooks_there_are() {
    let scratch = tempfile::tempdir().unwrap();
    let application = Application::start("200 OK");
    let folder = |name: &str| {
        let folder = scratch.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        folder
    };
    let with = serve(&folder("with"), &all(&application));
    let without = serve(&folder("without"), "{}");
    run(&with, 1);
    let wrong = "x".repeat(TOKEN.len());
    let answers: Vec<_> = [&with, &without]
        .into_iter()
        .flat_map(|served| {
            let requests = KINDS.into_iter().chain(["nothing", ""]).flat_map(|kind| {
                ["GET", "POST"]
                    .map(|method| format!("{method} /app/{wrong}/{kind} HTTP/1.1\r\nhost: x\r\n\r\n"))
            });
            requests
                .map(|request| served.probe_raw(&request))
                .collect::<Vec<_>>()
        })
        .map(|answer| {
            let status = answer.lines().next().unwrap_or_default().to_owned();
            (status, body(&answer).to_owned())
        })
        .collect();
    assert!(answers[0].0.starts_with("HTTP/1.1 404 "), "{answers:?}");
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert!(!answers[0].1.contains(&wrong), "{answers:?}");
}

#[test]
fn without_a_token_a_kubelet_still_probes_and_nobody_sends_the_hook_before_the_end() {
    let scratch = tempfile::tempdir().unwrap();
    let application = Application::start("200 OK");
    let probes = AppProbes::parse(Some(&all(&application)), None).unwrap();
    let served = Served::start_probing(scratch.path(), PATIENCE, probes);
    run(&served, 1);
    let (status, why) = ask_at(&served, "/app/preStop");
    assert_eq!(status, 404);
    for part in ["--app-token (LOCKKEEPER_APP_TOKEN)", "/app/TOKEN/preStop"] {
        assert!(why.contains(part), "{why}");
    }
    for kind in ["startup", "liveness", "readiness", "postStart"] {
        let (status, why) = ask_at(&served, &format!("/app/{kind}"));
        assert_eq!(status, 200, "{kind}: {why}");
    }
    assert_eq!(
        application.asked_for("/preStop") + application.asked_for("/postStart"),
        0
    );
    assert_eq!(application.asked_for("/liveness"), 1);
    // No invented text becomes the token.
    for path in [format!("/app/{TOKEN}/preStop"), "/app//preStop".to_owned()] {
        assert_eq!(ask_at(&served, &path).0, 404, "{path}");
    }
    assert_eq!(application.asked_for("/preStop"), 0);
}
