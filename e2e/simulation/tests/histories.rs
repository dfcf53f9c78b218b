//! The lock's real task on the fake ensemble, in random histories: connections cut, lost and slow, servers stalled,
//! stopped and cut off, elections, frozen and killed processes, clocks that run apart by two per cent, nodes deleted by
//! hand. Two thirds of them have lease durations, so that places are taken from silent contenders. In all of them, two
//! applications never run together if they must not, none runs without its contender, and after all faults have ended every
//! process gets the lock.
//!
//! `LOCKKEEPER_SEED=n` repeats one history; `LOCKKEEPER_HISTORIES=n` runs more than 100: `make test` runs 4,000.

#[path = "histories/check.rs"]
mod check;
#[path = "histories/faults.rs"]
mod faults;
#[path = "histories/process.rs"]
mod process;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper_fake::{Options, SkewedClock, Takeovers, World, number};
use lockkeeper_lock::{LeaseDuration, LockOptions, Mode, Timing};

use faults::Faults;
use process::{Diary, Process};

const T: Duration = Duration::from_secs(6);
const ROOT: &str = "/locks/report";

/// `lockDelay`, in the histories that have one.
const DELAY: Duration = Duration::from_secs(3);

fn timing(lease_duration: LeaseDuration) -> Timing {
    Timing {
        tick_time: Duration::from_secs(1),
        stop_grace: Duration::from_millis(500),
        lease_duration,
        ..Timing::new(T)
    }
}

/// Lease durations in a third of the histories each: none; one for all; one for each process, or none.
fn leases(rng: &mut fastrand::Rng, count: usize) -> Vec<LeaseDuration> {
    let any = |rng: &mut fastrand::Rng| match rng.u8(..4) {
        0 => LeaseDuration::Auto,
        1 => LeaseDuration::Of(T * 2),
        _ => LeaseDuration::Of(Duration::from_millis(rng.u64(1_300..6_000))),
    };
    match rng.u8(..3) {
        0 => vec![LeaseDuration::Off; count],
        1 => vec![any(rng); count],
        _ => {
            let one = |_| match rng.u8(..3) {
                0 => LeaseDuration::Off,
                _ => any(rng),
            };
            (0..count).map(one).collect()
        }
    }
}

/// Processes, and what is needed to start one of them again.
struct Crowd {
    world: Arc<World>,
    mode: Mode,
    clocks: Vec<SkewedClock>,
    readers: Vec<bool>,
    leases: Vec<LeaseDuration>,
    takeovers: Arc<Takeovers>,
    asks: bool,
    diary: Arc<Mutex<Diary>>,
    processes: Vec<Process>,
}

impl Crowd {
    fn start(&mut self, number: usize) -> Process {
        let mode = match (self.mode, self.readers[number]) {
            (Mode::Write, true) => Mode::Read,
            (mode, _) => mode,
        };
        Process::start(
            &self.world,
            number,
            format!("process {number}"),
            self.clocks[number].clone(),
            LockOptions {
                mode,
                ask_for_predecessor: self.asks,
                observer: Some(self.takeovers.clone()),
                ..LockOptions::new(ROOT, timing(self.leases[number]))
            },
            T * 2,
            &self.diary,
        )
    }

    fn restart(&mut self, number: usize) {
        let started = self.start(number);
        let old = std::mem::replace(&mut self.processes[number], started);
        old.kill(self.world.now());
    }

    /// The processes that began to work after `moment`.
    fn served_since(&self, moment: Duration) -> BTreeSet<usize> {
        let diary = self.diary.lock().unwrap();
        let works = diary.done.iter().chain(&diary.running);
        works
            .filter(|work| work.start > moment)
            .map(|work| work.process)
            .collect()
    }
}

/// Counts of events in a history.
#[derive(Debug, Default)]
struct Summary {
    grants: usize,
    faults: usize,
    /// Pairs of a holder that died and a later one, which has waited.
    delayed: usize,
    expired: usize,
    takeovers: usize,
    resumed: usize,
}

async fn history(seed: u64) -> Result<Summary, String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    fastrand::seed(seed);
    let servers = [3, 3, 5][rng.usize(..3)];
    let world = Arc::new(World::new(Options {
        seed,
        servers,
        tick: Duration::from_secs(1),
        sync_limit: 5,
        session_timeout: T,
        ..Options::default()
    }));
    let count = rng.usize(2..6);
    let mode = [
        Mode::Exclusive,
        Mode::Exclusive,
        Mode::Semaphore(NonZeroU32::new(2).unwrap()),
        Mode::Write,
    ][rng.usize(..4)];
    let mut crowd = Crowd {
        world: Arc::clone(&world),
        mode,
        clocks: (0..count)
            .map(|_| {
                let rate = 1.0 + 0.01 * (rng.f64() * 2.0 - 1.0);
                SkewedClock::new(rate, Duration::from_secs(rng.u64(1..1_000_000)))
            })
            .collect(),
        readers: (0..count).map(|_| rng.bool()).collect(),
        leases: leases(&mut rng, count),
        takeovers: Arc::default(),
        asks: seed.is_multiple_of(2),
        diary: Arc::default(),
        processes: Vec::new(),
    };
    for number in 0..count {
        let process = crowd.start(number);
        crowd.processes.push(process);
    }

    let mut faults = Faults::default();
    let names: Vec<String> = crowd
        .processes
        .iter()
        .map(|process| process.name.clone())
        .collect();
    for _ in 0..rng.usize(5..40) {
        tokio::time::sleep(T.mul_f64(rng.f64())).await;
        match rng.u8(..12) {
            0 => {
                let number = rng.usize(..count);
                faults.log.push(format!("{:?}: killed {number}", world.now()));
                crowd.restart(number);
            }
            1 => {
                let number = rng.usize(..count);
                faults
                    .log
                    .push(format!("{:?}: keeper of {number} killed", world.now()));
                crowd.processes[number].restart_keeper();
            }
            // It would erase the record of the holders that the delay needs.
            2 if !crowd.asks => faults.ask_to_yield(&mut rng, &world, ROOT),
            _ => faults.strike(&mut rng, &world, servers, ROOT, &names, T),
        }
    }
    faults.ensemble.end(&world);

    // All faults have ended: every process gets the lock, and the dead processes leave nothing behind.
    let well = world.now();
    let everybody: BTreeSet<usize> = (0..count).collect();
    let limit = T * 4 * (count as u32 + 2);
    let is_over = |crowd: &Crowd| {
        let now = world.now();
        (crowd.served_since(well) == everybody && now > well + T * 2) || now > well + limit
    };
    while !is_over(&crowd) {
        tokio::time::sleep(T / 4).await;
    }
    let served = crowd.served_since(well);
    let contenders = world
        .children(ROOT)
        .into_iter()
        .filter(|name| name != "readme")
        .count();
    for process in crowd.processes.drain(..) {
        process.kill(world.now());
    }
    let diary = crowd.diary.lock().unwrap();
    let tell = |what: String| {
        format!(
            "LOCKKEEPER_SEED={seed}, {mode:?}, {servers} servers: {what}\n{}",
            faults.log.join("\n")
        )
    };
    if let Some(error) = diary.refused.first() {
        return Err(tell(format!("refused: {error}")));
    }
    let records = world.records();
    check::all(mode, &diary.done, &records, &faults.by_hand).map_err(tell)?;
    // A process that gets a free place of a semaphore does not wait for the former holder of another place.
    let delayed = if crowd.asks && !matches!(mode, Mode::Semaphore(_)) {
        let control = LockOptions::new(ROOT, timing(LeaseDuration::Off)).control;
        check::delays(&diary.done, &records, &control, DELAY).map_err(tell)?
    } else {
        0
    };
    if served != everybody {
        return Err(tell(format!("only {served:?} of {count} were served again")));
    }
    if contenders > count {
        return Err(tell(format!("{contenders} contenders of {count} processes")));
    }
    Ok(Summary {
        grants: diary.done.len(),
        faults: faults.log.len(),
        delayed,
        expired: records
            .iter()
            .filter(|record| matches!(record.happened, lockkeeper_fake::Happened::Expired { .. }))
            .count(),
        takeovers: crowd.takeovers.count(),
        resumed: diary.resumed,
    })
}

#[test]
fn applications_exclude_each_other_and_everybody_is_served_in_the_end_whatever_happens() {
    let first = number("LOCKKEEPER_SEED");
    let histories = match first {
        Some(_) => 1,
        None => number("LOCKKEEPER_HISTORIES").unwrap_or(100),
    };
    let (first_only, first) = (first.is_some(), first.unwrap_or(0));
    let mut sum = Summary::default();
    for seed in first..first + histories {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        match runtime.block_on(history(seed)) {
            Ok(one) => {
                sum.grants += one.grants;
                sum.faults += one.faults;
                sum.delayed += one.delayed;
                sum.expired += one.expired;
                sum.takeovers += one.takeovers;
                sum.resumed += one.resumed;
            }
            Err(what) => panic!("{what}"),
        }
    }
    println!("{histories} histories: {sum:?}");
    assert!(sum.grants > histories as usize, "{sum:?}");
    assert!(first_only || sum.delayed > histories as usize / 10, "{sum:?}");
    assert!(first_only || sum.takeovers > histories as usize / 2, "{sum:?}");
    assert!(first_only || sum.resumed > histories as usize / 10, "{sum:?}");
}
