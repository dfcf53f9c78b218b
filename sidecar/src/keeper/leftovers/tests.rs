//! What is found of a run, and killed, and waited for.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{self, Child, Stdio};
use std::sync::{Arc, Mutex};

use lockkeeper_lock::BootInstant;
use tokio::sync::oneshot;

use super::look::marked;
use super::*;
use crate::guard::handed_to_keeper::{RUNS, RunId};
use crate::guard::{ContainmentChoice, Hold, Speaker, anchor_says};

const PATIENCE: Duration = Duration::from_secs(30);

/// A shell in the environment of the application of a run, inside of another one or not.
fn application(run: RunId, outer: Option<RunId>, script: &str) -> Child {
    let mut shell = process::Command::new("sh");
    let runs = run.inside(outer.map(|outer| outer.inside(None)));
    shell.args(["-c", script]).env(RUNS, runs);
    shell
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    shell.spawn().expect("a shell")
}

/// What a guard has left to us that is not held together, and what its anchor would speak into.
fn will(run: RunId) -> (Will, Speaker) {
    let hold = Hold::new(ContainmentChoice::Sweep).expect("nothing");
    Will::make(run, &hold).expect("a pipe")
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
        .block_on(future)
}

fn kill_and_wait(run: RunId) {
    let (mut will, anchor) = will(run);
    drop(anchor);
    let end = block_on(kill(&mut will, None, &BootClock, |left| {
        panic!("{left:?} outlived SIGKILL")
    }));
    assert_eq!(end, End::Unknown);
}

/// Waits until `count` processes of the run are there.
fn until_there(run: RunId, count: usize) {
    let end = BootInstant::now() + PATIENCE;
    while marked(run).len() != count {
        assert!(BootInstant::now() < end, "{count} processes are not there");
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn everything_of_the_run_is_killed_also_what_left_its_parent_and_session() {
    let run = RunId::draw();
    let mut shell = application(
        run,
        None,
        "(setsid sh -c '(trap \"\" TERM; sleep 60; :) & exec sleep 60' &); sleep 60; :",
    );
    // Two shells, and a sleep of each beside the one that was executed in place.
    until_there(run, 5);
    kill_and_wait(run);
    assert_eq!(marked(run), []);
    shell.wait().expect("reaped");
}

#[test]
fn an_application_whose_guard_does_not_end_is_killed_without_it() {
    let run = RunId::draw();
    let mut shell = application(run, None, "sleep 60 & sleep 60; :");
    until_there(run, 3);
    // Its anchor lives on.
    let (will, _anchor) = will(run);
    Leftovers::new(None, Some(will)).kill_run();
    until_there(run, 0);
    shell.wait().expect("reaped");
}

#[test]
fn what_a_run_inside_of_it_has_started_is_killed_too() {
    let (outer, inner) = (RunId::draw(), RunId::draw());
    let mut application = application(inner, Some(outer), "exec sleep 60");
    until_there(inner, 1);
    kill_and_wait(outer);
    assert_eq!(marked(inner), []);
    assert!(!application.wait().expect("reaped").success());
}

#[test]
fn a_tree_that_forks_while_it_is_killed_is_killed_to_the_last() {
    let run = RunId::draw();
    let mut shell = application(
        run,
        None,
        "n=0; while [ $n -lt 400 ]; do n=$((n+1)); (setsid sleep 60 &); done; sleep 60; :",
    );
    let end = BootInstant::now() + PATIENCE;
    while marked(run).len() < 3 {
        assert!(BootInstant::now() < end, "it does not fork");
    }
    kill_and_wait(run);
    assert_eq!(marked(run), []);
    shell.wait().expect("reaped");
}

/// Something of the run appears while its keeper waits for the next look.
#[derive(Clone)]
struct Late(Arc<Mutex<(RunId, Option<Child>)>>);

impl Clock for Late {
    fn now(&self) -> BootInstant {
        BootInstant::now()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + 'static {
        let mut guard = self.0.lock().expect("no panic");
        let (run, late) = &mut *guard;
        late.get_or_insert_with(|| application(*run, None, "exec sleep 60"));
        tokio::time::sleep(duration)
    }
}

#[test]
fn what_appears_while_the_rest_is_killed_is_killed_too() {
    let run = RunId::draw();
    let mut first = application(run, None, "exec sleep 60");
    until_there(run, 1);
    let late = Late(Arc::new(Mutex::new((run, None))));
    let (mut will, anchor) = will(run);
    drop(anchor);
    block_on(kill(&mut will, None, &late, |_| {}));
    let mut late = late
        .0
        .lock()
        .expect("no panic")
        .1
        .take()
        .expect("it has appeared");
    for killed in [&mut first, &mut late] {
        // Reaped at once, and not after a minute: it was killed.
        assert!(!killed.wait().expect("reaped").success());
    }
}

#[test]
fn what_one_look_misses_is_killed_after_another() {
    let run = RunId::draw();
    let late = Late(Arc::new(Mutex::new((run, None))));
    let (mut will, anchor) = will(run);
    drop(anchor);
    let end = block_on(kill(&mut will, None, &late, |_| {}));
    let missed = late.0.lock().expect("no panic").1.take();
    let status = missed.expect("a second look").wait();
    assert!(!status.expect("reaped").success());
    assert_eq!(end, End::Unknown);
}

/// A control group in which something appears again once it was seen to be empty for some looks.
#[derive(Clone)]
struct Refilled(Group);

impl Clock for Refilled {
    fn now(&self) -> BootInstant {
        BootInstant::now()
    }

    fn sleep(&self, _: Duration) -> impl Future<Output = ()> + Send + 'static {
        let mut looks = self.0.looks.lock().expect("no panic");
        *looks += 1;
        let populated = u8::from(*looks == QUIET_ROUNDS - 1);
        let events = format!("populated {populated}\nfrozen 0\n");
        self.0.events.write_all_at(events.as_bytes(), 0).expect("written");
        std::future::ready(())
    }
}

#[test]
fn what_is_found_begins_the_looks_anew() {
    let group = Group::populated(0);
    let (will, anchor) = will(RunId::draw());
    drop(anchor);
    let mut will = group.bequeath(will);
    let end = block_on(kill(&mut will, None, &Refilled(group.clone()), |_| {
        panic!("it is gone soon")
    }));
    assert_eq!(end, End::Unknown);
    // The look that finds something is none of those that find nothing. On a busy machine some look may be incomplete, and
    // begins them anew as well.
    let looks = *group.looks.lock().expect("no panic");
    assert!(looks >= 2 * QUIET_ROUNDS, "{looks}");
}

/// An anchor that speaks each time at which its keeper waits: how many are left, or at last that there is nothing, or
/// that it has been killed.
#[derive(Clone)]
struct Anchor(Arc<Mutex<Life>>);

/// Its pipe while it lives, and what it will say, the last first: nothing stands for its end.
struct Life {
    pipe: Option<Speaker>,
    words: Vec<Option<u32>>,
}

impl Clock for Anchor {
    fn now(&self) -> BootInstant {
        BootInstant::now()
    }

    fn sleep(&self, _: Duration) -> impl Future<Output = ()> + Send + 'static {
        let Life { pipe, words } = &mut *self.0.lock().expect("no panic");
        match words.pop() {
            Some(Some(count)) => anchor_says(pipe.as_ref().expect("it lives"), count, 7),
            Some(None) => drop(pipe.take()),
            None => {}
        }
        std::future::ready(())
    }
}

/// What the keeper says of survivors, and how its wait ends, with an anchor that says this from the last to the first.
fn waited(words: Vec<Option<u32>>) -> (Vec<Survivors>, End) {
    let (mut will, pipe) = will(RunId::draw());
    let anchor = Anchor(Arc::new(Mutex::new(Life {
        pipe: Some(pipe),
        words,
    })));
    let told = Mutex::new(Vec::new());
    let end = block_on(kill(&mut will, None, &anchor, |left| {
        told.lock().expect("no panic").push(left);
    }));
    (told.into_inner().expect("no panic"), end)
}

#[test]
fn the_lock_is_kept_while_the_anchor_lives_and_its_survivors_are_told() {
    let silent = vec![Some(2); ROUNDS as usize + 1];
    let (told, end) = waited([vec![None], silent].concat());
    let survivors = Survivors {
        processes: Some(2),
        pid: Some(7),
        given_up: false,
    };
    // Children that other tests fork may hold the pipe open for a moment after the anchor's end.
    let unknown = Survivors {
        processes: None,
        pid: None,
        given_up: false,
    };
    let first_unknown = told.iter().position(|told| *told != survivors);
    let (known, after) = told.split_at(first_unknown.unwrap_or(told.len()));
    assert!(
        known.len() >= 3 && after.iter().all(|told| *told == unknown),
        "{told:?}"
    );
    assert_eq!(end, End::Unknown);
}

/// A control group whose last process ends some time after it was killed.
#[derive(Clone)]
struct Group {
    kill: Arc<File>,
    events: Arc<File>,
    looks: Arc<Mutex<u32>>,
}

impl Group {
    /// One that says how many processes are in it: none or some.
    fn populated(populated: u8) -> Self {
        let file = || Arc::new(tempfile::tempfile().expect("a file"));
        let group = Self {
            kill: file(),
            events: file(),
            looks: Arc::default(),
        };
        let events = format!("populated {populated}\nfrozen 0\n");
        group.events.write_all_at(events.as_bytes(), 0).expect("written");
        group
    }

    /// Leaves it to the keeper.
    fn bequeath(&self, will: Will) -> Will {
        let descriptor = |file: &File| file.try_clone().expect("a descriptor").into();
        will.with_group(descriptor(&self.kill), descriptor(&self.events))
    }
}

impl Clock for Group {
    fn now(&self) -> BootInstant {
        BootInstant::now()
    }

    fn sleep(&self, _: Duration) -> impl Future<Output = ()> + Send + 'static {
        let mut looks = self.looks.lock().expect("no panic");
        *looks += 1;
        // Later than a keeper waits that sees nothing.
        if *looks == QUIET_ROUNDS + 10 {
            self.events
                .write_all_at(b"populated 0\nfrozen 0\n", 0)
                .expect("written");
        }
        std::future::ready(())
    }
}

#[test]
fn the_control_group_is_killed_and_the_lock_is_kept_until_nothing_is_in_it() {
    let group = Group::populated(1);
    let (will, anchor) = will(RunId::draw());
    drop(anchor);
    let mut will = group.bequeath(will);
    let end = block_on(kill(&mut will, None, &group, |_| panic!("it is gone soon")));
    let mut killed = [0; 4];
    group.kill.read_exact_at(&mut killed, 0).expect("read");
    assert_eq!(&killed, b"1111");
    assert!(*group.looks.lock().expect("no panic") >= 2 * QUIET_ROUNDS + 10);
    // A process that may write to the groups above may have left the group.
    assert_eq!(end, End::Unknown);
}

#[test]
fn only_the_word_of_the_anchor_that_it_has_nothing_left_is_a_proof() {
    assert_eq!(waited(vec![None, Some(0), Some(1)]), (vec![], End::Proven));
    assert_eq!(waited(vec![None, Some(1)]), (vec![], End::Unknown));
    assert_eq!(waited(vec![None]), (vec![], End::Unknown));
}

#[test]
fn what_outlives_its_guard_is_given_up_by_an_explicit_word_and_by_no_other() {
    let (sender, mut commands) = mpsc::channel(4);
    let ask = |command: fn(oneshot::Sender<_>) -> Command| {
        let (reply, answer) = oneshot::channel();
        sender.try_send(command(reply)).expect("room for it");
        answer
    };
    block_on(async {
        let others = [ask(Command::StepDown), ask(Command::Terminating)];
        let word = ask(Command::AbandonSurvivors);
        assert_eq!(given_up(&mut commands).await, End::GivenUp);
        for other in others {
            assert!(other.await.expect("an answer").is_err());
        }
        assert_eq!(word.await, Ok(Ok(())));
    });
}

#[test]
fn who_only_asks_at_the_socket_or_belongs_to_another_run_is_left_alone() {
    let (run, outer) = (RunId::draw(), RunId::draw());
    let mut monitor = process::Command::new("sleep")
        .arg("60")
        .env("LOCKKEEPER_SOCKET", "/run/lock.sock")
        .env("LOCKKEEPER_FENCING_TOKEN", "7")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("spawned");
    let mut other = application(outer, None, "exec sleep 60");
    let mut own = application(run, Some(outer), "exec sleep 60");
    until_there(run, 1);
    until_there(outer, 2);
    kill_and_wait(run);
    assert!(!own.wait().expect("reaped").success());
    for bystander in [&mut monitor, &mut other] {
        assert_eq!(bystander.try_wait().expect("asked"), None, "it was killed");
        bystander.kill().expect("killed");
        bystander.wait().expect("reaped");
    }
}
