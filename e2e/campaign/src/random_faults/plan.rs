//! The plan of faults, which follows entirely from the seed.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

use super::seed::SEED_VARIABLE;

/// Time for a rolling restart of three servers in the plan; if it takes longer, the next fault waits.
const ROLLING_RESTART: Duration = Duration::from_secs(15);

/// A server, by its role when the fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Leader,
    /// One of the followers, counted from 0 and around.
    Follower(usize),
}

/// The kinds of faults. Workers count from 0; each may have several processes, counted from 0 and around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A server is cut off from all other servers; its clients still reach it.
    IsolateServer(Role),
    /// The leader is cut off from one follower.
    CutFromLeader(Role),
    /// A server is stopped and goes on later.
    PauseServer(Role),
    /// A server is killed and started again later.
    KillServer(Role),
    /// All servers are restarted, one after the other.
    RollingRestart,
    /// A worker's host is cut off from one server.
    CutWorker(usize, Role),
    /// A worker's host is cut off from all servers.
    IsolateWorker(usize),
    /// A process of a worker is stopped and goes on later.
    PauseWorker(usize, usize),
    /// A process of a worker is killed.
    KillWorker(usize, usize),
    /// A process of a worker gets almost no processor time.
    StarveWorker(usize, usize),
}

/// One fault of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When it strikes, from the start of the plan.
    pub at: Duration,
    pub fault: Fault,
    pub lasts: Duration,
}

/// Faults in the order of time. At most one of a server and one of a worker last at a time, so that the
/// ensemble always keeps a quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub steps: Vec<Step>,
}

/// The limits of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How many workers there are; with none, faults strike only servers.
    pub workers: usize,
    /// No fault strikes later, and none lasts longer than this.
    pub length: Duration,
    /// The longest time that one fault lasts: more than the session timeout, otherwise no lock is lost.
    pub longest_fault: Duration,
}

impl Plan {
    /// The plan of a seed: the same one for the same shape.
    pub fn generate(seed: u64, shape: &Shape) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut steps = track(&mut random, shape, server_fault);
        if shape.workers > 0 {
            steps.extend(track(&mut random, shape, |random| {
                worker_fault(random, shape.workers)
            }));
        }
        steps.sort_by_key(|step| step.at);
        Self { seed, steps }
    }
}

impl Fault {
    /// True for faults of the ensemble, false for those of a worker.
    pub(crate) fn is_of_server(&self) -> bool {
        matches!(
            self,
            Self::IsolateServer(_)
                | Self::CutFromLeader(_)
                | Self::PauseServer(_)
                | Self::KillServer(_)
                | Self::RollingRestart
        )
    }
}

/// Faults one after the other, with quiet times between them.
fn track(random: &mut Rng, shape: &Shape, mut fault: impl FnMut(&mut Rng) -> Fault) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut at = between(random, Duration::from_millis(500), Duration::from_secs(3));
    loop {
        let fault = fault(random);
        let lasts = match fault {
            Fault::RollingRestart => ROLLING_RESTART,
            _ => between(random, Duration::from_millis(200), shape.longest_fault),
        };
        if at + lasts > shape.length {
            return steps;
        }
        steps.push(Step { at, fault, lasts });
        at += lasts + between(random, Duration::from_millis(500), Duration::from_secs(4));
    }
}

fn server_fault(random: &mut Rng) -> Fault {
    let role = role(random);
    match random.u32(0..10) {
        0..4 => Fault::IsolateServer(role),
        4..6 => Fault::CutFromLeader(Role::Follower(random.usize(0..2))),
        6..8 => Fault::PauseServer(role),
        8 => Fault::KillServer(role),
        _ => Fault::RollingRestart,
    }
}

fn worker_fault(random: &mut Rng, workers: usize) -> Fault {
    let worker = random.usize(0..workers);
    let process = random.usize(0..4);
    match random.u32(0..10) {
        0..2 => Fault::CutWorker(worker, role(random)),
        2..5 => Fault::IsolateWorker(worker),
        5..8 => Fault::PauseWorker(worker, process),
        8 => Fault::KillWorker(worker, process),
        _ => Fault::StarveWorker(worker, process),
    }
}

fn role(random: &mut Rng) -> Role {
    match random.usize(0..3) {
        0 => Role::Leader,
        follower => Role::Follower(follower - 1),
    }
}

/// In whole milliseconds, so that the printed plan is exact.
fn between(random: &mut Rng, least: Duration, most: Duration) -> Duration {
    let least = least.as_millis() as u64;
    Duration::from_millis(random.u64(least..=least.max(most.as_millis() as u64)))
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Faults of {SEED_VARIABLE}={}:", self.seed)?;
        self.steps.iter().try_for_each(|step| {
            let (at, lasts) = (step.at.as_secs_f64(), step.lasts.as_secs_f64());
            writeln!(f, "{at:8.3} s  {}, for {lasts:.3} s", step.fault)
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IsolateServer(role) => write!(f, "{role} cut off from the other servers"),
            Self::CutFromLeader(role) => write!(f, "{role} cut off from the leader"),
            Self::PauseServer(role) => write!(f, "{role} paused"),
            Self::KillServer(role) => write!(f, "{role} killed"),
            Self::RollingRestart => write!(f, "rolling restart"),
            Self::CutWorker(worker, role) => write!(f, "worker {worker} cut off from {role}"),
            Self::IsolateWorker(worker) => write!(f, "worker {worker} cut off from all servers"),
            Self::PauseWorker(worker, process) => write!(f, "worker {worker} paused (process {process})"),
            Self::KillWorker(worker, process) => write!(f, "worker {worker} killed (process {process})"),
            Self::StarveWorker(worker, process) => write!(f, "worker {worker} starved (process {process})"),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leader => f.write_str("leader"),
            Self::Follower(follower) => write!(f, "follower {follower}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        workers: 3,
        length: Duration::from_secs(120),
        longest_fault: Duration::from_secs(8),
    };

    #[test]
    fn the_same_seed_makes_the_same_plan_and_another_seed_another_one() {
        assert_eq!(Plan::generate(7, &SHAPE), Plan::generate(7, &SHAPE));
        assert_ne!(Plan::generate(7, &SHAPE).steps, Plan::generate(8, &SHAPE).steps);
        assert!(
            Plan::generate(7, &SHAPE)
                .to_string()
                .starts_with("Faults of LOCKKEEPER_SEED=7:\n")
        );
    }

    #[test]
    fn no_two_faults_of_servers_and_no_two_of_workers_last_at_the_same_time() {
        for seed in 0..200 {
            let plan = Plan::generate(seed, &SHAPE);
            for of_server in [true, false] {
                let steps: Vec<_> = plan
                    .steps
                    .iter()
                    .filter(|step| step.fault.is_of_server() == of_server)
                    .collect();
                assert!(
                    steps
                        .windows(2)
                        .all(|pair| pair[0].at + pair[0].lasts < pair[1].at),
                    "{plan}"
                );
            }
            assert!(
                plan.steps.iter().all(|step| step.at + step.lasts <= SHAPE.length),
                "{plan}"
            );
        }
    }

    #[test]
    fn a_hundred_plans_have_every_kind_of_fault() {
        let faults: Vec<Fault> = (0..100)
            .flat_map(|seed| Plan::generate(seed, &SHAPE).steps)
            .map(|step| step.fault)
            .collect();
        let kinds: std::collections::HashSet<_> = faults.iter().map(std::mem::discriminant).collect();
        assert_eq!(kinds.len(), 10);
    }
}
