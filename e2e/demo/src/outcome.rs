//! How the lock moves after a request or a fault.

use std::time::Duration;

use lockkeeper_lock::BootInstant;

use crate::run::{Reason, Run};
use crate::stage::Stage;
use crate::waiting::Watched;
use crate::words::{millis, seconds};

/// How long a new situation is shown.
pub(crate) const LOOK: Duration = Duration::from_millis(1000);

/// Asks the holder to release, and returns the run of the next holder.
pub(crate) fn hand_over(stage: &mut Stage, holder: &Run) -> anyhow::Result<Run> {
    stage.note(format!("{}: release", holder.name), BootInstant::now());
    if let Err(error) = stage.ask_keeper(&holder.name, &["release"]) {
        // On a busy machine the lock may have moved by itself, just before.
        if stage.runs.range(holder.token + 1..).next().is_none() {
            return Err(error);
        }
    }
    let (next, gap) = stage.next_after(holder.token, Reason::Released)?;
    stage.tell(
        next.begin,
        &format!(
            "{} runs, {} after {}; token {}",
            next.name,
            millis(gap),
            holder.name,
            next.token
        ),
    )?;
    Ok(next)
}

/// Waits until the holder has outlived the lease that it had at the fault, or until another worker runs. True if the
/// holder went on.
pub(crate) fn outcome(
    stage: &mut Stage,
    holder: &Run,
    fault: BootInstant,
    reason: Reason,
) -> anyhow::Result<bool> {
    let session_timeout = stage.worker(&holder.name).options().session_timeout;
    let went_on = stage.wait("the holder goes on, or another one runs", |stage| {
        if stage.runs.range(holder.token + 1..).next().is_some() {
            return Some(false);
        }
        // By then no renewal from before the fault counts any more.
        (stage.runs[&holder.token].last > fault + session_timeout).then_some(true)
    })?;
    let name = &holder.name;
    if went_on {
        let text = format!("{name} has gone on all the time, under the same token");
        stage.tell(BootInstant::now(), &text)?;
    } else {
        let (next, gap) = stage.next_after(holder.token, reason)?;
        let last = stage.runs[&holder.token].last;
        stage.tell(
            last,
            &format!("{name} was stopped, {} after the fault", seconds(last - fault)),
        )?;
        stage.tell(
            next.begin,
            &format!(
                "{} runs, {} after {name}; token {}",
                next.name,
                seconds(gap),
                next.token
            ),
        )?;
    }
    Ok(went_on)
}
