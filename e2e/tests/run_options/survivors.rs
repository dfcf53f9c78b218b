//! Processes that outlive SIGKILL, for which the keeper keeps the lock. Here it is a process of root, which a
//! guard of another user may not signal; `frozen.rs` has processes in uninterruptible sleep.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_judge::record::{Record, Records};
use lockkeeper_product::binaries;
use lockkeeper_product::nobody::{AS_NOBODY, copy, room};
use lockkeeper_product::worker::Worker;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{BOUND, Run, client, ensemble, wait_for_contenders, worker};

/// A session that outlives the pauses of a keeper on a busy machine.
const CALM: &str = "20s";

/// By then another contender would have the lock if the session alone counted.
const SOME_CALM_SESSIONS: Duration = Duration::from_secs(24);

/// The state of the lock of `run` once the keeper knows of a survivor.
pub fn survivor(run: &Run, socket: &str) -> Value {
    let survivor = || {
        let (code, said) = client(&["status", "--socket", socket, "--output", "json"]);
        let status: Value = serde_json::from_str(&said).ok().filter(|_| code == 0)?;
        status.get("survivors").is_some().then_some(status)
    };
    // A guard that is slow at the deadline is killed, and its keeper tells of the survivor seconds later.
    wait_for(2 * BOUND, survivor).unwrap_or_else(|| panic!("{socket} knows of none: {}", run.stderr()))
}

/// What a keeper writes after its guard was killed.
const GUARD_IS_GONE: &str = "The guard is gone";

/// A holder whose application is a process of root, though it is not root itself.
struct Holder {
    run: Run,
    directory: PathBuf,
}

impl Holder {
    fn start(ensemble: &Ensemble, name: &'static str, lock: &str, session: &str) -> Self {
        let (directory, lockkeeper) = room(ensemble.directory(), name).unwrap();
        let setpriv = Command::new("sh")
            .args(["-c", "command -v setpriv"])
            .output()
            .unwrap();
        let setpriv = PathBuf::from(String::from_utf8(setpriv.stdout).unwrap().trim());
        let (become_root, recorder) = (directory.join("become-root"), directory.join("recorder"));
        copy(&setpriv, &become_root, 0o4755).unwrap();
        copy(&binaries::recorder().unwrap(), &recorder, 0o755).unwrap();
        let mut command = Command::new(AS_NOBODY[0]);
        command
            .args(&AS_NOBODY[1..])
            .arg(lockkeeper)
            .args(["run", "--lock", lock]);
        command.args(["--connect", &ensemble.connect_string()]);
        command.args([
            "--session-timeout",
            session,
            // Cut off, it keeps the lock from others for a session, and not for a lease alone.
            "--lease-duration",
            "off",
            "--stop-grace",
            "400ms",
            "--tick-time",
            "1s",
        ]);
        command.arg("--socket").arg(directory.join("lock.sock"));
        command
            .arg("--")
            .arg(become_root)
            .args(["--reuid", "0", "--regid", "0", "--clear-groups"]);
        command
            .arg(recorder)
            .arg(directory.join("record"))
            .args(["--name", name]);
        let run = Run::spawn(ensemble, name, command);
        let holder = Self { run, directory };
        wait_for(BOUND, || (!holder.records().is_empty()).then_some(()))
            .unwrap_or_else(|| panic!("it does not run: {}", holder.run.stderr()));
        holder
    }

    fn records(&self) -> Vec<Record> {
        let file = self.directory.join("record");
        if file.exists() {
            Records::read(&file).unwrap().records
        } else {
            Vec::new()
        }
    }

    fn socket(&self) -> String {
        self.directory.join("lock.sock").to_str().unwrap().to_owned()
    }

    fn survivor(&self) -> Value {
        survivor(&self.run, &self.socket())
    }

    /// The guard is the process that was started.
    fn assert_killed(&mut self) {
        let stderr = self.run.stderr();
        assert!(stderr.contains(GUARD_IS_GONE), "{stderr}");
        assert_eq!(self.run.wait().signal(), Some(9), "{stderr}");
    }

    fn kill_the_survivor(&self, status: &Value) {
        let pid = status["survivors"]["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(Pid::from_raw).expect("its number");
        kill_process(pid, Signal::KILL).unwrap();
    }
}

fn all(holder: &Holder, other: &Worker) -> Vec<Record> {
    [holder.records(), other.records().unwrap()].concat()
}

/// How many sessions the servers serve.
fn sessions(ensemble: &Ensemble) -> usize {
    let of = |server| {
        let told = ensemble.ask(server, "cons").unwrap_or_default();
        // A connection without a session, such as that of a question, has no `sid`.
        told.lines().filter(|line| line.contains("sid=0x")).count()
    };
    (0..ensemble.len()).map(of).sum()
}

#[test]
fn nobody_gets_a_lost_lock_while_a_process_is_known_to_outlive_sigkill() {
    if !rustix::process::getuid().is_root() {
        return lockkeeper_skip::skip("needs root for a process that a guard may not signal");
    }
    let ensemble = Ensemble::start(Config::default()).expect("the servers start");
    let lock = "/survivors/lost";
    let holder = Holder::start(&ensemble, "survivor-lost", lock, CALM);
    let token = holder.records()[0].token;
    let next = worker(&ensemble, "survivor-next", lock, &[], &[]);
    wait_for_contenders(&ensemble, lock, 2);

    // Without a quorum no write is acknowledged, so the lease ends; and no leader ends the session, however late the keeper
    // learns of the survivor. The next leader gives the session its whole time.
    let down = [0, 1];
    down.iter().for_each(|&server| ensemble.kill(server));
    let status = holder.survivor();
    for server in down {
        ensemble.launch(server).unwrap();
    }
    ensemble.wait_ready().unwrap();
    // Both have their sessions again, so the next one could get the lock.
    let are_back = || (sessions(&ensemble) == 2).then_some(());
    wait_for(BOUND, are_back).expect("both reach a server");
    println!("{status}");
    std::thread::sleep(SOME_CALM_SESSIONS);
    let report = check(&all(&holder, &next), Rule::Exclusive);
    assert!(report.is_clean(), "{report}\n{}", holder.run.stderr());
    assert!(next.records().unwrap().is_empty(), "{}", next.log());
    let status = holder.survivor();
    assert_eq!(
        (&status["state"], &status["survivors"]["processes"]),
        (&"Lost".into(), &1.into())
    );
    assert!(
        status["reason"]
            .as_str()
            .unwrap()
            .contains("no other contender gets the lock"),
        "{status}"
    );

    holder.kill_the_survivor(&status);
    next.wait_until_it_runs(token, BOUND).unwrap();
    let report = check(&all(&holder, &next), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 2, "{report}");
}

#[test]
fn a_lock_that_is_kept_for_a_survivor_is_given_up_by_an_explicit_word_of_its_user() {
    let ensemble = ensemble();
    if !rustix::process::getuid().is_root() {
        return lockkeeper_skip::skip("needs root for a process that a guard may not signal");
    }
    let lock = "/survivors/given-up";
    let mut holder = Holder::start(&ensemble, "survivor-kept", lock, CALM);
    let token = holder.records()[0].token;
    let next = worker(&ensemble, "survivor-given", lock, &[], &[]);
    wait_for_contenders(&ensemble, lock, 2);
    let socket = holder.socket();
    let abandon = ["release", "--abandon-survivors", "--socket", &socket];
    let (code, said) = client(&abandon);
    assert_eq!(code, 77, "{said}");
    assert!(
        said.contains("nothing is known to have outlived its deadline"),
        "{said}"
    );

    holder.run.signal(Signal::TERM);
    // This release is not confirmed.
    let asked = client(&["release", "--socket", &socket]);
    assert_ne!(asked.0, 0, "{}", asked.1);
    let status = holder.survivor();
    std::thread::sleep(SOME_CALM_SESSIONS);
    assert!(next.records().unwrap().is_empty(), "{}", next.log());

    let (code, said) = client(&abandon);
    assert_eq!(code, 0, "{said}");
    next.wait_until_it_runs(token, BOUND).unwrap();
    // On a machine that lets a guard wait for a processor too long, the keeper has killed it, and ends with the user's word.
    let noted = wait_for(BOUND, || {
        let (_, said) = client(&["status", "--socket", &socket, "--output", "json"]);
        let status: Option<Value> = serde_json::from_str(&said).ok();
        let is_given_up = status.is_some_and(|status| status["survivors"]["givenUp"] == true);
        let is_alone = holder.run.stderr().contains(GUARD_IS_GONE);
        (is_given_up || is_alone).then_some(is_given_up)
    });
    holder.kill_the_survivor(&status);
    let ended = holder.run.wait();
    if ended.signal() == Some(9) {
        holder.assert_killed();
    } else {
        assert_eq!(
            (noted, ended.code()),
            (Some(true), Some(143)),
            "{}",
            holder.run.stderr()
        );
    }
}

#[test]
fn a_lock_that_is_kept_after_its_guard_was_killed_is_given_up_by_that_word_too() {
    let ensemble = ensemble();
    if !rustix::process::getuid().is_root() {
        return lockkeeper_skip::skip("needs root for a process that a guard may not signal");
    }
    let lock = "/survivors/given-up-without-guard";
    let mut holder = Holder::start(&ensemble, "survivor-alone", lock, CALM);
    let token = holder.records()[0].token;
    let next = worker(&ensemble, "survivor-last", lock, &[], &[]);
    wait_for_contenders(&ensemble, lock, 2);
    holder.run.process.kill();
    let status = holder.survivor();
    let (code, said) = client(&["release", "--abandon-survivors", "--socket", &holder.socket()]);
    assert_eq!(code, 0, "{said}");
    next.wait_until_it_runs(token, BOUND).unwrap();
    holder.kill_the_survivor(&status);
    holder.assert_killed();
}

/// The keeper may neither kill the process nor read its environment. The anchor may not kill it either, but
/// sees it.
#[test]
fn nobody_gets_the_lock_while_something_outlives_a_guard_that_was_killed() {
    let ensemble = ensemble();
    if !rustix::process::getuid().is_root() {
        return lockkeeper_skip::skip("needs root for a process that a guard may not signal");
    }
    let lock = "/survivors/guard";
    let mut holder = Holder::start(&ensemble, "survivor-guard", lock, CALM);
    let token = holder.records()[0].token;
    let next = worker(&ensemble, "survivor-waits", lock, &[], &[]);
    wait_for_contenders(&ensemble, lock, 2);
    holder.run.process.kill();
    let status = holder.survivor();
    println!("{status}");
    assert_eq!(status["survivors"]["processes"], 1);
    std::thread::sleep(SOME_CALM_SESSIONS);
    let report = check(&all(&holder, &next), Rule::Exclusive);
    assert!(report.is_clean(), "{report}");
    assert!(next.records().unwrap().is_empty(), "{}", next.log());

    holder.kill_the_survivor(&status);
    next.wait_until_it_runs(token, BOUND).unwrap();
    let report = check(&all(&holder, &next), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 2, "{report}");
}
