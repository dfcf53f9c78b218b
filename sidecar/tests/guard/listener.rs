//! The socket at which guards arrive, and guards that are processes of their own.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use lockkeeper_sidecar::link::keeper_end::{GuardListener, Heard};
use lockkeeper_sidecar::link::protocol::{Containment, FRAME_LEN, FromGuard, Hello, Refusal, ToGuard, Tree};
use lockkeeper_sidecar::peer::Users;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::harness::{A, LONG, own_program};
use crate::tests;

tests![
    the_end_of_its_process_and_nothing_else_makes_room_for_the_next_guard,
    another_process_that_says_the_number_of_the_guard_is_refused,
    a_guard_that_was_not_the_first_of_its_namespace_proves_nothing_by_its_end,
    a_guard_that_comes_while_no_descriptor_is_free_is_accepted_once_one_is,
];

/// A guard with nothing to guard.
fn idle(instance: u64, is_first: bool) -> FromGuard {
    FromGuard::Hello(Hello {
        pid: 1,
        instance,
        is_first,
        has_ticket: false,
        tree: None,
        containment: Containment::Sweep,
        clock: lockkeeper_sidecar::time_namespace::own(),
    })
}

/// The role of such a guard: `PATH` and its first frame as numbers. It hangs up at the first line on stdin, and lives on.
pub fn guard(arguments: &[std::ffi::OsString]) -> ExitCode {
    let words: Vec<_> = arguments[1..].iter().map(|word| word.to_string_lossy()).collect();
    let frame: Vec<u8> = words.iter().map(|word| word.parse().expect("a byte")).collect();
    let mut stream = UnixStream::connect(&arguments[0]).expect("connected");
    stream.write_all(&frame).expect("sent");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
    drop(stream);
    std::io::stdin().read_line(&mut line).expect("the end");
    ExitCode::SUCCESS
}

fn start(path: &Path, hello: FromGuard) -> Child {
    Command::new(own_program())
        .arg("role:hello")
        .arg(path)
        .args(hello.encode().map(|byte| byte.to_string()))
        .stdin(Stdio::piped())
        .spawn()
        .expect("a guard")
}

/// Another guard in this process, and what it is answered while nothing happens to the listener.
async fn newcomer(listener: &mut GuardListener, path: &Path, hello: FromGuard) -> Vec<u8> {
    let mut stream = UnixStream::connect(path).expect("connected");
    stream.set_read_timeout(Some(LONG)).expect("a timeout");
    stream.write_all(&hello.encode()).expect("sent");
    let event = tokio::time::timeout(Duration::from_millis(50), listener.recv()).await;
    assert!(event.is_err(), "{event:?}");
    let mut answer = vec![0; FRAME_LEN];
    stream.read_exact(&mut answer).expect("an answer");
    answer
}

/// An application may have learned the number of its guard; it says that it has nothing.
fn another_process_that_says_the_number_of_the_guard_is_refused() {
    with_listener(async |mut listener, path| {
        let said = idle(1, true);
        let mut guard = start(path, said);
        assert_eq!(next(&mut listener).await, Heard::Frame(said));
        let why = Refusal::Another;
        assert_eq!(
            newcomer(&mut listener, path, said).await,
            ToGuard::Refuse { why }.encode()
        );
        // Also while the guard is away.
        writeln!(guard.stdin.as_mut().expect("piped")).expect("written");
        assert_eq!(next(&mut listener).await, Heard::Lost { is_watched: true });
        assert_eq!(
            newcomer(&mut listener, path, said).await,
            ToGuard::Refuse { why }.encode()
        );
        drop(guard.stdin.take());
        guard.wait().expect("reaped");
    });
}

async fn next(listener: &mut GuardListener) -> Heard {
    let event = tokio::time::timeout(LONG, listener.recv()).await;
    event.expect("something happens")
}

fn with_listener(test: impl AsyncFnOnce(GuardListener, &Path)) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("guard.sock");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let listener = GuardListener::bind(&path, Users::own()).expect("bound");
        test(listener, &path).await;
    });
}

fn the_end_of_its_process_and_nothing_else_makes_room_for_the_next_guard() {
    with_listener(async |mut listener, path| {
        let refused = ToGuard::Refuse {
            why: Refusal::Another,
        };
        let mut first = start(path, idle(1, true));
        assert_eq!(next(&mut listener).await, Heard::Frame(idle(1, true)));
        first
            .stdin
            .as_mut()
            .expect("a pipe")
            .write_all(b"\n")
            .expect("told");
        let disconnected = Heard::Lost { is_watched: true };
        assert_eq!(next(&mut listener).await, disconnected);
        let answer = newcomer(&mut listener, path, idle(2, true)).await;
        assert_eq!(answer, refused.encode());

        first.kill().expect("killed");
        assert_eq!(next(&mut listener).await, Heard::Ended { is_proof: true });
        first.wait().expect("reaped");
        // Also for one that has something: it was there before.
        let forestalled = FromGuard::Hello(Hello {
            pid: 1,
            instance: 3,
            is_first: true,
            has_ticket: false,
            tree: Some(Tree {
                token: A,
                is_paused: true,
            }),
            containment: Containment::Sweep,
            clock: lockkeeper_sidecar::time_namespace::own(),
        });
        let mut second = start(path, forestalled);
        assert_eq!(next(&mut listener).await, Heard::Frame(forestalled));
        second.kill().expect("killed");
        second.wait().expect("reaped");
    });
}

fn a_guard_that_was_not_the_first_of_its_namespace_proves_nothing_by_its_end() {
    with_listener(async |mut listener, path| {
        let mut first = start(path, idle(1, false));
        assert_eq!(next(&mut listener).await, Heard::Frame(idle(1, false)));
        first.kill().expect("killed");
        let disconnected = Heard::Lost { is_watched: true };
        assert_eq!(next(&mut listener).await, disconnected);
        assert_eq!(next(&mut listener).await, Heard::Ended { is_proof: false });
        first.wait().expect("reaped");
        let mut second = start(path, idle(2, false));
        assert_eq!(next(&mut listener).await, Heard::Succeeded);
        assert_eq!(next(&mut listener).await, Heard::Frame(idle(2, false)));
        second.kill().expect("killed");
        second.wait().expect("reaped");
    });
}

fn a_guard_that_comes_while_no_descriptor_is_free_is_accepted_once_one_is() {
    with_listener(async |mut listener, path| {
        let said = idle(1, true);
        let mut guard = start(path, said);
        // This program has one thread, and only what asks for a new descriptor notices.
        let before = getrlimit(Resource::Nofile);
        let none = Rlimit {
            current: Some(0),
            ..before
        };
        setrlimit(Resource::Nofile, none).expect("a limit");
        // Longer than the pause after a failure.
        let event = tokio::time::timeout(Duration::from_millis(500), listener.recv()).await;
        setrlimit(Resource::Nofile, before).expect("the limit before");
        assert!(event.is_err(), "{event:?}");
        assert_eq!(next(&mut listener).await, Heard::Frame(said));
        drop(guard.stdin.take());
        guard.wait().expect("reaped");
    });
}
