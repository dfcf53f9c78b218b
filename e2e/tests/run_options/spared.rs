//! The number of a keeper's process, after its end: the kernel gives it to another process sooner or later.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_judge::record::{Moment, Record, Records};
use lockkeeper_product::binaries;
use lockkeeper_product::worker::keeper_of;
use lockkeeper_testbed::Ensemble;
use lockkeeper_testbed::faults;
use lockkeeper_testbed::process::wait_for;
use rustix::process::Pid;

use crate::harness::{BOUND, Run, ensemble, wait_for_contenders, worker};

const LOCK: &str = "/spared/number";

/// With this file a process chooses the number of its next child (proc_sys_kernel(5)).
const LAST_NUMBER: &str = "/proc/sys/kernel/ns_last_pid";

/// The application: a recorder, and another one with the number that `number` names as soon as there is such a file.
/// Another process may get the number first, so it tries until it has it.
const APPLICATION: &str = r#"
"$RECORDER" "$RECORD" --name main --ignore-sigterm &
until [ -e "$NUMBER" ]; do sleep 0.02; done
read -r number <"$NUMBER"
while :; do
    echo $((number - 1)) >/proc/sys/kernel/ns_last_pid
    setsid "$RECORDER" "$RECORD" --name heir --ignore-sigterm &
    if [ $! = "$number" ]; then break; fi
    kill -9 $!
    wait $!
done
wait
"#;

/// A run in a PID namespace of its own, where nobody else takes numbers. The guard is not the first process there.
struct Holder {
    run: Run,
    record: PathBuf,
    number: PathBuf,
}

impl Holder {
    fn start(ensemble: &Ensemble) -> Self {
        let [record, number] = ["spared.record", "spared.number"].map(|name| ensemble.directory().join(name));
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
            .args(["sh", "-c", "\"$@\"; exit $?", "sh"])
            .arg(binaries::lockkeeper().unwrap())
            .args(["run", "--connect", &ensemble.connect_string(), "--lock", LOCK])
            .args([
                "--session-timeout",
                "15s",
                "--stop-grace",
                "400ms",
                "--tick-time",
                "1s",
            ])
            // A control group would be killed as a whole, whoever is in it.
            .args(["--containment", "sweep"])
            .args(["--", "sh", "-c", APPLICATION])
            .env("RECORDER", binaries::recorder().unwrap())
            .env("RECORD", &record)
            .env("NUMBER", &number);
        let run = Run::spawn(ensemble, "spared-holder", command);
        Self { run, record, number }
    }

    fn records(&self) -> Vec<Record> {
        // It may not have begun yet.
        Records::read(&self.record)
            .map(|read| read.records)
            .unwrap_or_default()
    }

    fn guard(&self) -> Pid {
        let shell = only_child(self.run.process.pid()).expect("the first process of the namespace");
        only_child(shell).expect("the guard")
    }
}

fn only_child(parent: Pid) -> Option<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    Pid::from_raw(children.trim().parse().ok()?)
}

/// Its number in its own PID namespace.
fn number_inside(process: Pid) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let numbers = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .unwrap();
    numbers.split_whitespace().next_back().unwrap().parse().unwrap()
}

/// The guard spares its keeper, and all that descends from it, when it kills. That must not go over to whoever has the
/// number next.
#[test]
fn a_process_of_the_application_that_gets_the_number_of_a_keeper_that_has_ended_is_killed_in_time_like_the_rest()
 {
    let ensemble = ensemble();
    if let Err(reason) = ensemble.network().can_cut() {
        return lockkeeper_skip::skip(reason);
    }
    if !rustix::process::getuid().is_root() {
        return lockkeeper_skip::skip("needs root for a PID namespace");
    }
    if !Path::new(LAST_NUMBER).exists() {
        return lockkeeper_skip::skip("the kernel lets nobody choose the numbers of processes");
    }
    let holder = Holder::start(&ensemble);
    wait_for(BOUND, || (!holder.records().is_empty()).then_some(()))
        .unwrap_or_else(|| panic!("{}", holder.run.stderr()));
    let token = holder.records()[0].token;
    let waiter = worker(&ensemble, "spared-waiter", LOCK, &[], &[]);
    wait_for_contenders(&ensemble, LOCK, 2);

    let keeper = keeper_of(holder.guard()).expect("it has a keeper");
    let number = number_inside(keeper);
    faults::kill(keeper).unwrap();
    // Its number is free when its parent, the guard, has seen its end.
    let is_free = || (!Path::new(&format!("/proc/{keeper}")).exists()).then_some(());
    wait_for(BOUND, is_free).expect("the guard sees its end");
    let draft = holder.number.with_extension("draft");
    std::fs::write(&draft, format!("{number}\n")).unwrap();
    std::fs::rename(draft, &holder.number).unwrap();
    let has_it = || holder.records().into_iter().rfind(|record| record.pid == number);
    wait_for(BOUND, has_it).unwrap_or_else(|| panic!("{}", holder.run.stderr()));
    println!("a process of the application has the keeper's number {number}");

    for server in 0..ensemble.len() {
        ensemble.cut(&holder.run.host, ensemble.server(server)).unwrap();
    }
    let next = waiter.wait_until_it_runs(token, BOUND).unwrap();
    let begun = waiter.first_stamp(next).unwrap();
    // What the guard has spared would record as well.
    let goes_on = || (waiter.last_stamp(next).ok()? > begun + Duration::from_secs(1)).then_some(());
    wait_for(BOUND, goes_on).expect("the next one runs");
    let records = holder.records();
    let begins = records
        .iter()
        .filter(|record| matches!(record.moment, Moment::Begin { .. }));
    assert_eq!(begins.filter(|record| record.pid == number).count(), 1);
    let report = check(&[records, waiter.records().unwrap()].concat(), Rule::Exclusive);
    println!("{report}");
    assert!(report.is_clean() && report.holds.len() == 2, "{report}");
    assert!(report.holds[0].pids.contains(&number), "{report}");
}
