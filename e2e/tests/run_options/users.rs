//! Other users at the socket of a run.

use std::path::Path;
use std::process::{Command, Stdio};

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::nobody::{AS_NOBODY, room};
use lockkeeper_product::worker::all_records;
use lockkeeper_testbed::Process;
use lockkeeper_testbed::process::wait_for;

use crate::ending::TELL_SOCKET;
use crate::harness::{BOUND, Run, client, ensemble, wait_for_contenders, worker};

/// `lockkeeper WORDS` of this user at a socket.
fn of_nobody(program: &Path, words: &[&str], socket: &str) -> Command {
    let mut command = Command::new(AS_NOBODY[0]);
    command.args(&AS_NOBODY[1..]).arg(program).args(words);
    command.args(["--socket", socket]);
    command
}

/// What it is told.
fn as_nobody(program: &Path, words: &[&str], socket: &str) -> (Option<i32>, String) {
    let output = of_nobody(program, words, socket).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn another_user_may_look_at_the_socket_of_a_run_and_ends_nothing_and_the_holder_goes_on() {
    let ensemble = ensemble();
    if !rustix::process::getuid().is_root() {
        return lockkeeper_skip::skip("needs root to become another user");
    }
    let lock = "/users/named-socket";
    let (directory, program) = room(ensemble.directory(), "users").unwrap();
    let path = directory.join("lock.sock");
    let socket = path.to_str().unwrap();
    let holder = worker(&ensemble, "users-holder", lock, &["--socket", socket], &[]);
    let token = holder.wait_until_it_runs(0, BOUND).unwrap();
    let waiter = worker(&ensemble, "users-waiter", lock, &[], &[]);
    wait_for_contenders(&ensemble, lock, 2);

    let (code, said) = as_nobody(&program, &["status"], socket);
    assert!(code == Some(0) && said.contains("Held"), "{code:?} {said}");
    for words in [&["release"][..], &["release", "--abandon-survivors"]] {
        let (code, said) = as_nobody(&program, words, socket);
        assert_eq!(code, Some(77), "{words:?}: {said}");
        assert!(
            said.contains("user 65534 may look at this lock but not change it"),
            "{said}"
        );
    }
    // However many of another user follow the lock, those of the keeper's own user find a place.
    let mut followers = Vec::new();
    wait_for(BOUND, || {
        let mut command = of_nobody(&program, &["status", "--watch"], socket);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        followers.push(Process::spawn("follower", command).unwrap());
        let (_, said) = as_nobody(
            &program,
            &["wait", "--for", "released", "--timeout", "0s"],
            socket,
        );
        said.contains("16 clients of other users follow the events already")
            .then_some(())
    })
    .expect("the places of other users are taken");
    let (code, said) = client(&["wait", "--for", "held", "--timeout", "10s", "--socket", socket]);
    assert_eq!(code, 0, "{said}");
    drop(followers);
    let now = BootInstant::now();
    let goes_on = || (holder.last_stamp(token).ok()? > now).then_some(());
    wait_for(BOUND, goes_on).unwrap_or_else(|| panic!("{}", holder.log()));
    assert!(waiter.records().unwrap().is_empty(), "{}", waiter.log());

    // What is refused to that user is done for the keeper's own.
    let (code, said) = client(&["release", "--socket", socket]);
    assert_eq!(code, 0, "{said}");
    waiter.wait_until_it_runs(token, BOUND).unwrap();
    let report = check(&all_records([&holder, &waiter]).unwrap(), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 2, "{report}");
}

#[test]
fn another_user_does_not_reach_the_socket_of_a_run_that_names_none() {
    let ensemble = ensemble();
    if !rustix::process::getuid().is_root() {
        return lockkeeper_skip::skip("needs root to become another user");
    }
    let (_, program) = room(ensemble.directory(), "users-private").unwrap();
    let run = Run::start(
        &ensemble,
        "users-private-run",
        "/users/private",
        &[],
        &TELL_SOCKET,
    );
    let socket = run.first_line();
    assert_eq!(client(&["status", "--socket", &socket]).0, 0);
    let (code, said) = as_nobody(&program, &["status"], &socket);
    assert!(
        code == Some(69) && said.contains("Permission denied"),
        "{code:?} {said}"
    );
}
