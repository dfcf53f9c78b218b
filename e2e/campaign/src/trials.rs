//! All trials.

use fastrand::Rng;
use lockkeeper_testbed::Unsupported;

use crate::context::Context;
use crate::figures::Figures;
use crate::random_faults::{SEED_VARIABLE, seed_from_environment};
use crate::times::LeaseOption;

mod container;
mod cut;
mod deleted;
mod elections;
mod flood;
mod guard;
mod keeper;
mod load;
mod moved;
mod nodes;
mod other_clients;
mod pod_keeper;
mod random;
mod servers;
mod simulation;
mod storm;
mod takeover;

/// A trial of one kind of fault.
pub struct Trial {
    /// Its name on the command line.
    pub name: &'static str,
    pub about: &'static str,
    /// Whether its contenders take the lease duration of [`Context::lease`]. The others state their own, or have
    /// none.
    pub takes_lease: bool,
    /// Runs it.
    ///
    /// # Errors
    /// [`Violated`](crate::Violated) when a promise was violated, [`Unsupported`] where connections cannot be
    /// cut, and errors of the servers.
    pub run: fn(&mut Context<'_>) -> anyhow::Result<Figures>,
}

/// All trials, in the order in which the campaign runs them.
pub const TRIALS: &[Trial] = &[
    Trial {
        name: "cut",
        about: "the holder's only server is cut off from the leader",
        takes_lease: true,
        run: cut::cut,
    },
    Trial {
        name: "cut-after-follower-pause",
        about: "the same within milliseconds of waking from a pause of that server",
        takes_lease: true,
        run: cut::cut_after_pause_of_the_follower,
    },
    Trial {
        name: "cut-after-leader-pause",
        about: "the same within milliseconds of waking from a pause of the leader",
        takes_lease: true,
        run: cut::cut_after_pause_of_the_leader,
    },
    Trial {
        name: "moved",
        about: "one of the holder's servers is cut off from the leader",
        takes_lease: true,
        run: moved::moved,
    },
    Trial {
        name: "keeper",
        about: "the keeper is killed, stopped, starved",
        takes_lease: true,
        run: keeper::keeper,
    },
    Trial {
        name: "pod-keeper",
        about: "the keeper of a pod is killed, and the kubelet starts another one",
        takes_lease: false,
        run: pod_keeper::pod_keeper,
    },
    Trial {
        name: "takeover",
        about: "machines of holders and heirs with a lease duration crash",
        takes_lease: false,
        run: takeover::takeover,
    },
    Trial {
        name: "guard",
        about: "the guard is killed",
        takes_lease: true,
        run: guard::guard,
    },
    Trial {
        name: "container",
        about: "the kernel kills an application together with its guard, and another contender waits",
        takes_lease: false,
        run: container::container,
    },
    Trial {
        name: "storm",
        about: "the application is a storm of forks, and its keeper is stopped",
        takes_lease: true,
        run: storm::storm,
    },
    Trial {
        name: "deleted",
        about: "the holder's node is deleted by hand (not promised: a measurement)",
        takes_lease: false,
        run: deleted::deleted,
    },
    Trial {
        name: "servers",
        about: "leader stopped for 20 s, two of three servers down, rolling restart, all down for 10 s",
        takes_lease: true,
        run: servers::servers,
    },
    Trial {
        name: "elections",
        about: "the leader is killed under a holder with the default times",
        takes_lease: false,
        run: elections::elections,
    },
    Trial {
        name: "load",
        about: "no fault, but a loaded machine, under holders with L = 8.5, 4, 2 and 1 s",
        takes_lease: false,
        run: load::load,
    },
    Trial {
        name: "curator",
        about: "Curator's InterProcessMutex and lockkeeper run in one queue",
        takes_lease: false,
        run: other_clients::curator,
    },
    Trial {
        name: "other-clients",
        about: "kazoo, go-zookeeper, ZooKeeper's own recipe and lockkeeper run in one queue",
        takes_lease: false,
        run: other_clients::all,
    },
    Trial {
        name: "flood",
        about: "1,000 silent connections a second to the port that the kubelet asks, for 60 s",
        takes_lease: false,
        run: flood::flood,
    },
    Trial {
        name: "random",
        about: "random faults of servers and workers",
        takes_lease: true,
        run: random::random,
    },
    Trial {
        name: "nodes",
        about: "random faults under guarded pods on two Kubernetes nodes",
        takes_lease: true,
        run: nodes::nodes,
    },
    Trial {
        name: "simulation",
        about: "lock, keeper and guard on a simulated ensemble and kernel",
        takes_lease: false,
        run: simulation::simulation,
    },
];

/// A few rounds of a trial as a test: prints its lines, and reports a skip if the machine cannot run it.
///
/// # Panics
/// When the trial fails, or no trial has this name.
pub fn as_test(name: &str, rounds: u32) {
    let seed = seed_from_environment();
    println!("{SEED_VARIABLE}={seed}");
    let trial = TRIALS
        .iter()
        .find(|trial| trial.name == name)
        .expect("a trial's name");
    let mut out = Vec::new();
    let mut context = Context {
        rounds,
        minutes: None,
        lease: LeaseOption::default(),
        random: Rng::with_seed(seed),
        seed,
        histories: rounds.into(),
        hazards: Vec::new(),
        out: &mut out,
    };
    let result = (trial.run)(&mut context);
    println!("{}", String::from_utf8_lossy(&out));
    match result {
        Ok(figures) => println!("{figures}"),
        Err(error) if error.is::<Unsupported>() => lockkeeper_skip::skip(error),
        Err(error) => panic!("{error:#}"),
    }
}
