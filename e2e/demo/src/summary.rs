//! The summary at the end: the whole timeline, a table, and the checker's verdict.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use lockkeeper_judge::checker::{self, Report, Rule, Spare};
use lockkeeper_judge::timeline::{MarkKind, Timeline};
use lockkeeper_lock::BootInstant;

use crate::console::Console;
use crate::run::Reason;
use crate::stage::Stage;

/// The result of [`tell`].
pub(crate) struct Told {
    pub(crate) timeline: Timeline,
    /// True if no promise was violated.
    pub(crate) is_clean: bool,
}

/// Prints the summary; the servers are stopped by then.
pub(crate) fn tell(mut stage: Stage) -> anyhow::Result<(Told, Console)> {
    stage.console.clear()?;
    let report = checker::check(&stage.records, Rule::Exclusive);
    let mut spares = report.spares(stage.lives());
    spares.retain(|spare| {
        let reason = stage.reasons.get(&spare.token);
        !matches!(reason, Some(Reason::Released | Reason::Over))
    });
    let Stage {
        console: mut out,
        mut timeline,
        reasons,
        ensemble,
        ..
    } = stage;
    drop(ensemble);
    for mark in Timeline::of(&report).marks() {
        if mark.kind == MarkKind::Violation {
            timeline.mark(mark.clone());
        }
    }
    out.title("What the workers wrote down, checked:")?;
    let end = timeline.end();
    let bars = out.screen(end - timeline.start()).bars(&timeline, end);
    out.print(&format!(
        "\n{bars}\n{}\n",
        table(&report, &reasons, &spares, timeline.start())
    ))?;
    if !report.is_clean() {
        out.print(&format!("{report}"))?;
    }
    for line in conclusions(&report, &reasons, &spares) {
        out.line(&line)?;
    }
    let is_clean = report.is_clean();
    Ok((Told { timeline, is_clean }, out))
}

/// A line for each hold. "spare" is the time from its last instruction to the deletion of its node at the
/// leader, if the deletion was seen and was not a release.
fn table(report: &Report, reasons: &BTreeMap<i64, Reason>, spares: &[Spare], start: BootInstant) -> String {
    let mut text = format!(
        "{:>12}  {:<6} {:>8} {:>8} {:>9} {:>8}  {}\n",
        "token", "who", "began", "ran", "spare", "nobody", "why the lock went on"
    );
    for (place, hold) in report.holds.iter().enumerate() {
        let nobody = gap_after(report, place).map_or(String::new(), human);
        let spare = spares.iter().find(|spare| spare.token == hold.token);
        let spare = match spare.map(|spare| (spare.spare, spare.late)) {
            Some((Some(spare), _)) => human(spare),
            Some((None, Some(late))) => format!("-{}", human(late)),
            _ => String::new(),
        };
        let why = reasons
            .get(&hold.token)
            .map_or("by itself: see its log", |reason| reason.words());
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:>12}  {:<6} {:>8} {:>8} {spare:>9} {nobody:>8}  {why}",
            hold.token,
            hold.name,
            human(hold.begin.saturating_since(start)),
            human(hold.end - hold.begin),
        );
    }
    text
}

/// How long no worker ran after this hold; `None` after the last one.
fn gap_after(report: &Report, place: usize) -> Option<Duration> {
    report
        .gaps
        .iter()
        .find(|&&(next, _)| next == place + 1)
        .map(|&(_, gap)| gap)
}

fn conclusions(report: &Report, reasons: &BTreeMap<i64, Reason>, spares: &[Spare]) -> Vec<String> {
    let mut lines = Vec::new();
    lines.push(if report.is_clean() {
        format!(
            "Nobody ran at the same moment as another: {} holds, 0 overlaps, tokens grew.",
            report.holds.len()
        )
    } else {
        format!(
            "THIS MUST NOT HAPPEN: {} holds, {} violations, listed above.",
            report.holds.len(),
            report.violations.len()
        )
    });
    let gaps = |wanted: Reason| -> Vec<Duration> {
        let places = 0..report.holds.len();
        places
            .filter(|&place| reasons.get(&report.holds[place].token) == Some(&wanted))
            .filter_map(|place| gap_after(report, place))
            .collect()
    };
    for (reason, what, why) in [
        (
            Reason::Released,
            "a clean handoff",
            "one application stops, the next one starts",
        ),
        (
            Reason::Killed,
            "a kill -9",
            "the keeper releases the lock as soon as nothing of the application is left",
        ),
        (
            Reason::Election,
            "an election",
            "without a leader no worker can take a place in the queue, or give its own up",
        ),
        (
            Reason::CutOff,
            "a cut-off server",
            "the application is stopped early enough, then the next worker takes the silent one's place",
        ),
    ] {
        let gaps = gaps(reason);
        if let (Some(&least), Some(&most)) = (gaps.iter().min(), gaps.iter().max()) {
            let range = if gaps.len() == 1 {
                human(most)
            } else {
                format!("{} to {}", human(least), human(most))
            };
            lines.push(format!("Nobody ran for {range} after {what}: {why}."));
        }
    }
    let all_in_time = spares.iter().all(|spare| spare.late.is_none());
    if let Some(least) = spares
        .iter()
        .filter_map(|spare| spare.spare)
        .min()
        .filter(|_| all_in_time)
    {
        lines.push(format!(
            "No application outlived its place in the queue: from the last instruction to the moment at which \
             the leader deleted the place, {} at least were to spare.",
            human(least)
        ));
    }
    lines
}

fn human(duration: Duration) -> String {
    match duration {
        d if d < Duration::from_millis(100) => format!("{:.1} ms", d.as_secs_f64() * 1e3),
        d if d < Duration::from_secs(1) => format!("{} ms", d.as_millis()),
        d => format!("{:.2} s", d.as_secs_f64()),
    }
}
