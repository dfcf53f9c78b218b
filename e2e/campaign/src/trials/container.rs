//! The kernel kills an application together with its guard, as it does to a container that is out of memory, and
//! another contender waits.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_judge::checker::{Report, Rule, check};
use lockkeeper_lock::Timing;
use lockkeeper_product::worker::{self, Options};
use lockkeeper_product::{Pod, Worker};
use lockkeeper_testbed::{Unsupported, faults};
use rustix::io::Errno;

use crate::context::Context;
use crate::figures::{Figures, Violations};
use crate::fixture::{BOUND, Fixture, Round};
use crate::sample::{Sample, seconds};
use crate::times::DEFAULT_SESSION_TIMEOUT;

/// A handoff that counts as soon, in seconds: releasing the lock and starting a program take some 10 ms.
const SOON: f64 = 0.1;

/// What is killed at one blow. In each case the keeper lives, and what it sees proves that nothing is left
/// (docs/safety.md, "Guard killed, or stopped").
#[derive(Clone, Copy, Debug)]
enum Killed {
    Guard,
    Container,
    Namespace,
    Group,
}

const KINDS: [(Killed, &str); 4] = [
    (Killed::Guard, "guard of a pod, PID 1 of its container"),
    (Killed::Container, "all processes of a pod's container"),
    (Killed::Namespace, "guard and PID namespace of a run (pidns)"),
    (Killed::Group, "guard and control group of a run (cgroup)"),
];

pub(super) fn container(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    if !rustix::process::getuid().is_root() {
        return Err(Unsupported::new("a PID namespace for the container needs root").into());
    }
    let mut fixture = Fixture::new("container")?;
    let mut violations = Violations::default();
    let mut times = KINDS.map(|_| Sample::default());
    for _ in 0..context.rounds {
        for ((killed, about), times) in KINDS.iter().zip(&mut times) {
            let round = fixture.begin()?;
            let report = match killed {
                Killed::Guard | Killed::Container => pods(context, &mut fixture, &round, *killed)?,
                Killed::Namespace | Killed::Group => runs(context, &mut fixture, &round, *killed)?,
            };
            if !report.is_clean() {
                violations.add(format!(
                    "round {}: {} overlaps or tokens out of order",
                    round.number,
                    report.violations.len()
                ));
                context.say(&report)?;
            }
            let [killed, next] = &report.holds[..] else {
                anyhow::bail!("round {}: {about}: not two holds:\n{report}", round.number);
            };
            let took = seconds(next.begin, killed.end);
            times.add(took);
            context.say(format!(
                "round {}: {about}: the next one ran {took:.4} s after the last instruction",
                round.number
            ))?;
        }
    }
    let mut figures = Figures::default();
    for ((_, about), times) in KINDS.iter().zip(&times) {
        let soon = times.all().iter().filter(|&&time| time <= SOON).count();
        figures.row(
            format!("killed: {about}: next one's first instruction"),
            format!("{times}; {soon} of {} within {SOON} s", times.len()),
        );
    }
    violations.finish(figures)
}

/// Two pods; returns the holds of both.
fn pods(
    context: &mut Context<'_>,
    fixture: &mut Fixture,
    round: &Round,
    killed: Killed,
) -> anyhow::Result<Report> {
    let stop_grace = Timing::new(DEFAULT_SESSION_TIMEOUT).stop_grace;
    let times = [
        format!("{}s", DEFAULT_SESSION_TIMEOUT.as_secs()),
        format!("{}s", stop_grace.as_secs()),
    ];
    let mut start = |name: &str| -> anyhow::Result<Pod> {
        let host = fixture.host(name)?;
        let name = format!("{name}-{}", round.number);
        let mut pod = Pod::on(host, &fixture.ensemble, &name);
        let options = ["--session-timeout", &times[0], "--stop-grace", &times[1]];
        pod.start_sidecar(&fixture.ensemble, &round.lock, &options);
        // Killed later than its guard if it could be: it does not end on SIGTERM.
        pod.start_container(&name, &["--ignore-sigterm"]);
        Ok(pod)
    };
    let holder = start("holder")?;
    let token = holder.wait_until_it_runs(0);
    let waiter = start("waiter")?;
    round.wait_until_queued(2)?;
    settle(context);
    match killed {
        Killed::Container => kill_all(&holder.container_processes())?,
        _ => faults::kill(holder.guard())?,
    }
    waiter.wait_until_it_runs(token);
    Ok(check(
        &[holder.records(), waiter.records()].concat(),
        Rule::Exclusive,
    ))
}

/// Two `lockkeeper run`; returns the holds of both.
fn runs(
    context: &mut Context<'_>,
    fixture: &mut Fixture,
    round: &Round,
    killed: Killed,
) -> anyhow::Result<Report> {
    let containment = match killed {
        Killed::Group => "cgroup",
        _ => "pidns",
    };
    let mut start = |name: &str| {
        let options = fixture.options(round, name, &round.server_names())?;
        fixture.start(Options {
            session_timeout: DEFAULT_SESSION_TIMEOUT,
            stop_grace: Timing::new(DEFAULT_SESSION_TIMEOUT).stop_grace,
            ..options
                .with_run(&["--containment", containment])
                .with_recorder(&["--ignore-sigterm"])
        })
    };
    let holder = start("holder")?;
    let token = holder.wait_until_it_runs(0, BOUND)?;
    let waiter = start("waiter")?;
    round.wait_until_queued(2)?;
    settle(context);
    match killed {
        Killed::Group => {
            let group = group_of(&holder)?;
            faults::kill(holder.guard_pid())?;
            let killed = fs::write(group.join("cgroup.kill"), "1");
            killed.or_else(|error| match Errno::from_io_error(&error) {
                // The anchor was faster than we, and has removed the empty group, before the file was opened or after.
                Some(Errno::NOENT | Errno::NODEV) => Ok(()),
                _ => Err(error),
            })?;
        }
        // The first process of the namespace takes all others with it.
        _ => {
            let anchor = worker::anchor_of(holder.guard_pid()).context("it has an anchor")?;
            kill_all(&[holder.guard_pid(), anchor])?;
        }
    }
    waiter.wait_until_it_runs(token, BOUND)?;
    Ok(check(&worker::all_records([&holder, &waiter])?, Rule::Exclusive))
}

/// The holder renews at any moment of its interval.
fn settle(context: &mut Context<'_>) {
    std::thread::sleep(Duration::from_millis(context.random.u64(1_000..3_000)));
}

/// Kills them in this order. The kernel may have ended some by then, with their namespace.
fn kill_all(pids: &[rustix::process::Pid]) -> anyhow::Result<()> {
    for &pid in pids {
        match rustix::process::kill_process(pid, rustix::process::Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The control group of an application.
fn group_of(worker: &Worker) -> anyhow::Result<PathBuf> {
    let program = worker.program_pid().context("its application runs")?;
    let groups = fs::read_to_string(format!("/proc/{program}/cgroup"))?;
    let path = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .context("it has a control group of version 2")?;
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mount = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|words| words.get(2) == Some(&"cgroup2"))
        .and_then(|words| words.get(1).copied())
        .context("control groups of version 2 are not mounted")?;
    Ok(Path::new(mount).join(path))
}
