//! What was traced, and what TLC says about it.

use std::fmt;

use crate::tlc::{Tlc, Verdict};
use crate::trace::{Kind, Trace};
use crate::wrong::{Mistake, spoil};

/// Counts of traces, and those that show a fault of the task or of the specification.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Traces of the real task.
    pub traces: usize,
    pub events: usize,
    /// Contenders that held.
    pub holders: usize,
    /// Takeovers that were acknowledged.
    pub takeovers: usize,
    pub losses: usize,
    /// Takeovers that came too late: the one in front had renewed or left.
    pub refused: usize,
    /// Spoilt traces, by the mistake, which TLC rejected.
    pub spoilt: Vec<(Mistake, usize)>,
    /// Traces that were rejected, and spoilt ones that were accepted, in words.
    pub bad: Vec<String>,
}

/// How many traces are spoilt by each mistake, at most: so TLC spends most of its time on real traces.
const SPOILT: usize = 2;

/// Judges traces, and some of them again with each mistake.
///
/// # Errors
/// When TLC fails.
pub fn judge(tlc: &Tlc, traces: Vec<Trace>) -> anyhow::Result<Report> {
    let mut report = Report {
        traces: traces.len(),
        spoilt: Mistake::ALL.map(|mistake| (mistake, 0)).to_vec(),
        ..Report::default()
    };
    let mistakes: Vec<(Mistake, Trace)> = Mistake::ALL
        .iter()
        .flat_map(|&mistake| {
            let spoilt = traces
                .iter()
                .filter_map(move |trace| Some((mistake, spoil(trace, mistake)?)));
            spoilt.take(SPOILT)
        })
        .collect();
    let all: Vec<Trace> = traces
        .iter()
        .chain(mistakes.iter().map(|(_, trace)| trace))
        .cloned()
        .collect();
    let verdicts = tlc.judge(&all)?;
    let (of_real, of_spoilt) = verdicts.split_at(traces.len());
    for (trace, verdict) in traces.iter().zip(of_real) {
        report.events += trace.events.len();
        report.holders += trace.holders();
        report.takeovers += trace.takeovers();
        report.losses += trace.losses;
        let is_refused = |event: &&crate::trace::Event| event.kind == Kind::Refused && event.whom > 0;
        report.refused += trace.events.iter().filter(is_refused).count();
        if let Verdict::Rejected(at) = verdict {
            report
                .bad
                .push(format!("A trace was rejected at its event {at}:\n{trace}"));
        }
    }
    for ((mistake, trace), verdict) in mistakes.iter().zip(of_spoilt) {
        match verdict {
            Verdict::Rejected(_) => {
                let counts = report.spoilt.iter_mut();
                counts
                    .filter(|(it, _)| it == mistake)
                    .for_each(|(_, count)| *count += 1);
            }
            Verdict::Accepted => report
                .bad
                .push(format!("A spoilt trace was accepted ({mistake}):\n{trace}")),
        }
    }
    Ok(report)
}

impl Report {
    pub fn add(&mut self, other: &Self) {
        self.traces += other.traces;
        self.events += other.events;
        self.holders += other.holders;
        self.takeovers += other.takeovers;
        self.losses += other.losses;
        self.refused += other.refused;
        self.bad.extend(other.bad.iter().cloned());
        for &(mistake, count) in &other.spoilt {
            match self.spoilt.iter_mut().find(|(it, _)| *it == mistake) {
                Some((_, sum)) => *sum += count,
                None => self.spoilt.push((mistake, count)),
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} traces, {} events, {} holders, {} takeovers and {} refused, {} losses; {} wrong verdicts",
            self.traces,
            self.events,
            self.holders,
            self.takeovers,
            self.refused,
            self.losses,
            self.bad.len()
        )?;
        for (mistake, count) in &self.spoilt {
            write!(f, "\n  rejected: {count} spoilt: {mistake}")?;
        }
        Ok(())
    }
}
