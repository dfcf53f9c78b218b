//! What a run inherits, or finds on its machine: ignored signals, a terminal, a resolver that is silent.

use std::net::UdpSocket;
use std::process::Command;

use lockkeeper_testbed::ensemble::block_on;

use crate::harness::{Run, ensemble};

const COMMAND: [&str; 3] = ["sh", "-c", "exit 7"];

/// The words of a command.
fn words(command: &Command) -> Vec<String> {
    [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .map(|word| word.to_str().unwrap().to_owned())
        .collect()
}

#[test]
fn an_ignored_sigchld_takes_no_containment_away_and_loses_no_exit_code() {
    let ensemble = ensemble();
    for containment in ["auto", "cgroup", "pidns", "sweep"] {
        let name = format!("ignored-{containment}");
        let options = ["--containment", containment, "--log", "info"];
        let run = Run::command(&ensemble, &format!("/{name}"), &options, &COMMAND);
        let mut command = Command::new("env");
        command.arg("--ignore-signal=CHLD").args(words(&run));
        let mut run = Run::spawn(&ensemble, &name, command);
        assert_eq!(run.code(), 7, "{containment}: {}", run.stderr());
        assert!(!run.stderr().contains("No control group"), "{}", run.stderr());
    }
}

#[test]
fn a_run_in_a_terminal_that_stops_what_writes_in_the_background_gets_the_lock_all_the_same() {
    let ensemble = ensemble();
    let run = Run::command(&ensemble, "/tostop", &["--log", "info"], &COMMAND);
    let line = format!("stty tostop; exec {}", quoted(&words(&run)));
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    let mut run = Run::spawn(&ensemble, "tostop", command);
    assert_eq!(run.code(), 7, "{}", run.stdout());
    assert!(run.stdout().contains(r#"lock.to="Held""#), "{}", run.stdout());
}

/// For a shell.
fn quoted(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    quoted.join(" ")
}

#[test]
fn a_server_whose_name_no_resolver_answers_for_delays_neither_the_lock_nor_the_end_of_a_run() {
    let ensemble = ensemble();
    let host = ensemble.client("silent-resolver").unwrap();
    // It reads nothing and answers nothing.
    let resolver = block_on(&host, || async { UdpSocket::bind("127.0.0.1:53") });
    let _resolver = resolver.unwrap().unwrap();
    let file = ensemble.directory().join("resolv.conf");
    std::fs::write(&file, "nameserver 127.0.0.1\noptions timeout:30 attempts:5\n").unwrap();

    let connect = format!("{},server.example:2181", ensemble.connect_string());
    let run = Run::command(
        &ensemble,
        "/silent-resolver",
        &["--connect", &connect, "--log", "info"],
        &COMMAND,
    );
    let mut command = Command::new("unshare");
    let script = format!("mount --bind {} /etc/resolv.conf && exec \"$@\"", file.display());
    command
        .args(["--mount", "sh", "-c", &script, "sh"])
        .args(words(&run));
    let mut run = Run::spawn_on(&ensemble, host, command);
    assert_eq!(run.code(), 7, "{}", run.stderr());
    let name = "server.example:2181 of --connect has no address";
    assert!(run.stderr().contains(name), "{}", run.stderr());
}
