//! The file of the socket: its owner, which users can reach it, and when it is removed.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use lockkeeper_daemon::exit::{Exit, Failure};
use lockkeeper_sidecar::socket::{SocketServer, private_path};

fn bind(path: &Path) -> Result<SocketServer, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _context = runtime.enter();
    SocketServer::bind(path)
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A socket whose process is gone.
fn leave_dead_socket(path: &Path) {
    drop(UnixListener::bind(path).unwrap());
    assert!(path.exists() && UnixStream::connect(path).is_err());
}

#[test]
fn every_user_who_can_reach_the_socket_may_ask() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("lock.sock");
    let server = bind(&path).unwrap();
    assert_eq!(mode(&path), 0o666);
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("lock.sock");
    leave_dead_socket(&path);
    let _server = bind(&path).unwrap();
    let failure = bind(&path).unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    assert!(
        failure.sentence.starts_with("another process serves "),
        "{failure}"
    );
    UnixStream::connect(&path).unwrap();
}

#[test]
fn who_may_only_read_the_directory_cannot_hold_up_those_who_make_a_socket_in_it() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("lock.sock");
    let stranger = std::fs::File::open(scratch.path()).unwrap();
    rustix::fs::flock(&stranger, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    bind(&path).unwrap();

    // What holds one up is a file of its own that others cannot open, nor put there in its place.
    let lock = scratch.path().join("lock.sock.lock");
    assert_eq!(mode(&lock), 0o600);
    if !rustix::process::geteuid().is_root() {
        return lockkeeper_skip::skip("to give a file away takes root");
    }
    std::os::unix::fs::chown(&lock, Some(65534), None).unwrap();
    let failure = bind(&path).unwrap_err();
    assert!(
        failure.sentence.ends_with("belongs to the user 65534"),
        "{failure}"
    );
    std::fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &lock).unwrap();
    bind(&path).unwrap_err();
}

#[test]
fn of_several_that_find_a_dead_socket_exactly_one_gets_it() {
    let scratch = tempfile::tempdir().unwrap();
    let path = &scratch.path().join("lock.sock");
    for _ in 0..20 {
        leave_dead_socket(path);
        let start = &std::sync::Barrier::new(8);
        let servers: Vec<_> = std::thread::scope(|scope| {
            let attempts: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(move || {
                        start.wait();
                        bind(path)
                    })
                })
                .collect();
            attempts
                .into_iter()
                .map(|attempt| attempt.join().unwrap())
                .collect()
        });
        assert_eq!(
            servers.iter().filter(|server| server.is_ok()).count(),
            1,
            "{servers:?}"
        );
        UnixStream::connect(path).unwrap();
    }
}

#[test]
fn what_is_not_a_socket_is_left_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("lock.sock");
    std::fs::write(&path, "precious").unwrap();
    let failure = bind(&path).unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    assert!(
        failure
            .sentence
            .ends_with("is not a socket: choose another --socket"),
        "{failure}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_file_that_took_the_place_of_the_socket_is_not_removed_at_the_end() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("lock.sock");
    let server = bind(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "precious").unwrap();
    drop(server);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_path_that_no_socket_can_have_is_refused_before_anything_is_made() {
    let scratch = tempfile::tempdir().unwrap();
    let failure = bind(&scratch.path().join("x".repeat(120))).unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    assert!(
        failure
            .sentence
            .contains("has at most 107 bytes and this one has 1"),
        "{failure}"
    );
    let failure = bind(&scratch.path().join("none/lock.sock")).unwrap_err();
    assert_eq!(failure.exit, Exit::Unavailable);
    assert!(
        failure.sentence.contains("No such file or directory"),
        "{failure}"
    );
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);

    // The longest one that is possible.
    let longest = scratch
        .path()
        .join("x".repeat(107 - scratch.path().as_os_str().len() - 1));
    drop(bind(&longest).unwrap());
}

#[test]
fn a_private_socket_is_reachable_by_its_user_only_and_leaves_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _context = runtime.enter();
    let first = SocketServer::bind_private(&private_path()).unwrap();
    let second = SocketServer::bind_private(&private_path()).unwrap();
    assert_ne!(first.path(), second.path());
    let directory = first.path().parent().unwrap().to_owned();
    assert_eq!(mode(&directory), 0o700);
    UnixStream::connect(first.path()).unwrap();
    drop(first);
    assert!(!directory.exists());
    assert!(second.path().exists());
}
