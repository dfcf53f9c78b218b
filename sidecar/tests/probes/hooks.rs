//! Hooks over HTTP.

use super::application::Application;
use super::{ask, run, serve, status};

#[test]
fn the_hook_before_the_end_is_sent_to_an_application_that_runs_and_any_answer_will_do() {
    let scratch = tempfile::tempdir().unwrap();
    let application = Application::start("500 Whatever");
    let served = serve(
        scratch.path(),
        &format!(
            r#"{{"preStop":{{"httpGet":{{"port":{},"path":"/drain"}}}}}}"#,
            application.port
        ),
    );
    assert_eq!(status(&served, "preStop"), 200);
    assert_eq!(application.asked_for("/drain"), 0);
    run(&served, 1);
    assert_eq!(status(&served, "preStop"), 200);
    assert_eq!(application.asked_for("/drain"), 1);
}

#[test]
fn the_kubelets_own_call_of_the_hook_after_the_start_does_not_wait_for_anything() {
    let scratch = tempfile::tempdir().unwrap();
    let application = Application::start("200 OK");
    let served = serve(
        scratch.path(),
        &format!(r#"{{"postStart":{{"httpGet":{{"port":{}}}}}}}"#, application.port),
    );
    run(&served, 1);
    let (status, why) = ask(&served, "postStart");
    assert_eq!(status, 200);
    assert!(why.contains("after each start"), "{why}");
    assert_eq!(
        application.asked().len(),
        0,
        "the keeper sends it, not the kubelet"
    );
}
