//! The token of a pod, as the program gets it: it counts, and is nowhere to be read.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use eventually::eventually;
use tempfile::TempDir;

#[path = "support/eventually.rs"]
mod eventually;
#[path = "support/refused.rs"]
mod refused;

const TOKEN: &str = "Q0hPU0VOLUZPUi1USElTLVBPRA";

/// A sidecar whose application has a hook, and never runs: no server listens at the address of its ensemble. Ends
/// with the test.
struct Sidecar {
    process: Child,
    admin: SocketAddr,
    folder: TempDir,
}

/// An address of our own: another program could take a free port of 127.0.0.1 before the sidecar does.
fn address() -> SocketAddr {
    static PORT: AtomicU16 = AtomicU16::new(9000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    SocketAddr::from((
        [127, 128 | high, middle, low],
        PORT.fetch_add(1, Ordering::Relaxed),
    ))
}

impl Sidecar {
    fn start(token: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let admin = address();
        let log = File::create(file("log")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
            .args([
                "sidecar",
                "--connect",
                "127.0.0.1:1",
                "--lock",
                "/l",
                "--log",
                "trace",
            ])
            .args(["--admin-listen", &admin.to_string()])
            .arg("--socket")
            .arg(file("lock.sock"))
            .arg("--guard-socket")
            .arg(file("guard.sock"))
            .arg("--lease-file")
            .arg(file("lease.env"))
            .envs(token.map(|token| ("LOCKKEEPER_APP_TOKEN", token)))
            .env(
                "LOCKKEEPER_APP_PROBES",
                r#"{"liveness":{"httpGet":{"port":1}},"preStop":{"httpGet":{"port":1,"path":"/drain"}}}"#,
            )
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self {
            process,
            admin,
            folder,
        }
    }

    /// What is answered on the port.
    fn ask(&self, path: &str) -> String {
        exchange(|| TcpStream::connect(self.admin), path)
    }

    /// What is answered on the socket.
    fn ask_inside(&self, path: &str) -> String {
        exchange(|| UnixStream::connect(self.folder.path().join("lock.sock")), path)
    }

    /// All that it has logged, once it has logged this: a thread of its own writes the log.
    fn end_after(mut self, sentence: &str) -> String {
        let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        eventually(sentence, || log().contains(sentence).then_some(()));
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        log()
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The answer to a request, once the sidecar listens.
fn exchange<S: Read + Write>(connect: impl Fn() -> std::io::Result<S>, path: &str) -> String {
    let mut stream = eventually("it listens", || match connect() {
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => None,
        connected => Some(connected.unwrap()),
    });
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_token_of_the_environment_opens_the_path_and_is_in_no_log_metric_or_status() {
    let sidecar = Sidecar::start(Some(TOKEN));
    for kind in ["preStop", "liveness"] {
        let answer = sidecar.ask(&format!("/app/{TOKEN}/{kind}"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.contains("does not run under the lock"), "{answer}");
    }
    let mut said = Vec::new();
    for path in [
        "/app/preStop",
        "/app/liveness",
        "/app/x/preStop",
        &format!("/app/{}/preStop", &TOKEN[1..]),
    ] {
        let answer = sidecar.ask(path);
        assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
        said.push(answer);
    }
    said.push(sidecar.ask(&format!("/app/{TOKEN}/nothing")));
    said.extend(["/metrics", "/readyz", "/queuedz", "/nothing"].map(|path| sidecar.ask(path)));
    said.extend(["/v1/lock", "/v1/app/preStop"].map(|path| sidecar.ask_inside(path)));
    said.push(sidecar.end_after("INFO"));
    for text in said {
        assert!(!text.contains(TOKEN), "{text}");
    }
}

#[test]
fn a_sidecar_without_a_token_says_at_its_start_that_the_hook_is_not_sent() {
    let sidecar = Sidecar::start(None);
    let answer = sidecar.ask("/app/preStop");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    let answer = sidecar.ask("/app/liveness");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let log = sidecar.end_after("The preStop hook of the application is not sent");
    assert!(log.contains("--app-token"), "{log}");
}

#[test]
fn a_token_that_is_none_is_refused_and_not_shown_and_neither_is_one_in_the_help() {
    const SIDECAR: &[&str] = &["sidecar", "--connect", "zk:2181", "--lock", "/l"];
    const RIGHT: &str = "--app-token (LOCKKEEPER_APP_TOKEN) must have 22 to 128 characters";
    for wrong in ["", "guessable", "Q0hPU0VOLUZPUi1USElTLVBPR+/="] {
        let words = [SIDECAR, &["--app-token", wrong]].concat();
        refused::refused(&[
            (&words, &[], &[RIGHT]),
            (SIDECAR, &[("LOCKKEEPER_APP_TOKEN", wrong)], &[RIGHT]),
        ]);
        let scratch = tempfile::tempdir().unwrap();
        let (_, _, err) = refused::run(scratch.path(), &words, &[]);
        assert!(wrong.is_empty() || !err.contains(wrong), "{err}");
    }
    let by_signals = [SIDECAR, &["--container", "app", "--app-token", TOKEN]].concat();
    refused::refused(&[(&by_signals, &[], &["keeps its own probes: leave one of them out"])]);
    let scratch = tempfile::tempdir().unwrap();
    let (code, help, _) = refused::run(
        scratch.path(),
        &["sidecar", "--help"],
        &[("LOCKKEEPER_APP_TOKEN", TOKEN)],
    );
    assert_eq!(code, 0);
    assert!(help.contains("--app-token") && !help.contains(TOKEN), "{help}");
}
