//! Eight chains of processes that fork as fast as they can, under a sweep: it stops one process after the other, so it
//! may need many looks. As long as it has not caught up, nobody may be told that the application is gone.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_judge::checker::{Report, Rule, check};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::DeletionWatch;
use lockkeeper_product::worker::{Options, Worker, all_records};
use lockkeeper_testbed::Ensemble;
use lockkeeper_testbed::process::wait_for;

use crate::harness::{BOUND, client, ensemble};

/// T of the storm. By the session alone the next one comes some seconds after the deadline: enough for a sweep that is
/// outrun for a while.
const SESSION: Duration = Duration::from_secs(15);

/// So many processes in the record show that the chains are running.
const MANY: usize = 100;

/// A holder with a storm under it, one that waits, and what the leader says of their contenders.
struct Storm {
    holder: Worker,
    waiter: Worker,
    token: i64,
    deletions: DeletionWatch,
    /// The log of the holder.
    log: PathBuf,
}

impl Storm {
    fn start(ensemble: &Ensemble, name: &str, more: &[&str]) -> Self {
        let parent = format!("/storm-{name}");
        let lock = format!("{parent}/lock");
        // Its control node is beside it.
        let deletions = DeletionWatch::begin(ensemble, &parent).unwrap();
        let options = |role: &str| Options {
            session_timeout: SESSION,
            ..Options::new(ensemble, &format!("storm-{name}-{role}"), &lock).unwrap()
        };
        let options = |role| options(role).with_run(&["--lease-duration", "off"]);
        let held = options("holder")
            .with_run(&["--containment", "sweep"])
            .with_run(more)
            .with_recorder(&["--chains", "8", "--ignore-sigterm"]);
        let holder = Worker::start(ensemble, held).unwrap();
        let token = holder.wait_until_it_runs(0, BOUND).unwrap();
        let waiter = Worker::start(ensemble, options("waiter")).unwrap();
        let are_queued = || {
            (deletions
                .lives()
                .iter()
                .filter(|life| life.name.contains("-lock-"))
                .count()
                == 2)
                .then_some(())
        };
        wait_for(BOUND, are_queued).unwrap_or_else(|| panic!("{}", waiter.log()));
        let storm = Self {
            holder,
            waiter,
            token,
            deletions,
            log: ensemble.directory().join(format!("storm-{name}-holder.log")),
        };
        let is_one = || {
            let report = check(&storm.holder.records().unwrap(), Rule::Exclusive);
            (report.holds.first()?.pids.len() > MANY).then_some(())
        };
        wait_for(BOUND, is_one).expect("there is a storm");
        storm
    }

    /// Waits until the waiter has run for a while, in which processes of the storm that are left would record as well.
    fn judged(&self) -> Report {
        let next = self.waiter.wait_until_it_runs(self.token, BOUND).unwrap();
        let begun = self.waiter.first_stamp(next).unwrap();
        let goes_on = || (self.waiter.last_stamp(next).ok()? > begun + Duration::from_secs(1)).then_some(());
        wait_for(BOUND, goes_on).expect("the next one runs");
        let report = check(
            &all_records([&self.holder, &self.waiter]).unwrap(),
            Rule::Exclusive,
        );
        let holds = &report.holds;
        assert!(report.is_clean(), "{:?}", report.violations);
        assert_eq!(holds.len(), 2, "{:?}", self.holder.log());
        println!(
            "{} processes; the next one began {:?} after the last instruction of all",
            holds[0].pids.len(),
            holds[1].begin - holds[0].end
        );
        report
    }

    /// Waits until the guard has told the keeper that nothing is left, and returns a moment hardly after that; `None` if
    /// somebody else runs before.
    fn is_told_to_be_gone(&self) -> Option<BootInstant> {
        const STEP: Duration = Duration::from_micros(300);
        let word = format!("Guard said frame=Gone {{ token: FencingToken({})", self.token);
        let mut file = File::open(&self.log).unwrap();
        let mut log = String::new();
        let end = BootInstant::now() + BOUND;
        while BootInstant::now() < end {
            let is_next_running = !self.waiter.records().unwrap().is_empty();
            let known = log.len().saturating_sub(word.len());
            file.read_to_string(&mut log).unwrap();
            if log[known..].contains(&word) {
                return Some(BootInstant::now());
            }
            if is_next_running {
                return None;
            }
            std::thread::sleep(STEP);
        }
        panic!("the guard does not say so:\n{log}");
    }

    /// The size of the record, which grows as long as anything records.
    fn size(&self) -> u64 {
        std::fs::metadata(self.holder.record_file()).unwrap().len()
    }
}

/// While its keeper reaches the servers, that needs no luck with times: it releases only with proof.
#[test]
fn a_release_hands_the_lock_over_only_when_the_last_process_of_a_storm_of_forks_is_gone() {
    let ensemble = ensemble();
    let path = ensemble.directory().join("storm.sock");
    let socket = path.to_str().unwrap();
    let storm = Storm::start(&ensemble, "released", &["--socket", socket]);
    let told = std::thread::scope(|scope| {
        let told = scope.spawn(|| storm.is_told_to_be_gone());
        let (code, said) = client(&["release", "--socket", socket]);
        assert_eq!(code, 0, "{said}");
        told.join().unwrap().expect("its word comes before the release")
    });
    let size = storm.size();
    let report = storm.judged();
    assert_eq!(storm.size(), size, "it has gone on");
    let deleted = storm.deletions.wait_for_deletion(storm.token, BOUND);
    let deleted = deleted.expect("it has said so");
    let last = report.holds[0].end;
    assert!(
        storm.deletions.was_released(storm.token),
        "{}",
        storm.holder.log()
    );
    assert!(last < told, "{:?} after the word of the guard", last - told);
    assert!(last < deleted, "{:?} after the release", last - deleted);
}

/// A storm can outrun a sweep (docs/safety.md), and does where the guard has no real-time priority: then two may run.
#[test]
fn a_storm_of_forks_whose_servers_are_cut_off_is_over_when_its_guard_says_so_and_before_the_next_one_runs() {
    let ensemble = ensemble();
    if let Err(reason) = ensemble.network().can_cut() {
        return lockkeeper_skip::skip(reason);
    }
    if !rustix::process::getuid().is_root() {
        return lockkeeper_skip::skip("needs root, for the guard's real-time priority");
    }
    let mut storm = Storm::start(&ensemble, "cut", &[]);
    let host = storm.holder.options().host.clone();
    for server in 0..ensemble.len() {
        ensemble.cut(&host, ensemble.server(server)).unwrap();
    }
    // A keeper that has waited for it for too long kills the guard, and with it the storm.
    let told = storm.is_told_to_be_gone();
    let size = storm.size();
    let report = storm.judged();
    let last = report.holds[0].end;
    if let Some(told) = told {
        assert!(last < told, "{:?} after the word of the guard", last - told);
        assert_eq!(storm.size(), size, "it has gone on");
        let status = storm.holder.wait_until_it_ends(BOUND).unwrap();
        assert_eq!(status.code(), Some(75), "{}", storm.holder.log());
    }
    assert!(!storm.deletions.was_released(storm.token), "it could not");
    let deleted = storm.deletions.wait_for_deletion(storm.token, BOUND);
    assert!(last < deleted.expect("its session expires"));
}
