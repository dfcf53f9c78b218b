//! The timeline in a terminal, a picture at a time. Plain text: the caller decides where it goes.

use std::fmt::Write as _;
use std::time::Duration;

use lockkeeper_lock::BootInstant;

use super::{Mark, MarkKind, Timeline, short};

/// How long after its last line a worker still counts as running: several periods of the recorder,
/// and the time in which its file is read.
const FRESH: Duration = Duration::from_millis(100);

/// What a terminal shows.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// Characters in a line.
    pub width: usize,
    /// How much time is shown, ending now.
    pub window: Duration,
    /// Use ANSI colours.
    pub colour: bool,
}

impl Screen {
    /// One picture: a line for each worker, one for the faults, and two of words.
    pub fn frame(&self, timeline: &Timeline, now: BootInstant) -> String {
        let names = timeline
            .rows()
            .iter()
            .map(|row| row.name.chars().count())
            .max()
            .unwrap_or(0)
            .max(6);
        // Beside the name and the bar: a token of up to 20 characters, and spaces.
        let cells = self.width.saturating_sub(names + 24).max(10);
        let mut text = String::new();
        let mut holders = Vec::new();
        for row in timeline.rows() {
            let last = row.bars.last().filter(|bar| now - bar.to < FRESH);
            let token = last.map_or(String::new(), |bar| bar.token.to_string());
            if last.is_some() {
                holders.push(row.name.as_str());
            }
            let held: String = (0..cells)
                .map(|cell| {
                    let (from, to) = self.cell(cell, cells, now);
                    let any = row.bars.iter().any(|bar| bar.from < to && bar.to >= from);
                    if any { '█' } else { '·' }
                })
                .collect();
            let held = self.paint(&held, if last.is_some() { "32" } else { "2" });
            let _ = writeln!(text, "{:<names$} {held} {token:>20}", row.name);
        }
        let marks: String = (0..cells)
            .map(|cell| {
                let (from, to) = self.cell(cell, cells, now);
                let here = |mark: &&Mark| mark.from < to && mark.to.unwrap_or(now) >= from;
                match timeline
                    .marks()
                    .iter()
                    .filter(here)
                    .map(|mark| mark.kind)
                    .max_by_key(|&kind| kind as u8)
                {
                    Some(MarkKind::Violation) => '!',
                    Some(MarkKind::Fault) => '▒',
                    None => ' ',
                }
            })
            .collect();
        let _ = writeln!(text, "{:<names$} {}", "faults", self.paint(&marks, "31"));
        let broken: Vec<&str> = timeline
            .marks()
            .iter()
            .filter(|mark| mark.to.is_none_or(|to| to > now))
            .map(|mark| mark.label.as_str())
            .collect();
        let holders = if holders.is_empty() {
            let since = timeline
                .rows()
                .iter()
                .flat_map(|row| &row.bars)
                .map(|bar| bar.to)
                .max();
            let since = since.unwrap_or(timeline.start());
            format!("nobody holds, for {}", short(now - since))
        } else {
            format!("held by {}", holders.join(", "))
        };
        let gaps = timeline.gaps();
        let longest = gaps.iter().map(|&(from, to)| to - from).max().unwrap_or_default();
        let _ = writeln!(
            text,
            "{} | {holders} | {} handoffs, longest without a holder {}",
            short(now - timeline.start()),
            gaps.len(),
            short(longest)
        );
        let broken = if broken.is_empty() {
            "nothing is broken".to_owned()
        } else {
            broken.join("; ")
        };
        let _ = writeln!(text, "{broken}");
        text
    }

    /// The escape codes that put the cursor back to where a frame of so many lines began.
    pub fn rewind(frame: &str) -> String {
        format!("\x1b[{}A\x1b[J", frame.lines().count())
    }

    fn cell(&self, cell: usize, cells: usize, now: BootInstant) -> (BootInstant, BootInstant) {
        let start = now.saturating_sub(self.window);
        let step = self.window / cells as u32;
        (start + step * cell as u32, start + step * (cell as u32 + 1))
    }

    fn paint(&self, text: &str, code: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
