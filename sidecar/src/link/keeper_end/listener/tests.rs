//! Which guards are accepted, and which are not.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream as Stream;
use std::path::PathBuf;

use lockkeeper_lock::FencingToken;

use super::*;
use crate::link::protocol::{Containment, FRAME_LEN, Tree};

const A: FencingToken = FencingToken(5);
const REVOKE: ToGuard = ToGuard::Revoke { token: A };

/// Longer than anything here takes on a loaded machine.
const LONG: Duration = Duration::from_secs(30);

/// A socket and its listener, in a tokio runtime.
struct Door {
    _directory: tempfile::TempDir,
    path: PathBuf,
    listener: GuardListener,
}

impl Door {
    fn open() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("guard.sock");
        let listener = GuardListener::bind(&path, Users::own()).expect("bound");
        Self {
            _directory: directory,
            path,
            listener,
        }
    }

    fn connect(&self) -> Stream {
        let stream = Stream::connect(&self.path).expect("connected");
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        stream
    }

    /// A guard of this test's process.
    fn guard(&self, instance: u64, token: Option<FencingToken>) -> Stream {
        let mut stream = self.connect();
        stream.write_all(&hello(instance, token).encode()).expect("sent");
        stream
    }

    async fn next(&mut self) -> Heard {
        let event = tokio::time::timeout(LONG, self.listener.recv()).await;
        event.expect("something happens")
    }

    /// Asserts that nothing happens within some time.
    async fn nothing_for(&mut self, time: Duration) {
        let event = tokio::time::timeout(time, self.listener.recv()).await;
        assert!(event.is_err(), "{event:?}");
    }
}

fn hello(instance: u64, token: Option<FencingToken>) -> FromGuard {
    FromGuard::Hello(Hello {
        pid: 1,
        instance,
        is_first: true,
        has_ticket: false,
        tree: token.map(|token| Tree {
            token,
            is_paused: false,
        }),
        containment: Containment::Sweep,
        clock: crate::time_namespace::own(),
    })
}

fn said(instance: u64, token: Option<FencingToken>) -> Heard {
    Heard::Frame(hello(instance, token))
}

fn in_runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(test);
}

/// What the keeper sends before it hangs up.
fn last_word(stream: &mut Stream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("closed");
    bytes
}

fn refused() -> Vec<u8> {
    let why = Refusal::Another;
    ToGuard::Refuse { why }.encode().to_vec()
}

#[test]
fn a_guard_that_is_connected_is_never_displaced() {
    in_runtime(async {
        let mut door = Door::open();
        door.listener.send(REVOKE); // to nobody
        let mut first = door.guard(1, None);
        assert_eq!(door.next().await, said(1, None));
        let mut second = door.guard(2, None);
        door.nothing_for(Duration::from_millis(50)).await;
        assert_eq!(last_word(&mut second), refused());

        door.listener.send(REVOKE);
        let mut frame = [0; FRAME_LEN];
        first.read_exact(&mut frame).expect("read");
        assert_eq!(ToGuard::decode(&frame), Ok(REVOKE));
    });
}

#[test]
fn strangers_that_write_other_bytes_or_nothing_or_come_in_crowds_change_nothing() {
    in_runtime(async {
        let mut door = Door::open();
        let mut guard = door.guard(1, None);
        assert_eq!(door.next().await, said(1, None));

        let mut noisy = door.connect();
        noisy.write_all(&[b'x'; 4 * FRAME_LEN]).expect("sent");
        let mut short = door.connect();
        short.write_all(&hello(2, None).encode()[..7]).expect("sent");
        let mut other = door.connect();
        let gone = FromGuard::Gone {
            token: A,
            code: None,
            had_sigterm: false,
        };
        other.write_all(&gone.encode()).expect("sent");
        let silent = door.connect();
        door.nothing_for(PATIENCE_FOR_HELLO + Duration::from_millis(500))
            .await;
        for mut stranger in [noisy, short, other, silent] {
            // A peer that has sent more than was read sees a reset in place of an end.
            let mut bytes = Vec::new();
            let ended = stranger.read_to_end(&mut bytes);
            assert!(bytes.is_empty(), "{ended:?} {bytes:?}");
        }

        let crowd = async {
            for _ in 0..200 {
                let mut few: Vec<_> = (0..5).map(|_| door.connect()).collect();
                door.nothing_for(Duration::from_millis(1)).await;
                few.iter_mut().for_each(|stranger| drop(stranger.write(b"GET /")));
                assert!(door.listener.pending.len() <= PENDING);
            }
        };
        crowd.await;
        door.listener.send(REVOKE);
        guard.read_exact(&mut [0; FRAME_LEN]).expect("read");
        // A guard sends `Hello` at once, and is not lost among connections that do not.
        drop(guard);
        assert_eq!(door.next().await, Heard::Lost { is_watched: true });
        let _crowd: Vec<_> = (0..20).map(|_| door.connect()).collect();
        let _again = door.guard(1, Some(A));
        assert_eq!(door.next().await, said(1, Some(A)));
    });
}

#[test]
fn a_guard_that_lives_keeps_its_place_while_its_connection_is_down() {
    in_runtime(async {
        let mut door = Door::open();
        drop(door.guard(1, Some(A)));
        assert_eq!(door.next().await, said(1, Some(A)));
        assert_eq!(door.next().await, Heard::Lost { is_watched: true });
        let mut newcomer = door.guard(2, None);
        door.nothing_for(Duration::from_millis(50)).await;
        assert_eq!(last_word(&mut newcomer), refused());
        // It comes back, also before the end of its old connection was read.
        let _old = door.guard(1, Some(A));
        assert_eq!(door.next().await, said(1, Some(A)));
        let _new = door.guard(1, None);
        assert_eq!(door.next().await, Heard::Lost { is_watched: true });
        assert_eq!(door.next().await, said(1, None));
    });
}

#[test]
fn a_guard_that_another_has_forestalled_is_let_in_when_that_has_ended_also_if_it_has_something() {
    in_runtime(async {
        let mut door = Door::open();
        let other = door.guard(2, None);
        assert_eq!(door.next().await, said(2, None));
        let mut forestalled = door.guard(1, Some(A));
        door.nothing_for(Duration::from_millis(50)).await;
        assert_eq!(last_word(&mut forestalled), refused());
        drop(other);
        assert_eq!(door.next().await, Heard::Lost { is_watched: true });
        // Both are this process: here the end of the other one is only told.
        door.listener.note_its_end();
        assert_eq!(door.next().await, Heard::Ended { is_proof: true });
        let _forestalled = door.guard(1, Some(A));
        assert_eq!(door.next().await, said(1, Some(A)));
    });
}

#[test]
fn where_the_kernel_does_not_tell_its_end_the_next_guard_comes_without_a_proof() {
    in_runtime(async {
        let mut door = Door::open();
        let first = door.guard(1, None);
        assert_eq!(door.next().await, said(1, None));
        door.listener.known.as_mut().expect("known").process = None;
        let mut second = door.guard(2, None);
        door.nothing_for(Duration::from_millis(50)).await;
        assert_eq!(last_word(&mut second), refused());
        drop(first);
        assert_eq!(door.next().await, Heard::Lost { is_watched: false });
        drop(door.guard(3, None));
        assert_eq!(door.next().await, Heard::Succeeded);
        assert_eq!(door.next().await, said(3, None));
        door.listener.known.as_mut().expect("known").process = None;
        assert_eq!(door.next().await, Heard::Lost { is_watched: false });
        // It was away only.
        let _first = door.guard(1, Some(A));
        assert_eq!(door.next().await, Heard::Succeeded);
        assert_eq!(door.next().await, said(1, Some(A)));
    });
}

#[test]
fn the_end_of_a_guard_that_is_not_the_first_process_is_told_as_no_proof() {
    in_runtime(async {
        let mut door = Door::open();
        let mut guard = door.connect();
        let FromGuard::Hello(first) = hello(1, Some(A)) else {
            unreachable!("it says hello")
        };
        let second = FromGuard::Hello(Hello {
            is_first: false,
            has_ticket: false,
            ..first
        });
        guard.write_all(&second.encode()).expect("sent");
        assert_eq!(door.next().await, Heard::Frame(second));
        drop(guard);
        assert_eq!(door.next().await, Heard::Lost { is_watched: true });
        door.listener.note_its_end();
        assert_eq!(door.next().await, Heard::Ended { is_proof: false });
        let _next = door.guard(2, None);
        assert_eq!(door.next().await, Heard::Succeeded);
        assert_eq!(door.next().await, said(2, None));
    });
}

#[test]
fn a_guard_of_a_user_that_may_not_guard_is_refused() {
    in_runtime(async {
        let mut door = Door::open();
        let (mut guard, accepted) = Stream::pair().expect("a pair");
        accepted.set_nonblocking(true).expect("nonblocking");
        guard.set_read_timeout(Some(LONG)).expect("a timeout");
        let stranger = rustix::process::geteuid().as_raw() + 1;
        let accepted = UnixStream::from_std(accepted).expect("in a runtime");
        door.listener.accepted_from(stranger, accepted).expect("accepted");
        assert!(door.listener.pending.is_empty());
        let why = Refusal::User;
        assert_eq!(last_word(&mut guard), ToGuard::Refuse { why }.encode());
    });
}

#[test]
fn a_guard_whose_clock_is_another_one_is_refused() {
    in_runtime(async {
        let mut door = Door::open();
        let FromGuard::Hello(mut hello) = hello(1, None) else {
            unreachable!("it is one");
        };
        hello.clock += 1;
        let mut guard = Stream::connect(&door.path).expect("connected");
        guard.set_read_timeout(Some(LONG)).expect("a timeout");
        guard.write_all(&FromGuard::Hello(hello).encode()).expect("sent");
        door.nothing_for(Duration::from_millis(50)).await;
        let why = Refusal::Clock;
        assert_eq!(last_word(&mut guard), ToGuard::Refuse { why }.encode());
    });
}

#[test]
fn a_guard_of_another_release_is_told_that_it_is_one() {
    in_runtime(async {
        let mut door = Door::open();
        let mut hello = hello(1, None).encode();
        hello[2] += 1;
        let mut guard = door.connect();
        guard.write_all(&hello).expect("sent");
        door.nothing_for(Duration::from_millis(50)).await;
        let why = Refusal::Version;
        assert_eq!(last_word(&mut guard), ToGuard::Refuse { why }.encode());
    });
}

#[test]
fn a_path_that_another_keeper_serves_or_that_is_no_socket_is_refused() {
    in_runtime(async {
        let mut door = Door::open();
        let failure = GuardListener::bind(&door.path, Users::own()).expect_err("served");
        let another = "choose another --guard-socket or end that process";
        assert!(failure.sentence.ends_with(another), "{failure}");
        // The check of the socket does not affect the guard.
        let _guard = door.guard(1, None);
        assert_eq!(door.next().await, said(1, None));

        let file = door.path.with_extension("txt");
        std::fs::write(&file, "precious").expect("written");
        let failure = GuardListener::bind(&file, Users::own()).expect_err("no socket");
        assert!(failure.sentence.contains("is not a socket"), "{failure}");
        assert_eq!(std::fs::read(&file).expect("there"), b"precious");
    });
}
