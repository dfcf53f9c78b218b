//! One round: two contenders, one fault, and who ran when.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use fastrand::Rng;
use lockkeeper_judge::record::{Record, Records};
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::process::wait_for;
use rustix::process::Signal;

use crate::activity::{self, Pause, Stretch, at_resource, gap, overlap, stretches, tokens_of_holders_grow};
use crate::contender::{Contender, Part};
use crate::faults::Fault;
use crate::results::Round;
use crate::second::Verdict;
use crate::site::Site;
use crate::systems::System;

/// How long the first one may take to get a free lock.
const START: Duration = Duration::from_secs(120);

/// How often contenders begin anew that talk to other servers than the fault is for: one in two does not, at least.
const ATTEMPTS: u32 = 30;

/// How long the next one is waited for after a fault, beside the lease.
const BOUND: Duration = Duration::from_secs(24);

/// How much longer than a lease after the fault a holder has to go on, so that no change is to be expected.
const BEYOND_A_LEASE: Duration = Duration::from_secs(2);

/// How long all are watched after that: for a former holder that goes on.
const AFTER: Duration = Duration::from_secs(2);

/// How long an overlap is watched that does not end.
const LONGEST_OVERLAP: Duration = Duration::from_secs(30);

/// Who has written a line this short a time ago runs.
const JUST_NOW: Duration = Duration::from_millis(200);

/// Between two looks at what has happened: they take processors from what is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Plays one round on a site that serves, and leaves it so.
///
/// `given` is the lease that locks get that take any. If two ran, or the judges disagree, the records, words and logs of
/// both are kept in `logs`.
///
/// # Errors
/// When nobody gets the free lock, the fault cannot be done, or the second judge says otherwise. The site may be of no
/// use then.
pub fn play(
    system: &System,
    fault: Fault,
    site: &mut Site,
    given: Duration,
    seed: u64,
    logs: Option<&Path>,
) -> anyhow::Result<Round> {
    let mut random = Rng::with_seed(seed);
    let lease = system.lease.bound(given);
    let (contenders, holder) = (0..ATTEMPTS)
        .find_map(|_| begin(system, fault, site, given, &mut random).transpose())
        .context("the contenders never talked to the servers that the fault is for")??;

    let began = BootInstant::now();
    let mut struck = fault.strike(site, &contenders, holder)?;
    let stopped = BootInstant::now();
    // A fault that lasts is undone after its time; the next one may hold long before.
    std::thread::sleep((began + fault.length(lease)).saturating_since(BootInstant::now()));
    let going_on = BootInstant::now();
    struck.undo(&mut *site.servers)?;
    let mut served = None;
    if fault.lasts_until_servers_serve() {
        until_all_serve(site)?;
        served = Some(BootInstant::now() - began);
    }
    let undone = BootInstant::now();
    let pauses: Vec<_> = fault
        .stops_the_holders_machine()
        .then_some(Pause {
            contender: holder,
            from: stopped,
            to: going_on,
        })
        .into_iter()
        .collect();
    let next = look_until(lease + BOUND, || {
        let has_begun = ran_since(&contenders[1 - holder], began)?;
        let is_over = BootInstant::now() > undone + lease + BEYOND_A_LEASE;
        Ok(has_begun || (is_over && runs(&contenders[holder], JUST_NOW)?))
    })?;
    let mut goes_on = false;
    let mut patience = Duration::ZERO;
    if next.is_some() {
        std::thread::sleep(AFTER);
        let is_one_alone = || {
            let running = contenders.iter().map(|contender| runs(contender, AFTER));
            let running: Vec<_> = running.collect::<anyhow::Result<_>>()?;
            Ok(running.iter().filter(|runs| **runs).count() < 2)
        };
        goes_on = look_until(LONGEST_OVERLAP, is_one_alone)?.is_none();
        // On a busy machine the next contender may have stopped again, and runs soon.
        patience = BOUND;
    }
    let gap = wait_for(patience, || {
        gap_until_now(&contenders, &pauses, began).transpose()
    })
    .transpose()?;
    let files = contenders
        .iter()
        .map(Contender::snapshot)
        .collect::<anyhow::Result<Vec<_>>>()?;
    if gap.is_none() {
        for contender in &contenders {
            println!("nobody ran again; {}", contender.last_lines());
        }
    }
    let texts: Vec<_> = contenders.iter().flat_map(Contender::texts).collect();
    let told = contenders[holder].lost_after(began);
    let has_token = contenders.iter().any(Contender::has_token);
    for machine in &site.machines {
        machine.signal_contender(Signal::KILL)?;
    }
    drop(contenders);
    struck.end(&*site.servers)?;
    until_all_serve(site)?;

    let records = files
        .iter()
        .map(|file| Ok(Records::read(file)?.records))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let found = stretches(&records, &pauses);
    let overlap = overlap(&found);
    let ours = Verdict::ours(&found);
    let second = Verdict::of_porcupine(&files, &pauses)?;
    if let Some(logs) = logs.filter(|_| overlap.is_some() || ours != second) {
        let folder = logs.join(format!("{}-{}-{seed}", system.name, fault.name()));
        keep(&folder, files.iter().chain(&texts))?;
    }
    ensure!(
        ours == second,
        "the two judges disagree: we say {ours:?}, Porcupine {second:?}"
    );
    let resource = at_resource(&records);
    Ok(Round {
        seed,
        overlap: overlap.map(|time| time.as_secs_f64()),
        goes_on,
        before: activity::overlap(&until(found, began)).is_some(),
        gap: gap.map(|time| time.as_secs_f64()),
        served: served.map(|time| time.as_secs_f64()),
        late: resource.late,
        refused: if has_token { resource.refused } else { 0 },
        grew: has_token.then(|| tokens_of_holders_grow(&records)),
        told: told.map(|at| at.saturating_since(began).as_secs_f64()),
        ..Round::default()
    })
}

/// Copies files of both contenders, whose folders have their names.
fn keep<'a>(folder: &Path, files: impl Iterator<Item = &'a PathBuf>) -> anyhow::Result<()> {
    for file in files {
        let name = |path: Option<&Path>| path.and_then(Path::file_name).unwrap_or_default().to_owned();
        let to = folder.join(name(file.parent()));
        std::fs::create_dir_all(&to)?;
        std::fs::copy(file, to.join(name(Some(file))))
            .with_context(|| format!("cannot keep {} in {}", file.display(), to.display()))?;
    }
    Ok(())
}

fn until_all_serve(site: &Site) -> anyhow::Result<()> {
    wait_for(START, || site.servers.all_serve().then_some(())).context("the servers do not serve again")
}

/// Two contenders, and which of them holds; `None` if the fault would not strike them as it should.
fn begin(
    system: &System,
    fault: Fault,
    site: &mut Site,
    given: Duration,
    random: &mut Rng,
) -> anyhow::Result<Option<(Vec<Contender>, usize)>> {
    let name = system.name.replace('@', "-");
    let lock = format!("{name}-{}-{}", fault.name(), site.next_round());
    site.make_ready()?;
    fault.prepare(&mut *site.servers)?;
    let has_own_clock = matches!(fault, Fault::ClockAhead | Fault::WaiterAhead);
    let contenders: Vec<_> = site
        .machines
        .iter()
        .map(|machine| {
            let part = Part {
                has_own_clock,
                ..Part::of(system, &lock, given)
            };
            Contender::start(system, &*site.servers, machine, part)
        })
        .collect::<anyhow::Result<_>>()?;
    look_until(START, || Ok(latest(&contenders)?.is_some()))?.with_context(|| {
        let logs: Vec<_> = contenders.iter().map(Contender::last_lines).collect();
        format!(
            "nobody has got the free lock after {START:?}:\n{}",
            logs.join("\n")
        )
    })?;
    // The fault comes at any moment of a renewal, but a failover right after the grant.
    if fault != Fault::Failover {
        std::thread::sleep(Duration::from_millis(random.u64(500..2_500)));
    }
    // If two run already, it is the one that began last: the lock is not the other one's any more.
    let holder = latest(&contenders)?.context("nobody runs any more before the fault")?;
    let suits = fault.suits(site, &contenders, holder)?;
    Ok(suits.then_some((contenders, holder)))
}

/// Looks again and again whether something is so; `None` if it is not within `bound`.
fn look_until(
    bound: Duration,
    mut is_so: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<Option<()>> {
    let end = BootInstant::now() + bound;
    loop {
        if is_so()? {
            return Ok(Some(()));
        }
        if BootInstant::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}

/// Which contender has run last. Of two that run, the one that began last.
fn latest(contenders: &[Contender]) -> anyhow::Result<Option<usize>> {
    let found = stretches(&all_records(contenders)?, &[]);
    let end = found.iter().map(|stretch| stretch.to).max();
    let mut recent = found
        .iter()
        .filter(|stretch| end.is_some_and(|end| end.saturating_since(stretch.to) < JUST_NOW));
    // They are in the order of their beginnings.
    Ok(recent.next_back().map(|stretch| stretch.contender))
}

/// What of it was until a moment.
fn until(mut found: Vec<Stretch>, moment: BootInstant) -> Vec<Stretch> {
    found.retain(|stretch| stretch.from <= moment);
    for stretch in &mut found {
        stretch.to = stretch.to.min(moment);
    }
    found
}

fn all_records(contenders: &[Contender]) -> anyhow::Result<Vec<Vec<Record>>> {
    contenders.iter().map(Contender::records).collect()
}

/// How long no contender ran since a moment, if one runs now.
fn gap_until_now(
    contenders: &[Contender],
    pauses: &[Pause],
    since: BootInstant,
) -> anyhow::Result<Option<Duration>> {
    // The moment comes first: a line that is written meanwhile is after it, but none is missing before it.
    let until = BootInstant::now();
    Ok(gap(&stretches(&all_records(contenders)?, pauses), since, until))
}

fn ran_since(contender: &Contender, moment: BootInstant) -> anyhow::Result<bool> {
    Ok(contender.last_ran()?.is_some_and(|last| last > moment))
}

fn runs(contender: &Contender, lately: Duration) -> anyhow::Result<bool> {
    let last = contender.last_ran()?;
    Ok(last.is_some_and(|last| BootInstant::now().saturating_since(last) < lately))
}
