//! A timeline of holds and faults: live in a terminal, and as a picture.

use std::collections::HashMap;
use std::time::Duration;

use lockkeeper_lock::BootInstant;

use crate::checker::{Report, Violation};
use crate::record::{Moment, Record};

pub mod svg;
pub mod terminal;

/// One hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    pub token: i64,
    /// First stamp.
    pub from: BootInstant,
    /// Last stamp.
    pub to: BootInstant,
}

/// One worker and its holds, in the order of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    /// When it held.
    pub bars: Vec<Bar>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A request, or an event elsewhere.
    Note,
    /// A fault that the harness made.
    Fault,
    Violation,
}

/// An event beside the holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub kind: MarkKind,
    pub label: String,
    pub from: BootInstant,
    /// When it was over; `None` while it lasts.
    pub to: Option<BootInstant>,
}

/// All that a picture shows.
#[derive(Clone, Debug)]
pub struct Timeline {
    start: BootInstant,
    rows: Vec<Row>,
    marks: Vec<Mark>,
    workers: HashMap<(i64, u32), usize>,
}

impl Timeline {
    /// A timeline that begins at `start`, with a row for each of the `workers` that are known before
    /// they hold.
    pub fn new<'a>(start: BootInstant, workers: impl IntoIterator<Item = &'a str>) -> Self {
        let rows = workers
            .into_iter()
            .map(|name| Row {
                name: name.to_owned(),
                bars: Vec::new(),
            })
            .collect();
        Self {
            start,
            rows,
            marks: Vec::new(),
            workers: HashMap::new(),
        }
    }

    /// The timeline of a report, with its violations.
    pub fn of(report: &Report) -> Self {
        let start = report
            .holds
            .first()
            .map_or(BootInstant::from_nanos(0), |hold| hold.begin);
        let mut timeline = Self::new(start, []);
        for hold in &report.holds {
            let row = timeline.row(&hold.name);
            let bar = Bar {
                token: hold.token,
                from: hold.begin,
                to: hold.end,
            };
            timeline.rows[row].bars.push(bar);
        }
        timeline.rows.sort_by(|a, b| a.name.cmp(&b.name));
        for violation in &report.violations {
            let (label, from, lasted) = match violation {
                Violation::Overlap { from, lasted, .. } => ("overlap", *from, *lasted),
                Violation::TokenOrder { later, .. } => {
                    ("token order", report.holds[*later].begin, Duration::ZERO)
                }
            };
            let label = label.to_owned();
            timeline.mark(Mark {
                kind: MarkKind::Violation,
                label,
                from,
                to: Some(from + lasted),
            });
        }
        timeline
    }

    /// Adds a row for a worker that may never hold; does nothing when it has one.
    pub fn add_worker(&mut self, name: &str) {
        self.row(name);
    }

    /// Adds one record of a worker. Pass the records of one process in their order.
    pub fn record(&mut self, record: &Record) {
        let process = (record.token, record.pid);
        if let Moment::Begin { name, .. } = &record.moment {
            let row = self.row(name);
            self.workers.insert(process, row);
        }
        // A process whose begin is not known has no row.
        let Some(&row) = self.workers.get(&process) else {
            return;
        };
        match self.rows[row].bars.last_mut() {
            Some(bar) if bar.token == record.token => bar.to = bar.to.max(record.at),
            _ => self.rows[row].bars.push(Bar {
                token: record.token,
                from: record.at,
                to: record.at,
            }),
        }
    }

    /// Adds a bar that no program has recorded, of a worker or of anything else.
    pub fn stay(&mut self, worker: &str, bar: Bar) {
        let row = self.row(worker);
        self.rows[row].bars.push(bar);
    }

    /// The part between two moments; longer bars are cut there. Leaves out rows that are empty then, and
    /// marks that began before this part and end behind it.
    pub fn between(&self, from: BootInstant, to: BootInstant) -> Self {
        let rows = self.rows.iter().map(|row| Row {
            name: row.name.clone(),
            bars: row
                .bars
                .iter()
                .filter(|bar| bar.to >= from && bar.from <= to)
                .map(|bar| Bar {
                    token: bar.token,
                    from: bar.from.max(from),
                    to: bar.to.min(to),
                })
                .collect(),
        });
        let says_something = |mark: &&Mark| {
            let ends_later = mark.to.is_none_or(|end| end > to);
            let has_begun = mark.from < from;
            mark.from <= to && mark.to.is_none_or(|end| end >= from) && !(has_begun && ends_later)
        };
        let marks = self.marks.iter().filter(says_something);
        Self {
            start: from,
            rows: rows.filter(|row| !row.bars.is_empty()).collect(),
            marks: marks
                .map(|mark| Mark {
                    from: mark.from.max(from),
                    to: mark.to.map(|end| end.min(to)),
                    ..mark.clone()
                })
                .collect(),
            workers: HashMap::new(),
        }
    }

    pub fn mark(&mut self, mark: Mark) {
        self.marks.push(mark);
    }

    /// Ends the newest unfinished mark with this label.
    pub fn unmark(&mut self, label: &str, at: BootInstant) {
        if let Some(mark) = self
            .marks
            .iter_mut()
            .rev()
            .find(|mark| mark.to.is_none() && mark.label == label)
        {
            mark.to = Some(at);
        }
    }

    pub fn start(&self) -> BootInstant {
        self.start
    }

    /// The last moment of anything in it.
    pub fn end(&self) -> BootInstant {
        let bars = self.rows.iter().flat_map(|row| &row.bars).map(|bar| bar.to);
        let marks = self.marks.iter().map(|mark| mark.to.unwrap_or(mark.from));
        bars.chain(marks).max().unwrap_or(self.start)
    }

    /// The workers, in the order of their first appearance.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// The times between two holders in which the lock was free.
    pub fn gaps(&self) -> Vec<(BootInstant, BootInstant)> {
        let mut bars: Vec<&Bar> = self.rows.iter().flat_map(|row| &row.bars).collect();
        bars.sort_by_key(|bar| bar.from);
        let mut gaps = Vec::new();
        let mut held_until: Option<BootInstant> = None;
        for bar in bars {
            if let Some(until) = held_until.filter(|&until| until < bar.from) {
                gaps.push((until, bar.from));
            }
            held_until = held_until.max(Some(bar.to));
        }
        gaps
    }

    fn row(&mut self, name: &str) -> usize {
        self.rows
            .iter()
            .position(|row| row.name == name)
            .unwrap_or_else(|| {
                self.rows.push(Row {
                    name: name.to_owned(),
                    bars: Vec::new(),
                });
                self.rows.len() - 1
            })
    }
}

/// `12 ms`, `3.4 s`.
fn short(duration: Duration) -> String {
    match duration {
        d if d < Duration::from_millis(1) => format!("{} us", d.as_micros()),
        d if d < Duration::from_secs(1) => format!("{} ms", d.as_millis()),
        d => format!("{:.1} s", d.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests;
