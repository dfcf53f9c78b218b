//! The plan of a history from its seed: the ensemble, the contenders and the hazard.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use fastrand::Rng;
use lockkeeper_lock::{LeaseDuration, Mode, Timing};
use lockkeeper_sidecar::args::{OnExit, OnLoss, OnSuspect, Restart};
use lockkeeper_sidecar::simulation::{Kind, Policy};

/// `tickTime` of the simulated ensemble.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// The session timeout that contenders request. In histories in which servers grant less they request
/// `LONG_T`.
const T: Duration = Duration::from_secs(6);
const LONG_T: Duration = Duration::from_secs(10);

/// The shortest session timeout that a server grants: with these times the lock refuses a shorter one.
pub(crate) const SHORTEST_T: Duration = Duration::from_millis(4_500);

/// The clocks of two machines differ by this share at most (`lock/src/timing.rs`): half to either side.
const CLOCK_RATE_ERROR: f64 = 0.01;

/// How long a process may hang, in session timeouts.
pub(crate) const LONGEST_HANG: u32 = 3;

/// Lease durations that are drawn, in milliseconds, from the shortest that the lock accepts with these times.
const LEASES_MS: std::ops::Range<u64> = 800..6_000;

const STOP_GRACE: Duration = Duration::from_millis(300);

/// A named set of faults at the edges of the lock, which can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hazard {
    /// Second guards, and strangers that write bytes, at the keeper's guard socket.
    Intruders,
    /// A waiter that comes back while the leader's expirer has its session, taken and not yet marked.
    SlowExpiry,
    /// Servers that grant a shorter session timeout than the one before.
    ShorterSessions,
    /// Processes that survive SIGKILL for a while.
    Survivors,
    /// Contenders with different settings for the number of holders.
    Disagreement,
}

impl Hazard {
    pub const ALL: [Self; 5] = [
        Self::Intruders,
        Self::SlowExpiry,
        Self::ShorterSessions,
        Self::Survivors,
        Self::Disagreement,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Intruders => "intruders",
            Self::SlowExpiry => "slow-expiry",
            Self::ShorterSessions => "shorter-sessions",
            Self::Survivors => "survivors",
            Self::Disagreement => "disagreement",
        }
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Hazard {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|hazard| hazard.name() == name);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("there is no hazard \"{name}\": take some of {known}")
        })
    }
}

/// Rules of parts that the simulation models and does not run: the real rules, or weaker ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The newest connection to the guard socket replaces the one before.
    pub newest_guard_wins: bool,
}

/// The settings from which histories are drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The hazards beside the ordinary faults. Each occurs in a third of the histories at most.
    pub hazards: Vec<Hazard>,
    pub rules: Rules,
}

impl Default for Setup {
    /// The setup that the present code has to withstand.
    fn default() -> Self {
        Self {
            hazards: Hazard::ALL.to_vec(),
            rules: Rules {
                newest_guard_wins: false,
            },
        }
    }
}

/// The main theme of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// The ensemble and its network have faults, and now and then a process.
    Network,
    /// Processes are killed, stopped and asked to end, and now and then the network has a fault.
    Processes,
    Hazard(Hazard),
}

/// One contender.
#[derive(Clone, Debug)]
pub(crate) struct PodPlan {
    pub(crate) policy: Policy,
    pub(crate) mode: Mode,
    pub(crate) lease_duration: LeaseDuration,
    /// Seconds of its clock in one true second.
    pub(crate) rate: f64,
    pub(crate) booted: Duration,
    /// Its kernel has `SO_PEERPIDFD` (Linux 6.5).
    pub(crate) tells_ends: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) mood: Mood,
    pub(crate) servers: usize,
    pub(crate) timing: Timing,
    pub(crate) pods: Vec<PodPlan>,
    pub(crate) strikes: u32,
}

impl Plan {
    pub(crate) fn draw(rng: &mut Rng, setup: &Setup) -> Self {
        let hazards = setup.hazards.iter().copied().map(Mood::Hazard);
        let moods: Vec<_> = [Mood::Network, Mood::Processes]
            .into_iter()
            .chain(hazards)
            .collect();
        let mood = moods[rng.usize(..moods.len())];
        let session_timeout = match mood {
            Mood::Hazard(Hazard::ShorterSessions) => LONG_T,
            _ => T,
        };
        let timing = Timing {
            tick_time: TICK,
            stop_grace: STOP_GRACE,
            ..Timing::new(session_timeout)
        };
        let two = Mode::Semaphore(NonZeroU32::MIN.saturating_add(1));
        let mode = if rng.u8(..4) == 0 { two } else { Mode::Exclusive };
        let leases = leases(rng);
        let count = rng.usize(2..=3);
        let pods = (0..count)
            .map(|_| PodPlan {
                policy: policy(rng, mood, &timing),
                mode,
                lease_duration: leases[rng.usize(..leases.len())],
                rate: 1.0 + CLOCK_RATE_ERROR * (rng.f64() - 0.5),
                booted: Duration::from_secs(rng.u64(1..1_000_000)),
                // If the kernel reports no end, survivors cannot be known (docs/safety.md).
                tells_ends: mood == Mood::Hazard(Hazard::Survivors) || rng.u8(..4) > 0,
            })
            .collect();
        let mut plan = Self {
            mood,
            servers: if rng.u8(..4) == 0 { 5 } else { 3 },
            timing,
            pods,
            strikes: rng.u32(4..16),
        };
        if mood == Mood::Hazard(Hazard::Disagreement) {
            plan.pods[0].mode = Mode::Exclusive;
            plan.pods[1].mode = two;
        }
        plan
    }

    /// How many may hold at once, by the settings of each pod.
    pub(crate) fn limits(&self) -> Vec<usize> {
        let limit = |pod: &PodPlan| match pod.mode {
            Mode::Semaphore(holders) => holders.get() as usize,
            Mode::Exclusive | Mode::Read | Mode::Write => 1,
        };
        self.pods.iter().map(limit).collect()
    }
}

/// The lease durations of which each contender has one: the default for all of them, none, or different ones.
fn leases(rng: &mut Rng) -> Vec<LeaseDuration> {
    let drawn = |rng: &mut Rng| LeaseDuration::Of(Duration::from_millis(rng.u64(LEASES_MS)));
    match rng.u8(..4) {
        0 => vec![LeaseDuration::Off],
        1 => vec![LeaseDuration::Auto],
        2 => vec![drawn(rng)],
        _ => vec![LeaseDuration::Off, LeaseDuration::Auto, drawn(rng), drawn(rng)],
    }
}

fn policy(rng: &mut Rng, mood: Mood, timing: &Timing) -> Policy {
    let kind = match mood {
        Mood::Hazard(Hazard::Intruders) => Kind::Wrap,
        _ => [Kind::Wrap, Kind::Wrap, Kind::Run, Kind::Run, Kind::Signal][rng.usize(..5)],
    };
    let rarely = |rng: &mut Rng| rng.u8(..4) == 0;
    Policy {
        kind,
        on_loss: if rarely(rng) { OnLoss::Pause } else { OnLoss::Kill },
        on_suspect: if rarely(rng) {
            OnSuspect::Pause
        } else {
            OnSuspect::Continue
        },
        on_exit: if rarely(rng) {
            OnExit::Hold
        } else {
            OnExit::Release
        },
        restart: if kind == Kind::Run && rng.bool() {
            Restart::Never
        } else {
            Restart::Always
        },
        stop_grace: timing.stop_grace,
        lock_delay: Duration::from_millis(if rarely(rng) { rng.u64(..1000) } else { 0 }),
        wait_timeout: None,
        conflict_code: None,
        loss_code: 75,
        session_timeout: timing.session_timeout,
        termination_grace: None,
    }
}
