//! TLS to the servers, which demand a certificate from every client.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lockkeeper_product::worker::{Options, Worker};
use lockkeeper_testbed::certificates::{Authority, write};
use lockkeeper_testbed::ensemble::TlsFiles;
use lockkeeper_testbed::shared::shared;
use lockkeeper_testbed::{Config, Ensemble};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::harness::{BOUND, Run, contenders, with_client};

/// Three servers with one certificate, which is valid only for the first two.
struct Secured {
    ensemble: Ensemble,
    /// `ca`, `foreign-ca`, and for `own` and `foreign` a `.pem` and a `.key`.
    files: TempDir,
}

impl Secured {
    fn start() -> Self {
        let files = tempfile::tempdir().unwrap();
        let directory = files.path();
        let (ours, foreign) = (Authority::new("ours"), Authority::new("foreign"));
        write(directory, "ca", ours.pem());
        write(directory, "foreign-ca", foreign.pem());
        for (name, authority) in [("own", &ours), ("foreign", &foreign)] {
            let certificate = authority.sign("lockkeeper", &[]);
            write(directory, &format!("{name}.pem"), &certificate.chain);
            write(directory, &format!("{name}.key"), &certificate.key);
        }
        let tls = TlsFiles {
            key_store: directory.join("server.pem"),
            trust_store: directory.join("ca.pem"),
        };
        write(directory, "ca.pem", ours.pem());
        let ensemble = Ensemble::start(Config {
            tls: Some(tls),
            ..Config::default()
        })
        .expect("the servers start");
        let addresses = [0, 1].map(|server| ensemble.address(server).ip().to_string());
        let server = ours.sign("server", &addresses);
        write(directory, "server.pem", &(server.key + &server.chain));
        Self { ensemble, files }
    }

    /// The servers that tests share while they run at the same time; the last test ends them.
    fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Secured>> = Mutex::new(Weak::new());
        shared(&SHARED, Self::start)
    }

    fn file(&self, name: &str) -> String {
        self.files.path().join(name).to_str().unwrap().to_owned()
    }

    /// The value of `--connect` with the servers for which the certificate is valid.
    fn connect(&self) -> String {
        [0, 1].map(|server| self.ensemble.tls_address(server)).join(",")
    }

    /// Valid options, without `connect`.
    fn options(&self) -> Vec<String> {
        let files = [
            ("--tls-ca", "ca"),
            ("--tls-cert", "own.pem"),
            ("--tls-key", "own.key"),
        ];
        files
            .iter()
            .flat_map(|(option, file)| [(*option).to_owned(), self.file(file)])
            .collect()
    }

    fn worker(&self, name: &str, lock: &str) -> Worker {
        let options = Options {
            connect: self.connect(),
            // It has to outlast restarts of its servers on a busy machine.
            session_timeout: Duration::from_secs(20),
            run: self.options(),
            ..Options::new(&self.ensemble, name, lock).unwrap()
        };
        Worker::start(&self.ensemble, options).unwrap()
    }

    fn run(&self, name: &str, lock: &str, options: &[String], command: &[&str]) -> Run {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Run::start(&self.ensemble, name, lock, &options, command)
    }

    /// Runs with other TLS options, which must fail with this code, start nothing and leave nothing in the
    /// ensemble. Returns the one message that it prints.
    fn refused(&self, name: &str, code: i32, options: &[(&str, String)]) -> String {
        let sentence = self.refused_at_last(name, code, options);
        let made = contenders(&self.ensemble, &format!("/tls/{name}"));
        assert_eq!(made, None, "the lock's node was made");
        sentence
    }

    /// The same where a slow server may answer after the keeper has queued, and even started its command.
    fn refused_at_last(&self, name: &str, code: i32, options: &[(&str, String)]) -> String {
        let lock = format!("/tls/{name}");
        let options: Vec<String> = options
            .iter()
            .flat_map(|(option, value)| [(*option).to_owned(), value.clone()])
            .chain(["--wait-timeout".to_owned(), "60s".to_owned()])
            .collect();
        let mut run = self.run(name, &lock, &options, &["sleep", "600"]);
        assert_eq!(run.code(), code, "{}", run.stderr());
        let sentences = run.sentences();
        assert_eq!(sentences.len(), 1, "{}", run.stderr());
        println!("{name}: {}", sentences[0]);
        sentences[0].clone()
    }
}

/// The resident memory of a process.
fn resident(pid: Pid) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn over_tls_a_lock_is_held_kept_through_restarts_of_its_servers_and_handed_over() {
    // This test has its own servers, since it stops them.
    let secured = Secured::start();
    let lock = "/tls/report";
    let mut first = secured.worker("tls-first", lock);
    let token = first.wait_until_it_runs(0, BOUND).unwrap();
    let program = first.program_pid();
    let second = secured.worker("tls-second", lock);
    for server in [0, 1] {
        secured.ensemble.restart(server).unwrap();
        secured.ensemble.wait_for_quorum().unwrap();
    }
    assert!(first.guard().is_running(), "{}", first.log());
    assert_eq!(first.program_pid(), program, "{}", first.log());
    assert!(second.records().unwrap().is_empty(), "{}", second.log());
    let keeper = first.keeper_pid().unwrap();
    for (name, pid) in [("keeper", keeper), ("guard", first.guard_pid())] {
        println!("{name}, lock held over TLS: {}", resident(pid));
    }

    first.guard().signal(Signal::TERM);
    second.wait_until_it_runs(token, BOUND).unwrap();
}

#[test]
fn a_server_whose_certificate_is_from_a_foreign_authority_is_refused_with_77() {
    let secured = Secured::shared();
    let server = secured.ensemble.tls_address(0);
    let options = [
        ("--connect", server.clone()),
        ("--tls-ca", secured.file("foreign-ca")),
        ("--tls-cert", secured.file("own.pem")),
        ("--tls-key", secured.file("own.key")),
    ];
    let sentence = secured.refused("foreign-server", 77, &options);
    assert!(sentence.contains(&server), "{sentence}");
    assert!(
        sentence.contains("certificate that is not accepted: it is not signed by one of the authorities"),
        "{sentence}"
    );
}

#[test]
fn a_server_whose_certificate_is_for_another_host_is_refused_with_77() {
    let secured = Secured::shared();
    let server = secured.ensemble.tls_address(2);
    let mut options = vec![("--connect", server.clone())];
    let files = [
        ("--tls-ca", "ca"),
        ("--tls-cert", "own.pem"),
        ("--tls-key", "own.key"),
    ];
    options.extend(files.map(|(option, file)| (option, secured.file(file))));
    let sentence = secured.refused("other-host", 77, &options);
    assert!(sentence.contains(&server), "{sentence}");
    assert!(
        sentence.contains("certificate that is not accepted: it is for other names"),
        "{sentence}"
    );
}

#[test]
fn servers_that_do_not_accept_the_clients_certificate_end_it_with_77() {
    let secured = Secured::shared();
    let server = secured.ensemble.tls_address(0);
    let mut options = vec![("--connect", secured.connect()), ("--tls-ca", secured.file("ca"))];
    let none = secured.refused("no-certificate", 77, &options);
    assert!(
        none.contains(&format!("{server} requires a client's certificate")),
        "{none}"
    );

    options.push(("--tls-cert", secured.file("foreign.pem")));
    options.push(("--tls-key", secured.file("foreign.key")));
    let foreign = secured.refused("foreign-certificate", 77, &options);
    assert!(
        foreign.contains(&format!("{server} does not accept the client's certificate")),
        "{foreign}"
    );
}

#[test]
fn files_that_cannot_be_used_end_with_64_and_the_option_to_change() {
    let secured = Secured::shared();
    let garbage = "-----BEGIN CERTIFICATE-----\nno base64!\n-----END CERTIFICATE-----\n";
    write(secured.files.path(), "garbage", garbage);
    write(secured.files.path(), "text", "a text");
    for (name, ca, certificate, key, option) in [
        ("no-key", "ca", Some("own.pem"), None, "--tls-key"),
        ("no-cert", "ca", None, Some("own.key"), "--tls-cert"),
        ("no-file", "missing", None, None, "missing"),
        ("no-pem", "text", None, None, "is not PEM"),
        ("bad-ca", "garbage", None, None, "--tls-ca: "),
        ("bad-cert", "ca", Some("garbage"), Some("own.key"), "--tls-cert: "),
        ("bad-key", "ca", Some("own.pem"), Some("garbage"), "--tls-key: "),
        (
            "other-key",
            "ca",
            Some("own.pem"),
            Some("foreign.key"),
            "--tls-key: ",
        ),
    ] {
        let mut options = vec![("--connect", secured.connect()), ("--tls-ca", secured.file(ca))];
        options.extend(certificate.map(|file| ("--tls-cert", secured.file(file))));
        options.extend(key.map(|file| ("--tls-key", secured.file(file))));
        let sentence = secured.refused(name, 64, &options);
        assert!(sentence.contains(option), "{name}: {sentence}");
    }
}

#[test]
fn a_tick_that_is_longer_than_stated_is_refused_over_tls_too() {
    let secured = Secured::shared();
    let mut options = vec![
        ("--connect", secured.connect()),
        ("--tick-time", "500ms".to_owned()),
    ];
    let files = [
        ("--tls-ca", "ca"),
        ("--tls-cert", "own.pem"),
        ("--tls-key", "own.key"),
    ];
    options.extend(files.map(|(option, file)| (option, secured.file(file))));
    let sentence = secured.refused_at_last("tick", 64, &options);
    assert!(sentence.contains("--tick-time 1000ms"), "{sentence}");
}

#[test]
fn a_digest_identity_works_over_tls_and_the_certificate_counts_as_an_identity_beside_it() {
    let secured = Secured::shared();
    let lock = "/tls/auth";
    let mut options = secured.options();
    let identity = write(secured.files.path(), "alice", "alice:secret\n");
    options.extend(["--auth-file", identity.to_str().unwrap(), "--connect"].map(str::to_owned));
    options.push(secured.connect());
    let command = ["sh", "-c", "echo ran; exec sleep 600"];
    let mut holder = secured.run("tls-alice", lock, &options, &command);
    assert_eq!(holder.first_line(), "ran");

    let read = with_client(&secured.ensemble, async |client| {
        client.get_data(lock).await.map(drop)
    });
    assert!(matches!(read, Err(zookeeper_client::Error::NoAuth)), "{read:?}");
    let acl = with_client(&secured.ensemble, async |client| {
        client.auth("digest", b"alice:secret").await?;
        client.get_acl(lock).await
    });
    let mut schemes: Vec<_> = acl.unwrap().0.iter().map(|acl| acl.scheme().to_owned()).collect();
    schemes.sort();
    assert_eq!(schemes, ["digest", "x509"]);

    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), 143, "{}", holder.stderr());
}
