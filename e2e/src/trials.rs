//! Trials: one kind of fault each, round after round, on real servers and real processes.
//!
//! A trial prints a line per round and figures at the end. It fails when something happened that
//! must never happen, and never because something took long: how long it took is a figure. A few
//! rounds of each run as tests (`e2e/tests/trials.rs`), many as `lockkeeper-campaign`.

use std::fmt::{self, Display};
use std::io::Write;
use std::time::Duration;

use fastrand::Rng;
use lockkeeper_lock::BootInstant;
use lockkeeper_simulation::Hazard;

use crate::Unsupported;
use crate::faults::{SEED_VARIABLE, seed_from_environment};

mod control;
mod cut;
mod deleted;
mod flood;
mod guard;
mod keeper;
mod moved;
mod nodes;
mod random;
mod rivals;
mod servers;
mod simulation;
mod stage;
mod storm;

/// What a trial is given.
pub struct Context<'a> {
    /// How many rounds.
    pub rounds: u32,
    /// Trials of random faults last so many minutes instead, in longer rounds.
    pub minutes: Option<u32>,
    /// The source of everything random in it.
    pub random: Rng,
    /// The first seed of the trial that is nothing but histories from seeds, how many it plays, and what
    /// goes wrong in them beside the ordinary.
    pub seed: u64,
    /// See [`Context::seed`].
    pub histories: u64,
    /// See [`Context::seed`].
    pub hazards: Vec<Hazard>,
    /// Where its lines go.
    pub out: &'a mut dyn Write,
}

/// What a trial found out, for the table at the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// In the order in which they are of interest.
    pub rows: Vec<Figure>,
    /// How long before the leader deleted a holder's node its program had ended; of trials that know.
    pub spares: Times,
}

/// One thing that was asked, and what was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// What is promised, or what is to be known.
    pub asked: String,
    /// What was seen.
    pub measured: String,
}

/// A kind of fault, and how to try it.
pub struct Trial {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, in a few words.
    pub about: &'static str,
    /// Runs it.
    ///
    /// # Errors
    /// [`Violated`] when something happened that must never happen,
    /// [`Unsupported`] where connections cannot be cut, and whatever the servers
    /// fail with.
    pub run: fn(&mut Context<'_>) -> anyhow::Result<Figures>,
}

/// All trials, in the order in which the campaign runs them.
pub const TRIALS: &[Trial] = &[
    Trial {
        name: "cut",
        about: "the holder's only server is cut off from the leader",
        run: cut::cut,
    },
    Trial {
        name: "cut-after-follower-pause",
        about: "the same within milliseconds of waking from a pause of that server",
        run: cut::cut_after_pause_of_the_follower,
    },
    Trial {
        name: "cut-after-leader-pause",
        about: "the same within milliseconds of waking from a pause of the leader",
        run: cut::cut_after_pause_of_the_leader,
    },
    Trial {
        name: "moved",
        about: "one of the holder's servers is cut off from the leader",
        run: moved::moved,
    },
    Trial {
        name: "keeper",
        about: "the keeper is killed, stopped, starved",
        run: keeper::keeper,
    },
    Trial {
        name: "guard",
        about: "the guard is killed",
        run: guard::guard,
    },
    Trial {
        name: "storm",
        about: "the application is a storm of forks, and its keeper is stopped",
        run: storm::storm,
    },
    Trial {
        name: "deleted",
        about: "the holder's node is deleted by hand (not promised: a measurement)",
        run: deleted::deleted,
    },
    Trial {
        name: "servers",
        about: "leader stopped for 20 s, two of three servers down, rolling restart, all down for 10 s",
        run: servers::servers,
    },
    Trial {
        name: "curator",
        about: "Curator's InterProcessMutex and lockkeeper run in one queue",
        run: rivals::curator,
    },
    Trial {
        name: "rivals",
        about: "kazoo, go-zookeeper, ZooKeeper's own recipe and lockkeeper run in one queue",
        run: rivals::rivals,
    },
    Trial {
        name: "flood",
        about: "1,000 silent connections a second to the port that the kubelet asks, for 60 s",
        run: flood::flood,
    },
    Trial {
        name: "random",
        about: "random faults of servers and workers",
        run: random::random,
    },
    Trial {
        name: "nodes",
        about: "random faults under guarded pods on two Kubernetes nodes",
        run: nodes::nodes,
    },
    Trial {
        name: "simulation",
        about: "lock, keeper and guard on a simulated ensemble and kernel",
        run: simulation::simulation,
    },
];

/// Something happened that must never happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violated(Vec<String>);

/// Times of a trial in seconds, which may be negative: then something was late.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times(Vec<f64>);

/// What a trial has seen so far that must never happen.
#[derive(Clone, Debug, Default)]
struct Violations(Vec<String>);

impl Context<'_> {
    /// How many rounds of this length a trial of random faults has; at least one.
    fn rounds_of(&self, length: Duration) -> u32 {
        let whole = |minutes| {
            (Duration::from_secs(60) * minutes)
                .as_secs()
                .div_ceil(length.as_secs())
        };
        self.minutes
            .map_or(self.rounds, |minutes| {
                u32::try_from(whole(minutes)).unwrap_or(u32::MAX)
            })
            .max(1)
    }

    fn say(&mut self, line: impl Display) -> anyhow::Result<()> {
        writeln!(self.out, "{line}")?;
        Ok(self.out.flush()?)
    }
}

impl Figures {
    fn row(&mut self, asked: impl Into<String>, measured: impl Into<String>) {
        self.rows.push(Figure {
            asked: asked.into(),
            measured: measured.into(),
        });
    }
}

impl Violations {
    fn add(&mut self, violation: impl Into<String>) {
        self.0.push(violation.into());
    }

    fn finish(self, figures: Figures) -> anyhow::Result<Figures> {
        if self.0.is_empty() {
            Ok(figures)
        } else {
            Err(Violated(self.0).into())
        }
    }
}

impl Times {
    /// Adds a time.
    pub fn add(&mut self, seconds: f64) {
        let place = self.0.partition_point(|&other| other < seconds);
        self.0.insert(place, seconds);
    }

    /// All of them, the shortest first.
    pub fn all(&self) -> &[f64] {
        &self.0
    }

    /// The shortest, if there is any.
    pub fn least(&self) -> Option<f64> {
        self.0.first().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many are negative.
    pub fn negative(&self) -> usize {
        self.0.partition_point(|&seconds| seconds < 0.0)
    }

    /// The time that `share` of all are not longer than: nearest rank.
    fn quantile(&self, share: f64) -> Option<f64> {
        let rank = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.max(1) - 1).copied()
    }
}

impl Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(least), Some(half), Some(most_of), Some(most)) = (
            self.least(),
            self.quantile(0.5),
            self.quantile(0.9),
            self.0.last(),
        ) else {
            return f.write_str("none");
        };
        write!(
            f,
            "least {least:.3}, p50 {half:.3}, p90 {most_of:.3}, most {most:.3} s (of {})",
            self.0.len()
        )
    }
}

impl Display for Violated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} violations: {}", self.0.len(), self.0.join("; "))
    }
}

impl std::error::Error for Violated {}

/// Two columns, for people.
impl Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .rows
            .iter()
            .map(|row| row.asked.len())
            .max()
            .unwrap_or_default();
        self.rows
            .iter()
            .try_for_each(|row| writeln!(f, "  {:width$}  {}", row.asked, row.measured))
    }
}

/// A few rounds of a trial as a test: prints what it prints, and says so where it cannot be done.
///
/// # Panics
/// When the trial fails, or there is none of this name.
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
        Err(error) if error.is::<Unsupported>() => println!("SKIPPED: {error}"),
        Err(error) => panic!("{error:#}"),
    }
}

/// Seconds from `earlier` to `later`, negative when it is the other way round.
fn seconds(later: BootInstant, earlier: BootInstant) -> f64 {
    (later.as_nanos() as i64 - earlier.as_nanos() as i64) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let mut times = Times::default();
        assert_eq!(times.to_string(), "none");
        for seconds in [4.0, -1.0, 2.0, 3.0, 1.0] {
            times.add(seconds);
        }
        assert_eq!(
            (times.least(), times.quantile(0.5), times.quantile(0.9)),
            (Some(-1.0), Some(2.0), Some(4.0))
        );
        assert_eq!((times.len(), times.negative()), (5, 1));
    }

    #[test]
    fn a_violation_fails_the_trial_and_says_what_it_was() {
        let mut violations = Violations::default();
        assert!(violations.clone().finish(Figures::default()).is_ok());
        violations.add("round 3: two ran");
        let error = violations.finish(Figures::default()).unwrap_err();
        assert_eq!(error.to_string(), "1 violations: round 3: two ran");
    }
}
