//! The report as text.

use std::fmt::{self, Write as _};
use std::time::Duration;

use lockkeeper_lock::BootInstant;

use super::{Hold, Report, Spare, Violation};
use crate::record::Access;

/// Violations first, then a table of the holds, then the figures.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(start) = self.holds.first().map(|hold| hold.begin) else {
            return writeln!(f, "No records: nothing ran, so nothing is proven.");
        };
        for violation in &self.violations {
            self.describe(f, violation, start)?;
        }
        f.write_str(&table(self, &[]))?;
        let gaps: Duration = self.gaps.iter().map(|&(_, gap)| gap).sum();
        write!(
            f,
            "{} holds, {} violations",
            self.holds.len(),
            self.violations.len()
        )?;
        match self.least_gap() {
            Some(least) => writeln!(
                f,
                "; the lock was free for {} in all, least {}",
                human(gaps),
                human(least)
            ),
            None => writeln!(f, "; the lock was held all the time"),
        }
    }
}

impl Report {
    fn describe(&self, f: &mut fmt::Formatter<'_>, violation: &Violation, start: BootInstant) -> fmt::Result {
        match violation {
            Violation::Overlap { holds, from, lasted } => {
                let who: Vec<_> = holds.iter().map(|&hold| named(&self.holds[hold])).collect();
                writeln!(
                    f,
                    "VIOLATION at {}: {} ran at the same time for {}",
                    since(*from, start),
                    who.join(" and "),
                    human(*lasted)
                )
            }
            Violation::TokenOrder { earlier, later } => {
                let (earlier, later) = (&self.holds[*earlier], &self.holds[*later]);
                let at = since(later.begin, start);
                writeln!(
                    f,
                    "VIOLATION at {at}: {} began after {}",
                    named(later),
                    named(earlier)
                )
            }
        }
    }
}

/// The holds of a report, a line each, with the spare time of those that have one. Times count from
/// the first hold.
pub fn table(report: &Report, spares: &[Spare]) -> String {
    let Some(start) = report.holds.first().map(|hold| hold.begin) else {
        return String::new();
    };
    let mut text = format!(
        "{:>20}  {:<16} {:>11} {:>11} {:>10}  {:<7}{}\n",
        "token",
        "name",
        "begin",
        "held",
        "gap",
        "end",
        if spares.is_empty() { "" } else { "      spare" }
    );
    for (index, hold) in report.holds.iter().enumerate() {
        let gap = report
            .gaps
            .iter()
            .find(|&&(after, _)| after == index)
            .map_or(String::new(), |&(_, gap)| human(gap));
        let spare = spares.iter().find(|spare| spare.token == hold.token);
        let spare = match spare.map(|spare| (spare.spare, spare.late)) {
            Some((Some(spare), _)) => format!("{:>11}", human(spare)),
            Some((None, Some(late))) => format!("{:>11}", format!("-{}", human(late))),
            _ => String::new(),
        };
        let line = format!(
            "{:>20}  {:<16} {:>11} {:>11} {gap:>10}  {:<7}{spare}",
            hold.token,
            hold.name,
            since(hold.begin, start),
            human(hold.end - hold.begin),
            if hold.ended { "itself" } else { "killed" },
        );
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn named(hold: &Hold) -> String {
    let access = match hold.access {
        Access::Write => "",
        Access::Read => ", reader",
    };
    let pids: Vec<_> = hold.pids.iter().map(u32::to_string).collect();
    format!(
        "{} (token {}{access}, pid {})",
        hold.name,
        hold.token,
        pids.join(" ")
    )
}

fn since(at: BootInstant, start: BootInstant) -> String {
    format!("{:.3} s", (at - start).as_secs_f64())
}

fn human(duration: Duration) -> String {
    match duration {
        d if d < Duration::from_millis(1) => format!("{} us", d.as_micros()),
        d if d < Duration::from_secs(1) => format!("{:.1} ms", d.as_secs_f64() * 1e3),
        d => format!("{:.2} s", d.as_secs_f64()),
    }
}
