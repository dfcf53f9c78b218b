//! What the servers grant: a session timeout that is not what was asked for.

use lockkeeper_e2e::{Config, Ensemble};

use crate::harness::{Run, client, contenders};

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
        (69, ""),
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
