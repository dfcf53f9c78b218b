//! A loaded machine and no fault: how often a holder is stopped for nothing, by its lease duration.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_judge::checker::Rule;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::Worker;
use lockkeeper_product::worker::Options;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Host};

use crate::busy::Busy;
use crate::context::Context;
use crate::figures::{Figures, Violations};
use crate::fixture::{BOUND, Fixture, Round};
use crate::sample::seconds;
use crate::times::DEFAULT_SESSION_TIMEOUT;

/// The port at which a contender tells its metrics, on a host of its own.
const PORT: u16 = 9808;

/// The time between two looks at the metrics. The least time that is seen is too long by this at most.
const LOOK: Duration = Duration::from_millis(100);

/// A lease duration, and a stop grace that fits.
struct Lease {
    about: &'static str,
    option: &'static str,
    stop_grace: Duration,
}

const LEASES: [Lease; 4] = [
    Lease {
        about: "defaults, L = 8.5 s, stop grace 3 s",
        option: "auto",
        stop_grace: Duration::from_secs(3),
    },
    Lease {
        about: "L = 4 s, stop grace 1 s",
        option: "4s",
        stop_grace: Duration::from_secs(1),
    },
    Lease {
        about: "L = 2 s, stop grace 0.4 s",
        option: "2s",
        stop_grace: Duration::from_millis(400),
    },
    Lease {
        about: "L = 1 s, stop grace 0.4 s",
        option: "1s",
        stop_grace: Duration::from_millis(400),
    },
];

/// A lock with a holder and a waiter.
struct Pair {
    lease: &'static Lease,
    workers: [Worker; 2],
    /// The least time that was seen to be left until the deadline of its holder.
    least: Option<Duration>,
}

/// In a test, `rounds` is the length in seconds.
pub(super) fn load(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    let length = match context.minutes {
        Some(minutes) => Duration::from_secs(60) * minutes,
        None => Duration::from_secs(context.rounds.into()),
    };
    // A renewal waits for the disk, as on servers that users run. The other trials do without that.
    let mut fixture = Fixture::with_servers(
        "load",
        Config {
            java_arguments: vec!["-Dzookeeper.forceSync=yes".to_owned()],
            ..Config::default()
        },
    )?;
    let mut violations = Violations::default();
    let round = fixture.begin()?;
    let mut pairs = Vec::new();
    for lease in &LEASES {
        pairs.push(Pair::start(&mut fixture, &round, lease)?);
    }
    let contenders = || {
        let lives = round.deletions.lives();
        let is_in = |name: &str| name.starts_with("lock-") && name.contains('/');
        let count = lives
            .iter()
            .filter(|life| life.deleted.is_none() && is_in(&life.name));
        (count.count() == 2 * LEASES.len()).then_some(())
    };
    wait_for(BOUND, contenders).context("not all waiters are in their queues")?;

    let busy = Busy::begin(fixture.ensemble.directory())?;
    let (begun, processors) = (BootInstant::now(), busy.processors());
    while BootInstant::now() < begun + length {
        pairs.iter_mut().for_each(Pair::look);
        std::thread::sleep(LOOK);
    }
    let over = BootInstant::now();
    let synced = busy.end()?;

    let mut figures = Figures::default();
    figures.row(
        "the load",
        format!(
            "{processors} busy processes, {:.0} calls of fsync a second, for {:.1} minutes",
            synced as f64 / seconds(over, begun),
            seconds(over, begun) / 60.0
        ),
    );
    for pair in &pairs {
        let report = round.judge(context, &pair.workers, Rule::Exclusive, &mut violations)?;
        let stops = report.holds.len().saturating_sub(1);
        let least = match pair.least {
            Some(least) => format!("least time left to the deadline {:.2} s", least.as_secs_f64()),
            None => "no answer about the time left".to_owned(),
        };
        figures.row(
            format!("{}: stops without a fault", pair.lease.about),
            format!("{stops}; {least}"),
        );
    }
    violations.finish(figures)
}

impl Pair {
    fn start(fixture: &mut Fixture, round: &Round, lease: &'static Lease) -> anyhow::Result<Self> {
        let mut start = |part: &str| {
            let name = format!("{part}-{}", lease.option);
            let options = fixture.options(round, &name, &round.server_names())?;
            let listen = format!("{}:{PORT}", Ipv4Addr::LOCALHOST);
            fixture.start(Options {
                lock: format!("{}-{}", round.lock, lease.option),
                session_timeout: DEFAULT_SESSION_TIMEOUT,
                stop_grace: lease.stop_grace,
                ..options.with_run(&[
                    "--lease-duration",
                    lease.option,
                    "--restart",
                    "always",
                    "--admin-listen",
                    &listen,
                ])
            })
        };
        let holder = start("holder")?;
        holder.wait_until_it_runs(0, BOUND)?;
        Ok(Self {
            lease,
            workers: [holder, start("waiter")?],
            least: None,
        })
    }

    /// Asks both how much time is left to their deadlines.
    fn look(&mut self) {
        let left = self
            .workers
            .iter()
            .filter_map(|worker| left(&worker.options().host));
        self.least = left.chain(self.least).min();
    }
}

/// The time until the guard of a holder kills its application, unless a renewal comes first; `None` if the
/// contender does not hold, or does not answer.
fn left(host: &Host) -> Option<Duration> {
    let mut stream = host
        .connect(SocketAddrV4::new(Ipv4Addr::LOCALHOST, PORT), LOOK)
        .ok()?;
    stream.set_read_timeout(Some(LOOK)).ok()?;
    write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let value = |name: &str| -> Option<f64> {
        let line = answer.lines().find_map(|line| line.strip_prefix(name));
        line?.trim().parse().ok()
    };
    let is_held = value("lockkeeper_held ")? == 1.0;
    let left = value("lockkeeper_lease_remaining_seconds ")?;
    is_held.then(|| Duration::from_secs_f64(left.max(0.0)))
}
