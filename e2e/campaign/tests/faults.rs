//! The faults themselves, on real servers and real processes.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper_campaign::random_faults::{Event, Fault, Plan, Role, Step, Workers};
use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_judge::record::Records;
use lockkeeper_judge::timeline::{Timeline, svg};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::binaries;
use lockkeeper_testbed::faults::{self, Rationing};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble, Host, Process};
use rustix::process::Pid;

const BOUND: Duration = Duration::from_secs(30);

fn recorder(file: &Path, name: &str, token: u32) -> Command {
    let mut command = Command::new(binaries::recorder().unwrap());
    command
        .arg(file)
        .args(["--name", name, "--token", &token.to_string()]);
    command
}

/// The longest time without a line since `from`, including the time from the last line until now.
fn longest_silence(file: &Path, from: BootInstant) -> Duration {
    let records = Records::read(file).unwrap().records;
    let seen = records.iter().map(|record| record.at).filter(|&at| at >= from);
    let times: Vec<_> = [from]
        .into_iter()
        .chain(seen)
        .chain([BootInstant::now()])
        .collect();
    times
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .max()
        .unwrap_or_default()
}

fn lines(file: &Path) -> usize {
    std::fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

fn wait_for_lines(file: &Path, more: usize) {
    let enough = lines(file) + more;
    wait_for(BOUND, || (lines(file) >= enough).then_some(())).expect("the program records");
}

#[test]
fn a_stopped_program_is_silent_until_it_is_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("record");
    let mut process = Process::spawn("recorder", recorder(&file, "worker", 1)).unwrap();
    wait_for_lines(&file, 3);
    faults::stop(process.pid()).unwrap();
    let stopped = || std::fs::read_to_string(format!("/proc/{}/stat", process.pid().as_raw_pid())).ok();
    wait_for(BOUND, || stopped()?.contains(") T ").then_some(())).expect("it stops");
    let count = lines(&file);
    assert!(
        wait_for(Duration::from_millis(200), || (lines(&file) > count)
            .then_some(()))
        .is_none()
    );
    faults::resume(process.pid()).unwrap();
    wait_for_lines(&file, 3);
    faults::kill(process.pid()).unwrap();
    assert!(!process.wait(BOUND).unwrap().expect("it ends").success());
}

fn processor_time(process: &Process) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid().as_raw_pid())).unwrap();
    // proc_pid_stat(5): utime and stime are the 14th and 15th field, and the name before them may hold spaces.
    let (_, after_name) = stat.rsplit_once(") ").unwrap();
    let ticks: u64 = after_name
        .split(' ')
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().unwrap())
        .sum();
    Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap()
}

#[test]
fn a_starved_program_gets_next_to_no_processor_time_and_recovers() {
    let mut busy = Command::new("sh");
    busy.args(["-c", "while :; do :; done"]);
    let process = Process::spawn("busy", busy).unwrap();
    let wait_for_processor_time = |time| {
        let enough = processor_time(&process) + time;
        wait_for(BOUND, || (processor_time(&process) >= enough).then_some(())).expect("it runs");
    };
    wait_for_processor_time(Duration::from_millis(200));
    const WINDOW: Duration = Duration::from_secs(1);
    let (period, slice) = (Duration::from_millis(500), Duration::from_millis(1));
    let starvation = Rationing::begin(process.pid(), period, slice).unwrap();
    // On a busy machine the thread that stops it may be late now and then.
    let (mut began, mut before) = (BootInstant::now(), processor_time(&process));
    let is_starved = || {
        let elapsed = BootInstant::now() - began;
        if elapsed < WINDOW {
            return None;
        }
        let used = processor_time(&process) - before;
        println!("{used:?} of {elapsed:?}");
        (began, before) = (BootInstant::now(), processor_time(&process));
        (used <= elapsed / 10).then_some(())
    };
    wait_for(BOUND, is_starved).expect("a window in which it is starved");
    drop(starvation);
    wait_for_processor_time(Duration::from_millis(200));
}

struct OneWorker {
    host: Host,
    process: Process,
}

impl Workers for OneWorker {
    fn host(&self, _worker: usize) -> Host {
        self.host.clone()
    }

    fn processes(&self, _worker: usize) -> Vec<Pid> {
        vec![self.process.pid()]
    }
}

/// Carries out a plan beside one worker, which appends to the file, and checks that all faults were undone.
/// Does nothing where connections cannot be cut.
fn carry_out(plan: &Plan, check_worker: impl FnOnce(&Path, BootInstant)) {
    let config = Config {
        tick: Duration::from_millis(500),
        sync_limit: 4,
        ..Config::default()
    };
    let ensemble = Ensemble::start(config).expect("the servers start");
    if let Err(reason) = ensemble.network().can_cut() {
        return lockkeeper_skip::skip(reason);
    }
    let file = ensemble.directory().join("record");
    let host = ensemble.client("worker").unwrap();
    let process = host.spawn("worker", recorder(&file, "worker", 1)).unwrap();
    let worker = OneWorker { host, process };
    wait_for_lines(&file, 1);

    println!("{plan}");
    let began = BootInstant::now();
    let events = Mutex::new(Vec::new());
    plan.run(&ensemble, &worker, &AtomicBool::new(false), &|event| {
        events.lock().unwrap().push(event)
    })
    .unwrap();

    let events = events.into_inner().unwrap();
    println!("{events:#?}");
    let labels = |over: bool| {
        let mut labels: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::Struck { label, .. } if !over => Some(label.as_str()),
                Event::Over { label, .. } if over => Some(label.as_str()),
                _ => None,
            })
            .collect();
        labels.sort_unstable();
        labels
    };
    assert_eq!(labels(false).len(), plan.steps.len(), "a fault was skipped");
    assert_eq!(labels(false), labels(true));
    ensemble.wait_for_roles().unwrap();
    assert!((0..3).all(|server| worker.host.connect(ensemble.address(server), BOUND).is_ok()));
    check_worker(&file, began);

    let mut timeline = Timeline::of(&check(&Records::read(&file).unwrap().records, Rule::Exclusive));
    events.iter().for_each(|event| event.mark(&mut timeline));
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("plan-{}.svg", plan.seed));
    let title = "A plan of faults, and one worker";
    let drawn = lockkeeper_palette::write(&picture, |theme| svg::render(&timeline, title, theme)).unwrap();
    println!("drawn in {drawn:?}");
}

#[test]
fn a_plan_strikes_servers_and_workers_and_leaves_everything_whole() {
    let seconds = |at: f64, fault, lasts: f64| Step {
        at: Duration::from_secs_f64(at),
        fault,
        lasts: Duration::from_secs_f64(lasts),
    };
    let steps = vec![
        seconds(0.2, Fault::IsolateServer(Role::Leader), 3.0),
        seconds(0.4, Fault::IsolateWorker(0), 1.0),
        seconds(1.6, Fault::PauseWorker(0, 0), 1.0),
        seconds(2.8, Fault::CutWorker(0, Role::Follower(0)), 0.5),
        seconds(3.6, Fault::PauseServer(Role::Follower(0)), 1.0),
        seconds(5.0, Fault::KillServer(Role::Follower(1)), 1.0),
        seconds(6.5, Fault::RollingRestart, 10.0),
    ];
    carry_out(&Plan { seed: 0, steps }, |file, began| {
        let silence = longest_silence(file, began);
        assert!(
            silence >= Duration::from_millis(900),
            "the pause of 1 s is not in the record: {silence:?}"
        );
        wait_for_lines(file, 3);
    });
}

#[test]
fn a_plan_that_is_stopped_early_undoes_what_it_has_begun() {
    let ensemble = Ensemble::start(Config {
        servers: 1,
        ..Config::default()
    })
    .expect("the server starts");
    let file = ensemble.directory().join("record");
    let host = ensemble.client("worker").unwrap();
    let process = host.spawn("worker", recorder(&file, "worker", 1)).unwrap();
    let worker = OneWorker { host, process };
    wait_for_lines(&file, 1);
    let step = |at: u64| Step {
        at: Duration::from_millis(at),
        fault: Fault::PauseWorker(0, 0),
        lasts: Duration::from_secs(600),
    };
    let plan = Plan {
        seed: 0,
        steps: vec![step(0), step(600_000)],
    };
    let stop = AtomicBool::new(false);
    let struck = AtomicUsize::new(0);
    let observe = |event| {
        struck.fetch_add(
            usize::from(matches!(event, Event::Struck { .. })),
            Ordering::Relaxed,
        );
        stop.store(true, Ordering::Relaxed);
    };
    plan.run(&ensemble, &worker, &stop, &observe).unwrap();
    assert_eq!(struck.into_inner(), 1);
    wait_for_lines(&file, 3);
}
