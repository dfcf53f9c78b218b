//! One history, from its seed to its verdict.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use fastrand::Rng;
use lockkeeper_fake::{EnsembleFaults, Happened, Options, SkewedClock, World};
use lockkeeper_lock::{LockOptions, Observer, Timing};
use tokio::task::LocalSet;
use tokio::time::sleep;

use crate::faults::Faults;
use crate::ledger::Ledger;
use crate::machine::Wish;
use crate::plan::{Hazard, LONGEST_HANG, Mood, Plan, Setup, TICK};
use crate::pod::Pod;
use crate::simulation::Simulation;

const ROOT: &str = "/locks/report";

/// Figures of one history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How often an application began to run.
    pub starts: usize,
    /// Faults.
    pub strikes: usize,
    /// Sessions that the leader ended.
    pub expired: usize,
    /// Places that were taken from silent contenders.
    pub takeovers: usize,
    /// Keepers that began with the contender of the one before them.
    pub resumed: usize,
}

impl Summary {
    pub fn add(&mut self, other: Self) {
        self.starts += other.starts;
        self.strikes += other.strikes;
        self.expired += other.expired;
        self.takeovers += other.takeovers;
        self.resumed += other.resumed;
    }
}

/// How a history ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub summary: Summary,
    /// The first violation.
    pub violation: Option<String>,
    /// Its lines, if they were requested.
    pub log: Vec<String>,
}

/// The history of a seed, the same each time. With `is_told` it has all its lines.
///
/// # Panics
/// When a part of it does.
pub fn history(seed: u64, setup: &Setup, is_told: bool) -> Outcome {
    // The lock, and other code without a generator of its own, draw from this one.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime needs nothing but memory here");
    let local = LocalSet::new();
    local.block_on(&runtime, play(seed, setup, is_told))
}

async fn play(seed: u64, setup: &Setup, is_told: bool) -> Outcome {
    let mut rng = Rng::with_seed(seed);
    let plan = Plan::draw(&mut rng, setup);
    let simulation = Rc::new(Simulation::new(
        World::new(Options {
            seed,
            servers: plan.servers,
            tick: TICK,
            session_timeout: plan.timing.session_timeout,
            ..Options::default()
        }),
        setup.rules,
        Ledger::new(plan.limits()),
        is_told,
    ));
    simulation.say(|| format!("seed {seed}: {plan:#?}"));
    let pods = start(&simulation, &plan);
    let mut faults = Faults {
        rng: &mut rng,
        simulation: &simulation,
        plan: &plan,
        pods: &pods,
        ensemble: EnsembleFaults::default(),
    };
    let mut strikes = 0;
    while strikes < plan.strikes && !is_violated(&simulation) {
        let pause = faults.rng.f64();
        sleep(plan.timing.session_timeout.mul_f64(pause)).await;
        faults.strike().await;
        strikes += 1;
    }
    faults.end();
    if !is_violated(&simulation) {
        settle(&simulation, &plan, &pods).await;
    }
    if !is_violated(&simulation) {
        finish(&simulation, &plan, &pods).await;
    }
    let records = simulation.world.records();
    let mut ledger = simulation.ledger.borrow_mut();
    if ledger.violation().is_none() {
        ledger.compare(&records);
    }
    let is_expiry = |happened: &Happened| matches!(happened, Happened::Expired { .. });
    Outcome {
        summary: Summary {
            starts: ledger.starts(),
            strikes: strikes as usize,
            expired: records
                .iter()
                .filter(|record| is_expiry(&record.happened))
                .count(),
            takeovers: simulation.takeovers.count(),
            resumed: simulation.resumptions(),
        },
        violation: ledger.violation().map(str::to_owned),
        log: simulation.take_log(),
    }
}

fn is_violated(simulation: &Simulation) -> bool {
    simulation.ledger.borrow().violation().is_some()
}

fn start(simulation: &Rc<Simulation>, plan: &Plan) -> Vec<Rc<Pod>> {
    let pod = |(number, pod): (usize, &crate::plan::PodPlan)| {
        let timing = Timing {
            lease_duration: pod.lease_duration,
            ..plan.timing
        };
        let options = LockOptions {
            mode: pod.mode,
            ask_for_predecessor: !pod.policy.lock_delay.is_zero(),
            observer: Some(Arc::clone(&simulation.takeovers) as Arc<dyn Observer>),
            ..LockOptions::new(ROOT, timing)
        };
        let clock = SkewedClock::new(pod.rate, pod.booted);
        let longest_work = plan.timing.session_timeout * 4;
        let pod = Pod::new(
            simulation,
            number,
            clock,
            pod.policy,
            options,
            longest_work,
            pod.tells_ends,
        );
        pod.start();
        pod
    };
    plan.pods.iter().enumerate().map(pod).collect()
}

/// Checks that every contender is served after the end of the faults.
async fn settle(simulation: &Simulation, plan: &Plan, pods: &[Rc<Pod>]) {
    let t = plan.timing.session_timeout;
    let well = simulation.now();
    let limit = well + t * 4 * (pods.len() as u32 + 2);
    loop {
        sleep(t / 4).await;
        let unserved: BTreeSet<usize> = (0..pods.len())
            .filter(|pod| !simulation.ledger.borrow().ran_since(*pod, well))
            .collect();
        // A contender that disagrees with those in the queue may be refused, time and again.
        let is_served = match plan.mood {
            Mood::Hazard(Hazard::Disagreement) => unserved.len() < pods.len(),
            _ => unserved.is_empty(),
        };
        if is_served || is_violated(simulation) {
            return;
        }
        if simulation.now() > limit {
            let what = format!(
                "STARVED: {unserved:?} of {} pods were not served again",
                pods.len()
            );
            return simulation.ledger.borrow_mut().violated(what);
        }
        // A contender that was served leaves; with some policies it would keep the lock.
        for pod in pods {
            if !unserved.contains(&pod.machine.number) {
                pod.machine.wishes.push(Wish::StepDown);
            }
        }
    }
}

/// Checks that every grant ends after the end of all keepers.
async fn finish(simulation: &Simulation, plan: &Plan, pods: &[Rc<Pod>]) {
    let t = plan.timing.session_timeout;
    if plan.mood == Mood::Hazard(Hazard::Survivors) {
        // If a process hangs, the lock waits only while its keeper lives.
        sleep(t * LONGEST_HANG).await;
    }
    simulation.is_over.set(true);
    simulation.say(|| "All keepers are killed".to_owned());
    for pod in pods {
        pod.kill_keeper();
    }
    sleep(t + TICK).await;
    let mut ledger = simulation.ledger.borrow_mut();
    let left: Vec<_> = ledger.running().map(ToString::to_string).collect();
    if !left.is_empty() {
        ledger.violated(format!("ENDLESS: {}, and no keeper is left", left.join(" and ")));
    }
}
