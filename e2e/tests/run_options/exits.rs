//! Exit codes.

use lockkeeper_product::worker::{Options, Worker};

use crate::harness::{BOUND, Run, contenders, ensemble, worker};

#[test]
fn the_exit_code_of_the_command_is_passed_on_and_the_lock_is_free_at_once() {
    let ensemble = ensemble();
    let lock = "/exits/passed-on";
    assert_eq!(
        Run::start(&ensemble, "exit-7", lock, &[], &["sh", "-c", "exit 7"]).code(),
        7
    );
    assert_eq!(contenders(&ensemble, lock), Some(vec![]));
    let mut killed = Run::start(&ensemble, "exit-9", lock, &[], &["sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.code(), 128 + 9);
    assert_eq!(contenders(&ensemble, lock), Some(vec![]));
}

#[test]
fn a_lost_lock_ends_with_75_unless_it_is_to_run_again() {
    let ensemble = ensemble();
    if let Err(reason) = ensemble.network().can_cut() {
        return lockkeeper_skip::skip(reason);
    }
    // T = 4 s, because the test waits for the end of the session.
    let options = Options::new(&ensemble, "exit-75", "/exits/lost").unwrap();
    let mut worker = Worker::start(&ensemble, options).unwrap();
    let mut told = Options::new(&ensemble, "exit-loss-code", "/exits/lost-and-told").unwrap();
    told.run.extend(["--loss-exit-code", "42"].map(str::to_owned));
    let mut told = Worker::start(&ensemble, told).unwrap();
    for worker in [&worker, &told] {
        worker.wait_until_it_runs(0, BOUND).unwrap();
        let host = &worker.options().host.clone();
        for server in 0..ensemble.len() {
            ensemble.cut(host, ensemble.server(server)).unwrap();
        }
    }
    let status = worker.wait_until_it_ends(BOUND).unwrap();
    assert_eq!(status.code(), Some(75), "{}", worker.log());
    let status = told.wait_until_it_ends(BOUND).unwrap();
    assert_eq!(status.code(), Some(42), "{}", told.log());
    let own = ["sh", "-c", "exit 75"];
    let options = ["--loss-exit-code", "42"];
    let mut run = Run::start(&ensemble, "exit-own-75", "/exits/own-75", &options, &own);
    assert_eq!(run.code(), 75, "the command's own: {}", run.stderr());
}

#[test]
fn a_lock_that_somebody_else_holds_is_given_up_with_80_at_once_or_81_after_the_wait_timeout_unless_told_otherwise()
 {
    let ensemble = ensemble();
    let lock = "/exits/wait-timeout";
    let holder = worker(&ensemble, "exit-holder", lock, &[], &[]);
    holder.wait_until_it_runs(0, BOUND).unwrap();
    for (name, options, code) in [
        ("exit-wait-10s", &["--wait-timeout", "10s"][..], 81),
        ("exit-wait-0", &["--wait-timeout", "0s"], 80),
        ("exit-wait-10s-told", &["--wait-timeout", "10s", "-E", "3"], 3),
        (
            "exit-wait-0-told",
            &["--wait-timeout", "0s", "--conflict-exit-code", "0"],
            0,
        ),
    ] {
        let mut late = Run::start(&ensemble, name, lock, options, &["echo", "ran"]);
        assert_eq!(late.code(), code, "{}", late.stderr());
        assert_eq!(late.sentences().len(), 1, "{}", late.stderr());
        assert_eq!(late.stdout(), "");
        assert_eq!(
            contenders(&ensemble, lock).unwrap().len(),
            1,
            "its place in the queue is given up"
        );
    }
    drop(holder);
    let free = "/exits/wait-timeout-free";
    let mut first = Run::start(
        &ensemble,
        "exit-wait-free",
        free,
        &["--wait-timeout", "0s"],
        &["echo", "ran"],
    );
    assert_eq!(
        (first.code(), first.stdout().as_str()),
        (0, "ran\n"),
        "{}",
        first.stderr()
    );
}

#[test]
fn servers_that_do_not_answer_are_given_up_with_69_after_the_wait_timeout() {
    let ensemble = ensemble();
    let options = ["--connect", "127.0.0.1:1", "--wait-timeout", "2s", "-E", "0"];
    let mut run = Run::start(
        &ensemble,
        "exit-unreachable",
        "/exits/unreachable",
        &options,
        &["echo", "ran"],
    );
    assert_eq!((run.code(), run.stdout().as_str()), (69, ""), "{}", run.stderr());
    // It has reached no server.
    let sentence = "so it is not known whether it is held";
    assert!(run.sentences()[0].ends_with(sentence), "{}", run.stderr());
}

#[test]
fn a_command_that_cannot_be_run_ends_with_127_or_126_and_the_lock_is_not_asked_for() {
    let ensemble = ensemble();
    let lock = "/exits/no-command";
    let mut missing = Run::start(&ensemble, "exit-127", lock, &[], &["/no/such/program"]);
    assert_eq!(missing.code(), 127, "{}", missing.stderr());
    let mut no_program = Run::start(&ensemble, "exit-126", lock, &[], &["/etc/passwd"]);
    assert_eq!(no_program.code(), 126, "{}", no_program.stderr());
    assert_eq!(contenders(&ensemble, lock), None, "the lock's node was made");
    assert_eq!(missing.sentences().len(), 1, "{}", missing.stderr());
    assert_eq!(no_program.sentences().len(), 1, "{}", no_program.stderr());
}

#[test]
fn an_address_that_does_not_resolve_ends_with_69_and_one_sentence() {
    let ensemble = ensemble();
    let options = ["--connect", "no-such-host.invalid:2181"];
    let mut run = Run::start(
        &ensemble,
        "exit-unresolved",
        "/exits/unresolved",
        &options,
        &["echo", "ran"],
    );
    assert_eq!((run.code(), run.stdout().as_str()), (69, ""), "{}", run.stderr());
    let sentences = run.sentences();
    assert_eq!(sentences.len(), 1, "{}", run.stderr());
    assert!(
        sentences[0].contains("no-such-host.invalid:2181"),
        "{sentences:?}"
    );
}

#[test]
fn a_tick_that_is_longer_than_stated_is_refused_with_64() {
    let ensemble = ensemble();
    let lock = "/exits/tick";
    let mut run = Run::start(
        &ensemble,
        "exit-tick",
        lock,
        &["--tick-time", "500ms"],
        &["sleep", "600"],
    );
    // A server that needs longer than half a second for its first answer is believed later on.
    assert_eq!(run.code(), 64, "{}", run.stderr());
    assert!(
        run.sentences()[0].contains("--tick-time 1000ms"),
        "{}",
        run.stderr()
    );
    assert_eq!(
        contenders(&ensemble, lock).unwrap_or_default(),
        Vec::<String>::new()
    );
}
