//! Guards of other users at a keeper's socket. A guard is given deadlines and starts the application, so a user that
//! may not guard must not come to be taken for one.

use std::path::PathBuf;
use std::process::Command;

use lockkeeper_product::nobody::{AS_NOBODY, open, room};
use lockkeeper_product::pod::{BOUND, Pod};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble, Process};

use crate::guards::assert_only_the_first_runs;
use crate::judging::is_root;

const LOCK: &str = "/locks/users";
const QUEUED: [&str; 5] = ["wait", "--for", "queued", "--timeout", "30s"];

/// What a user without any right has in a pod: the binary, and the way to the sockets.
struct Stranger {
    program: PathBuf,
    /// Made by the command of its guard.
    started: PathBuf,
}

impl Stranger {
    fn new(ensemble: &Ensemble, pod: &Pod) -> Self {
        open(ensemble.directory(), 0o755).unwrap();
        let (own, program) = room(&pod.volume, "stranger").unwrap();
        Self {
            program,
            started: own.join("started"),
        }
    }

    /// Its guard, as the first process of a container.
    fn guard(&self, pod: &Pod) -> Process {
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
            .args(AS_NOBODY)
            .arg(&self.program)
            .arg("guard")
            .arg("--guard-socket")
            .arg(pod.guard_socket())
            .args(["--", "touch"])
            .arg(&self.started)
            .stderr(pod.log());
        pod.host.spawn("stranger", command).unwrap()
    }

    /// What another of its programs is told that connects to the guards' socket.
    fn connects(&self, pod: &Pod) -> String {
        let mut command = Command::new(AS_NOBODY[0]);
        command
            .args(&AS_NOBODY[1..])
            .arg(&self.program)
            .args(["status", "--socket"])
            .arg(pod.guard_socket());
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

/// A pod with its keeper only.
fn keeper(ensemble: &Ensemble, more: &[&str]) -> Pod {
    let mut pod = Pod::empty(ensemble, "first");
    pod.start_sidecar(ensemble, LOCK, more);
    let is_there = || pod.guard_socket().exists().then_some(());
    wait_for(BOUND, is_there).unwrap_or_else(|| panic!("{}", pod.said()));
    pod
}

/// Starts the pod's own guard and another pod, hands over to it, and asserts that the first ran undisturbed until then.
fn runs_and_hands_over(ensemble: &Ensemble, first: &mut Pod, meanwhile: impl FnOnce(&Pod)) {
    first.start_container("first", &[]);
    let token = first.wait_until_it_runs(0);
    let second = Pod::start(ensemble, "second", LOCK);
    assert_eq!(second.lockkeeper(&QUEUED), Some(0));
    meanwhile(first);
    assert_only_the_first_runs(first, &second, token);
    assert_eq!(first.lockkeeper(&["release"]), Some(0), "its own guard is heard");
    second.wait_until_it_runs(token);
}

#[test]
fn a_user_that_may_not_guard_cannot_connect_to_the_guards_socket_and_the_pods_own_guard_runs() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let mut first = keeper(&ensemble, &[]);
    let stranger = Stranger::new(&ensemble, &first);
    // It is there before the pod's own guard, and tries again and again. If it were let in, it would be the guard, and
    // the other one would be refused; if it came too late, it would be refused itself, and end.
    let mut guard = stranger.guard(&first);
    let said = stranger.connects(&first);
    assert!(said.contains("Permission denied"), "{said}");
    runs_and_hands_over(&ensemble, &mut first, |first| {
        let said = stranger.connects(first);
        assert!(said.contains("Permission denied"), "{said}");
    });
    assert!(guard.is_running(), "{}", first.said());
    let sentence = "this user may not connect to the keeper's socket: name the user with --guard-user";
    first.says_times(1, sentence);
    assert!(!stranger.started.exists());
}

#[test]
fn where_the_socket_is_open_a_guard_of_a_user_that_is_not_named_is_refused_with_a_sentence() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    // The file of a socket has room for one user, so with this option all users can connect.
    let mut first = keeper(&ensemble, &["--guard-user", "65533"]);
    let stranger = Stranger::new(&ensemble, &first);
    let is_refused = |pod: &Pod, times: usize| {
        let said = stranger.connects(pod);
        assert!(!said.contains("Permission denied"), "{said}");
        let code = stranger.guard(pod).wait(BOUND).unwrap().expect("it ends").code();
        assert_eq!(code, Some(77), "{}", pod.said());
        let sentence = "the keeper takes no guard of this user: name it with --guard-user";
        pod.says_times(times, sentence);
    };
    // There is no other guard yet, so only its user speaks against it.
    is_refused(&first, 1);
    runs_and_hands_over(&ensemble, &mut first, |first| is_refused(first, 2));
    assert!(!stranger.started.exists());
}
