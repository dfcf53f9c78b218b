//! One round: two contenders, one fault, and who ran when.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use fastrand::Rng;
use lockkeeper_judge::record::{Record, Records};
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::process::wait_for;

use crate::activity::{at_resource, gap, overlap, stretches};
use crate::contender::Contender;
use crate::faults::Fault;
use crate::results::Round;
use crate::second::Verdict;
use crate::servers::Servers;
use crate::systems::System;

/// How long the first one may take to get a free lock.
const START: Duration = Duration::from_secs(120);

/// How long the next one is waited for after a fault, beside twice the lease.
const BOUND: Duration = Duration::from_secs(20);

/// How long all are watched after that: for a former holder that goes on.
const AFTER: Duration = Duration::from_secs(2);

/// Plays one round with servers that serve, and leaves them serving.
///
/// # Errors
/// When nobody gets the free lock, the fault cannot be done, or the second judge says otherwise.
pub fn play(
    system: &System,
    fault: Fault,
    servers: &mut dyn Servers,
    lease: Duration,
    seed: u64,
) -> anyhow::Result<Round> {
    let mut random = Rng::with_seed(seed);
    let lock = format!("{}-{seed:x}", fault.name());
    fault.prepare(servers)?;
    let contenders = ["one", "two"]
        .map(|name| Contender::start(system, servers, &lock, name, lease))
        .into_iter()
        .collect::<anyhow::Result<Vec<_>>>()?;
    let holder = wait_for(START, || {
        contenders
            .iter()
            .position(|contender| contender.records().is_ok_and(|records| !records.is_empty()))
    });
    let holder = holder.with_context(|| {
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
    let before = contenders[1 - holder].records()?.len();
    ensure!(before == 0, "two run before the fault");

    let began = BootInstant::now();
    let struck = fault.strike(servers, &contenders[holder], &contenders[1 - holder])?;
    let has_begun = || {
        let records = contenders[1 - holder].records().ok()?;
        (!records.is_empty()).then_some(())
    };
    // A fault that lasts is undone after its time; the next one may hold long before.
    wait_until(began + fault.length(lease));
    struck.undo(servers)?;
    let next = wait_for(lease * 2 + BOUND, || {
        if has_begun().is_some() {
            Some(true)
        } else {
            runs_on(&contenders[holder], lease).then_some(false)
        }
    });
    let mut patience = Duration::ZERO;
    if next.is_some() {
        std::thread::sleep(AFTER);
        // On a busy machine the next contender may have stopped again, and runs soon.
        patience = BOUND;
    }
    let gap = wait_for(patience, || gap_until_now(&contenders, began).transpose()).transpose()?;
    let files = contenders
        .iter()
        .map(Contender::snapshot)
        .collect::<anyhow::Result<Vec<_>>>()?;
    if gap.is_none() {
        for contender in &contenders {
            println!("nobody ran again; {}", contender.last_lines());
        }
    }
    let told = contenders[holder].lost_after(began);
    let has_token = contenders.iter().any(Contender::has_token);
    for contender in contenders {
        contender.end()?;
    }
    wait_for(START, || servers.all_serve().then_some(())).context("the servers do not serve again")?;

    let records = files
        .iter()
        .map(|file| Ok(Records::read(file)?.records))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let found = stretches(&records);
    let overlap = overlap(&found);
    let ours = Verdict::ours(&found);
    let second = Verdict::of_porcupine(&files)?;
    ensure!(
        ours == second,
        "the two judges disagree about {files:?}: we say {ours:?}, Porcupine {second:?}"
    );
    let resource = at_resource(&records);
    Ok(Round {
        seed,
        grew: has_token.then_some(ours.fenced),
        overlap: overlap.map(|time| time.as_secs_f64()),
        gap: gap.map(|time| time.as_secs_f64()),
        late: resource.late,
        refused: if has_token { resource.refused } else { 0 },
        told: told.map(|at| at.saturating_since(began).as_secs_f64()),
    })
}

fn all_records(contenders: &[Contender]) -> anyhow::Result<Vec<Vec<Record>>> {
    contenders.iter().map(Contender::records).collect()
}

/// How long no contender ran since a moment, if one runs now.
fn gap_until_now(contenders: &[Contender], since: BootInstant) -> anyhow::Result<Option<Duration>> {
    // The moment comes first: a line that is written meanwhile is after it, but none is missing before it.
    let until = BootInstant::now();
    Ok(gap(&stretches(&all_records(contenders)?), since, until))
}

/// Whether the holder of before has gone on for a lease since the fault was undone, so that no change is to be expected.
fn runs_on(holder: &Contender, lease: Duration) -> bool {
    let Ok(records) = holder.records() else {
        return false;
    };
    let now = BootInstant::now();
    let found = stretches(&[records]);
    found.last().is_some_and(|last| {
        now.saturating_since(last.to) < Duration::from_millis(200)
            && now.saturating_since(last.from) > lease * 2
    })
}

fn wait_until(moment: BootInstant) {
    std::thread::sleep(moment.saturating_since(BootInstant::now()));
}
