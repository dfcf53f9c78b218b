//! A kubelet probes a holder while other clients open 1,000 silent connections a second.

use std::net::SocketAddrV4;
use std::time::Duration;

use anyhow::ensure;
use lockkeeper_judge::checker::Rule;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::worker::Options;
use lockkeeper_testbed::Host;
use lockkeeper_testbed::faults::{Flood, probe};

use crate::context::Context;
use crate::figures::{Figures, Violations};
use crate::fixture::{BOUND, Fixture};
use crate::sample::Sample;
use crate::times::CALM;

/// The port at which the holder answers probes.
const PORT: u16 = 9808;

/// Connections a second that must do no harm.
const RATE: u32 = 1_000;

/// The rate that a flood tries for, since some connections fail.
const WANTED: u32 = RATE * 11 / 10;

/// A kubelet acts after this many failures in a row (`failureThreshold`, default 3).
const FAILURE_THRESHOLD: usize = 3;

/// The length of a flood outside of tests.
const LENGTH: Duration = Duration::from_secs(60);

/// The sources of a flood.
#[derive(Clone, Copy)]
enum From {
    Strangers,
    /// A pod with `hostNetwork` has the address of its kubelet.
    TheKubeletsAddress,
    Both,
}

const SOURCES: [(From, &str); 3] = [
    (From::Strangers, "four other hosts"),
    (From::TheKubeletsAddress, "the kubelet's own address"),
    (From::Both, "the kubelet's own address and four other hosts"),
];

/// In a test, `rounds` is the length in seconds.
pub(super) fn flood(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    // A test shares its machine with others: there, a holder may wait for a processor for as long as a
    // kubelet waits for the answer. A server that accepts no newcomers would answer no probe in time.
    let (length, harmless) = match context.minutes {
        Some(_) => (LENGTH, 0),
        None => (Duration::from_secs(context.rounds.into()), FAILURE_THRESHOLD - 1),
    };
    let mut fixture = Fixture::new("flood")?;
    let mut violations = Violations::default();
    let mut figures = Figures::default();
    let round = fixture.begin()?;
    let listen = format!("0.0.0.0:{PORT}");
    let options = Options {
        session_timeout: CALM,
        ..fixture.options(&round, "holder", &round.server_names())?
    };
    let options = options.with_run(&["--admin-listen", &listen]);
    let door = SocketAddrV4::new(options.host.address(), PORT);
    let holder = fixture.start(options)?;
    let token = holder.wait_until_it_runs(0, BOUND)?;
    let kubelet = fixture.host("kubelet")?;
    let strangers = (1..=4)
        .map(|number| fixture.host(&format!("stranger-{number}")))
        .collect::<anyhow::Result<Vec<_>>>()?;
    for (from, name) in SOURCES {
        let hosts: Vec<&Host> = match from {
            From::Strangers => strangers.iter().collect(),
            From::TheKubeletsAddress => vec![&kubelet; 4],
            From::Both => strangers.iter().chain([&kubelet; 4]).collect(),
        };
        let share = WANTED.div_ceil(hosts.len() as u32);
        let begun = BootInstant::now();
        let floods: Vec<_> = hosts.iter().map(|host| Flood::begin(host, door, share)).collect();
        let probed = probe(&kubelet, door, "/livez", length)?;
        let opened: u64 = floods.iter().map(Flood::opened).sum();
        let rate = opened as f64 / (BootInstant::now() - begun).as_secs_f64();
        drop(floods);
        let asked = probed.failed.len() + probed.answered.len();
        ensure!(
            asked > 0,
            "the prober was late with all of its {} probes",
            probed.late
        );
        let mut times = Sample::default();
        for time in &probed.answered {
            times.add(time.as_secs_f64());
        }
        figures.row(
            format!("{rate:.0} connections a second from {name}: probes that failed"),
            format!(
                "{} of {asked}; the others took {times}; {} more did not count",
                probed.failed.len(),
                probed.late
            ),
        );
        if let Some(first) = probed.failed.first()
            && probed.in_a_row > harmless
        {
            violations.add(format!(
                "flood from {name}: {} of {asked} probes failed, {} in a row, the first with: {first}",
                probed.failed.len(),
                probed.in_a_row
            ));
        } else if context.minutes.is_some() {
            // A test shares its machine with others, so it only prints how many there were; the campaign
            // requires the rate.
            ensure!(
                rate >= RATE.into(),
                "there were only {rate:.0} connections a second from {name}: this machine is too slow for the trial"
            );
        }
    }
    context.say(&figures)?;
    let report = round.judge(context, [&holder], Rule::Exclusive, &mut violations)?;
    if report.holds.len() != 1
        || round
            .deletions
            .lives()
            .iter()
            .any(|life| life.token == token && life.deleted.is_some())
    {
        violations.add("the holder lost its lock");
    }
    violations.finish(figures)
}
