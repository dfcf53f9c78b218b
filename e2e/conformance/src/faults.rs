//! What happens to servers and machines during a round, and so to all locks of the round at once.

use std::time::Duration;

use anyhow::Context as _;
use fastrand::Rng;
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::{Ensemble, Host, faults};

use crate::times;

/// Something that breaks, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The leader's process is stopped: all answers are late, and a longer stop costs it the lead.
    LeaderStopped,
    /// A follower's process is stopped: what its clients send and are answered is late.
    FollowerStopped(usize),
    /// A follower is cut off from the leader, and answers its clients' reads and pings all the same.
    FollowerCut(usize),
    /// A follower is killed, and its clients' connections with it.
    FollowerKilled(usize),
    /// A machine with contenders is cut off from all servers.
    MachineCut(usize),
    /// A machine with contenders is cut off from one server.
    MachineCutFrom(usize, usize),
}

/// A fault, when it begins, and for how long it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub fault: Fault,
    /// After the beginning of the round.
    pub after: Duration,
    pub lasts: Duration,
}

impl Plan {
    /// The faults of a round that takes `time`; they do not overlap.
    pub(crate) fn any(random: &mut Rng, time: Duration, machines: usize) -> Vec<Self> {
        let mut plans = Vec::new();
        let mut from = time.mul_f64(0.2 + 0.2 * random.f64());
        while from < time.mul_f64(0.8) {
            let fault = match random.u8(..6) {
                0 => Fault::LeaderStopped,
                1 => Fault::FollowerStopped(random.usize(..2)),
                2 => Fault::FollowerCut(random.usize(..2)),
                3 => Fault::FollowerKilled(random.usize(..2)),
                4 => Fault::MachineCut(random.usize(..machines)),
                _ => Fault::MachineCutFrom(random.usize(..machines), random.usize(..3)),
            };
            let lasts = times::LEASE.mul_f64(0.3 + 2.0 * random.f64());
            plans.push(Self {
                fault,
                after: from,
                lasts,
            });
            from += lasts + times::LEASE.mul_f64(0.5 + 2.0 * random.f64());
        }
        plans
    }
}

/// Lets the planned faults happen, and reverts each.
///
/// # Errors
/// When the servers do not come back, or this machine cannot cut connections.
pub(crate) fn inject(
    ensemble: &Ensemble,
    machines: &[Host],
    plans: &[Plan],
    begin: BootInstant,
) -> anyhow::Result<()> {
    for plan in plans {
        std::thread::sleep(begin + plan.after - BootInstant::now());
        happen(ensemble, machines, plan)?;
    }
    Ok(())
}

fn happen(ensemble: &Ensemble, machines: &[Host], plan: &Plan) -> anyhow::Result<()> {
    // An election may be under way: then the fault is about the server that may become the leader.
    let leader = ensemble.leader().unwrap_or(0);
    let follower = |index: usize| (leader + 1 + index) % ensemble.len();
    let wait = || std::thread::sleep(plan.lasts);
    let stop = |server: usize| {
        let pid = ensemble.pid(server).context("the server runs")?;
        faults::stop(pid)?;
        wait();
        anyhow::Ok(faults::resume(pid)?)
    };
    let cut = |pairs: &[(&Host, &Host)]| {
        pairs.iter().try_for_each(|(a, b)| ensemble.cut(a, b))?;
        wait();
        anyhow::Ok(pairs.iter().try_for_each(|(a, b)| ensemble.heal(a, b))?)
    };
    match plan.fault {
        Fault::LeaderStopped => stop(leader),
        Fault::FollowerStopped(index) => stop(follower(index)),
        Fault::FollowerCut(index) => cut(&[(ensemble.server(leader), ensemble.server(follower(index)))]),
        Fault::FollowerKilled(index) => {
            ensemble.kill(follower(index));
            wait();
            ensemble.launch(follower(index))
        }
        Fault::MachineCut(machine) => {
            let pairs: Vec<_> = (0..ensemble.len())
                .map(|server| (&machines[machine], ensemble.server(server)))
                .collect();
            cut(&pairs)
        }
        Fault::MachineCutFrom(machine, server) => cut(&[(&machines[machine], ensemble.server(server))]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_faults_again_and_they_do_not_overlap() {
        let time = Duration::from_secs(8);
        for seed in 0..100 {
            let plans = Plan::any(&mut Rng::with_seed(seed), time, 4);
            assert_eq!(plans, Plan::any(&mut Rng::with_seed(seed), time, 4));
            assert!(!plans.is_empty());
            assert!(
                plans
                    .windows(2)
                    .all(|two| two[0].after + two[0].lasts < two[1].after)
            );
        }
    }
}
