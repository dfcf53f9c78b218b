//! What a lock costs when nothing breaks: handoffs, requests, processors, memory, and how evenly contenders get it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::Host;
use serde::{Deserialize, Serialize};

use crate::crowd::{Crowd, Plan, Word, evenness, handoffs};
use crate::rank::percentile;
use crate::servers::Servers;
use crate::systems::System;

/// The lease of all locks that have one: what most libraries and their examples have.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

/// Sizes of the queue.
pub(crate) const CONTENDERS: [u32; 3] = [2, 50, 500];

/// How long each holds. Of two, the other one has to be in the queue again by then.
const HOLD: Duration = Duration::from_millis(5);
const HOLD_OF_TWO: Duration = Duration::from_millis(150);

/// Handoffs that are measured in one turn, and for how long at most.
const HANDOFFS: usize = 300;
const LONG_ENOUGH: Duration = Duration::from_secs(20);

/// With fewer, the median says nothing; a lock that hands over only when a lease ends needs this long.
const LEAST_HANDOFFS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(240);

/// What does not count: programs that warm up, sessions and connections that begin.
const WARM_UP: Duration = Duration::from_secs(5);

/// Longer than any measurement: the first one holds, the others wait.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

/// Contenders that wait, or that queue again at once.
pub(crate) const CROWD: u32 = 50;

/// For how long the cost of waiting is measured: the difference between one contender and [`CROWD`].
const WAITING: Duration = Duration::from_secs(30);

/// One turn with one size of the queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handoffs {
    /// How many were measured.
    pub count: usize,
    /// From a release to the next holder, in seconds: median and 99th percentile, by nearest rank.
    pub p50: f64,
    /// See [`Handoffs::p50`].
    pub p99: f64,
    /// Requests to the servers for each; `None` where they do not count them.
    pub requests: Option<f64>,
    /// Seconds of a processor for each: of all servers, and of all contenders.
    pub servers: f64,
    /// See [`Handoffs::servers`].
    pub contenders: f64,
}

/// What waiting costs, for each waiter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// Requests to the servers in a minute; `None` where they do not count them.
    pub requests: Option<f64>,
    /// Seconds of a processor in a minute: of all servers, and of the waiter.
    pub servers: f64,
    /// See [`Waiting::servers`].
    pub waiter: f64,
    /// Memory of one more client in a process, in bytes.
    pub memory: f64,
}

/// How evenly 50 contenders get the lock that queue again at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fairness {
    /// The longest wait, in seconds.
    pub longest: f64,
    /// Jain's index.
    pub index: f64,
    /// For how long it was measured, in seconds.
    pub seconds: f64,
}

/// The handoffs of a queue of this size.
///
/// # Errors
/// When there are too few.
pub(crate) fn handoffs_at(
    system: &System,
    servers: &dyn Servers,
    contenders: u32,
) -> anyhow::Result<Handoffs> {
    let plan = Plan {
        contenders,
        lease: LEASE,
        hold: if contenders == 2 { HOLD_OF_TWO } else { HOLD },
        at_once: false,
    };
    let crowd = Crowd::start(system, servers, &format!("handoffs-{contenders}"), plan)?;
    std::thread::sleep(WARM_UP);
    let before = Reading::take(servers, crowd.host())?;
    let since = before.at;
    let are = |count| move |words: &[Word]| handoffs(words, since).len() >= count;
    // If there are fewer in that time, a few are enough, however long they take.
    let _ = crowd.wait_for(LONG_ENOUGH, are(HANDOFFS))?;
    crowd
        .wait_for(PATIENCE, are(LEAST_HANDOFFS))?
        .with_context(|| format!("fewer than {LEAST_HANDOFFS} handoffs in {PATIENCE:?}"))?;
    let cost = before.until_now(servers, crowd.host())?;
    let found = handoffs(&crowd.words()?, before.at);
    let at = |percent| {
        let found = percentile(&found, percent).context("a handoff")?;
        anyhow::Ok(found.as_secs_f64())
    };
    let each = 1.0 / found.len() as f64;
    Ok(Handoffs {
        count: found.len(),
        p50: at(50)?,
        p99: at(99)?,
        requests: cost.requests.map(|requests| requests * each),
        servers: cost.servers * each,
        contenders: cost.contenders * each,
    })
}

/// What it costs to wait.
///
/// # Errors
/// When nobody gets the free lock.
pub(crate) fn waiting(system: &System, servers: &dyn Servers) -> anyhow::Result<Waiting> {
    let measure = |contenders: u32| -> anyhow::Result<Cost> {
        let plan = Plan {
            contenders,
            lease: LEASE,
            hold: FOR_EVER,
            at_once: true,
        };
        let crowd = Crowd::start(system, servers, &format!("waiting-{contenders}"), plan)?;
        let is_held = |words: &[Word]| words.iter().any(|word| word.event == "held");
        crowd
            .wait_for(PATIENCE, is_held)?
            .context("nobody got the free lock")?;
        std::thread::sleep(WARM_UP);
        let before = Reading::take(servers, crowd.host())?;
        std::thread::sleep(WAITING);
        before.until_now(servers, crowd.host())
    };
    let (alone, crowded) = (measure(1)?, measure(CROWD)?);
    // Below zero, too, if it is less than what servers do beside it.
    let each = |alone: f64, crowded: f64| (crowded - alone) / f64::from(CROWD - 1);
    let a_minute = |alone, crowded| each(alone, crowded) * 60.0 / WAITING.as_secs_f64();
    let requests = alone.requests.zip(crowded.requests);
    Ok(Waiting {
        requests: requests.map(|(alone, crowded)| a_minute(alone, crowded)),
        servers: a_minute(alone.servers, crowded.servers),
        waiter: a_minute(alone.contenders, crowded.contenders),
        memory: each(alone.memory, crowded.memory),
    })
}

/// How evenly the lock is given.
///
/// # Errors
/// When it is never held.
pub(crate) fn fairness(system: &System, servers: &dyn Servers, time: Duration) -> anyhow::Result<Fairness> {
    let plan = Plan {
        contenders: CROWD,
        lease: LEASE,
        hold: HOLD,
        at_once: true,
    };
    let crowd = Crowd::start(system, servers, "fairness", plan)?;
    std::thread::sleep(WARM_UP);
    let began = BootInstant::now();
    std::thread::sleep(time);
    let ended = BootInstant::now();
    let found = evenness(&crowd.words()?, CROWD, began, ended);
    ensure!(found.index > 0.0, "the lock was never held");
    Ok(Fairness {
        longest: found.longest.as_secs_f64(),
        index: found.index,
        seconds: (ended - began).as_secs_f64(),
    })
}

/// Counters at one moment.
struct Reading {
    at: BootInstant,
    requests: Option<f64>,
    servers: Duration,
    contenders: Duration,
}

/// What they counted between two moments; times in seconds.
struct Cost {
    requests: Option<f64>,
    servers: f64,
    contenders: f64,
    /// Of all contenders at the end, in bytes.
    memory: f64,
}

impl Reading {
    fn take(servers: &dyn Servers, crowd: &Host) -> anyhow::Result<Self> {
        let mut of_servers = Duration::ZERO;
        for host in servers.hosts() {
            of_servers += host.cpu_time()?;
        }
        Ok(Self {
            at: BootInstant::now(),
            requests: servers.requests(),
            servers: of_servers,
            contenders: crowd.cpu_time()?,
        })
    }

    fn until_now(&self, servers: &dyn Servers, crowd: &Host) -> anyhow::Result<Cost> {
        let now = Self::take(servers, crowd)?;
        let seconds = |before: Duration, after: Duration| after.saturating_sub(before).as_secs_f64();
        Ok(Cost {
            requests: self
                .requests
                .zip(now.requests)
                .map(|(before, after)| after - before),
            servers: seconds(self.servers, now.servers),
            contenders: seconds(self.contenders, now.contenders),
            memory: crowd.resident_memory()? as f64,
        })
    }
}
