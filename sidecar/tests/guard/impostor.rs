//! A process of the guard's own container that listens in the keeper's place.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use lockkeeper_sidecar::link::protocol::{FRAME_LEN, Grant, ToGuard};

use crate::group::Group;
use crate::harness::{A, Guard, LONG, assert_in_time, children, is_root, until};
use crate::pid1::{NAMESPACE, can_unshare, guard_pid};
use crate::tests;

tests![
    a_process_of_the_application_that_listens_in_the_keepers_place_grants_nothing,
    where_containers_share_a_process_namespace_a_guard_obeys_a_keeper_of_another_container_alone,
];

/// The role: `SOCKET START MET`. Once the file START is there it listens at SOCKET, in place of whatever was there. It
/// grants an hour to each guard, and makes the file MET for the first.
pub fn impostor(arguments: &[OsString]) -> ExitCode {
    let [socket, start, met] = [0, 1, 2].map(|at| Path::new(&arguments[at]));
    until("the file", || start.exists());
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket).expect("bound");
    for mut guard in listener.incoming().flatten() {
        let hour = BootInstant::now() + Duration::from_secs(3_600);
        let grant = ToGuard::Grant(Grant {
            generation: 1_000,
            token: A,
            start: true,
            pause: false,
            term_at: hour,
            kill_at: hour,
        });
        // A guard that hears of it hangs up.
        let _ = guard.write_all(&grant.encode());
        std::fs::write(met, "").expect("written");
        let _ = guard.read(&mut [0; FRAME_LEN]);
    }
    ExitCode::SUCCESS
}

fn a_process_of_the_application_that_listens_in_the_keepers_place_grants_nothing() {
    if !can_unshare() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("guard.sock");
    let listener = UnixListener::bind(&socket).expect("bound");
    let script = format!(
        "$recorder role:impostor {socket:?} start met &
         exec $recorder role:record record"
    );
    let mut guard = Guard::connecting(&NAMESPACE, &["pid1"], &socket, &listener, &script);
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 1);
    let kill_at = guard.shorten(A, false, 5_000, 5_000);
    drop(listener);
    std::fs::write(guard.file("start"), "").expect("written");
    guard.hang_up();
    until("the guard meets the impostor", || guard.file("met").exists());
    until("the application is gone", || {
        children(guard_pid(&guard)).is_empty()
    });
    assert_in_time(&guard.file("record"), kill_at);

    // The impostor is gone with it. The next keeper finds a guard that runs nothing.
    std::fs::remove_file(&socket).expect("removed");
    let listener = UnixListener::bind(&socket).expect("bound");
    assert_eq!(guard.keeper(listener.accept().expect("the guard").0), None);
}

fn where_containers_share_a_process_namespace_a_guard_obeys_a_keeper_of_another_container_alone() {
    if !is_root() {
        return;
    }
    let Some(container) = Group::new("lockkeeper-test-shared") else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("guard.sock");
    let listener = UnixListener::bind(&socket).expect("bound");
    let script = "exec $recorder role:record record";
    {
        // This program, which listens, and the guard are in one control group: one container.
        let _guard = Guard::unconnected(&[], &["subreaper"], &socket, script);
        let (mut stream, _) = listener.accept().expect("the guard");
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        assert_eq!(
            stream.read(&mut [0; FRAME_LEN]).expect("the end"),
            0,
            "it says Hello"
        );
    }
    let enter = format!("echo $$ >{}; exec \"$@\"", container.procs());
    let prefix = ["sh", "-c", &enter, "sh"];
    let mut guard = Guard::connecting(&prefix, &["subreaper"], &socket, &listener, script);
    guard.begin(A, 60_000, 60_000);
    guard.recorders("record", 1);
}
