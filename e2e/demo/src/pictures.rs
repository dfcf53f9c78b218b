//! Further pictures of the second act: the start of one pod, a handoff, a rollout.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use lockkeeper_judge::timeline::{Bar, Mark, MarkKind, Timeline, svg};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::space::{GUARD, KEEPER, processes};
use rustix::process::Pid;

use crate::pods::{Run, Scene};

pub(crate) const ROLLOUT: &str = "rollout";

/// Time shown before and after a handoff, which takes milliseconds.
const AROUND_HANDOFF: Duration = Duration::from_millis(25);
/// Time shown before and after a rollout, which takes seconds.
const AROUND_ROLLOUT: Duration = Duration::from_millis(100);
/// Time of the application in the picture of a start.
const AFTER_START: Duration = Duration::from_millis(300);

/// The start of a pod: its processes from `applied`, the moment at which its manifest was applied.
pub(crate) fn start_of(scene: &Scene<'_>, run: &Run, applied: BootInstant) -> anyhow::Result<Timeline> {
    let uid = scene
        .cluster()
        .kubectl(&["get", "pod", &run.pod, "--output=jsonpath={.metadata.uid}"])?;
    let until = run.began + AFTER_START;
    let mut timeline = Timeline::new(applied, []);
    for (row, command) in [("keeper", KEEPER), ("guard", GUARD)] {
        let process = *processes(command, &uid)
            .first()
            .with_context(|| format!("there is no {row} in {}", run.pod))?;
        let from = started(process)?;
        timeline.stay(row, bar(run, from, until));
    }
    timeline.stay("application", bar(run, run.began, until));
    timeline.mark(note("kubectl apply", applied));
    Ok(timeline)
}

/// The rollout from its beginning to its end, and in it the handoff: from the old application's last
/// instructions to the new one's first.
pub(crate) fn of_rollout(scene: &Scene<'_>, before: &Run, after: &Run, folder: &Path) -> anyhow::Result<()> {
    let timeline = &scene.timeline;
    let rollout = timeline.marks().iter().find(|mark| mark.label == ROLLOUT);
    if let Some((from, to)) = rollout.and_then(|mark| Some((mark.from, mark.to?))) {
        let part = timeline.between(from.saturating_sub(AROUND_ROLLOUT), to + AROUND_ROLLOUT);
        write(&part, "A rollout takes the lock along", folder, "rollout.svg")?;
    }
    if let Some(last) = scene.last_of(before.token) {
        let mut part = timeline.between(last.saturating_sub(AROUND_HANDOFF), after.began + AROUND_HANDOFF);
        part.mark(note("the last instruction", last));
        write(&part, "The handoff in that rollout", folder, "handoff.svg")?;
    }
    Ok(())
}

pub(crate) fn write(timeline: &Timeline, title: &str, folder: &Path, name: &str) -> anyhow::Result<()> {
    let file = folder.join(name);
    lockkeeper_palette::write(&file, |theme| svg::render(timeline, title, theme))
        .context("cannot write a picture")?;
    Ok(())
}

fn bar(run: &Run, from: BootInstant, to: BootInstant) -> Bar {
    Bar {
        token: run.token,
        from,
        to,
    }
}

fn note(label: &str, at: BootInstant) -> Mark {
    Mark {
        kind: MarkKind::Note,
        label: label.to_owned(),
        from: at,
        to: Some(at),
    }
}

/// When a process was started: field 22 of `/proc/PID/stat` (proc(5)), in ticks since the machine's boot, so
/// exact to some ten milliseconds.
fn started(process: Pid) -> anyhow::Result<BootInstant> {
    let path = format!("/proc/{}/stat", process.as_raw_pid());
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The second field is a name in parentheses, which may contain any characters.
    let ticks: u64 = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.split(' ').nth(19))
        .and_then(|field| field.parse().ok())
        .with_context(|| format!("{path} is malformed"))?;
    Ok(BootInstant::from_nanos(
        ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second(),
    ))
}
