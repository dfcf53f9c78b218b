//! The timeline in a terminal, one picture at a time, as text that the caller prints.

use std::fmt::Write as _;
use std::time::Duration;

use lockkeeper_lock::BootInstant;

use super::{Bar, Mark, MarkKind, Timeline, short};

/// How long a worker counts as running after its last line: several periods of the recorder, and the time to
/// read its file.
const FRESH: Duration = Duration::from_millis(100);

/// The size and style of the picture.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// Characters in a line.
    pub width: usize,
    /// The time span of the picture, which ends now.
    pub window: Duration,
    /// Use ANSI colours.
    pub colour: bool,
}

impl Screen {
    /// One picture: a line for each worker, one for the marks, and two of text.
    pub fn frame(&self, timeline: &Timeline, now: BootInstant) -> String {
        let mut text = self.bars(timeline, now);
        for words in [happening(timeline, now), broken(timeline, now)] {
            let fitting: String = words.chars().take(self.width).collect();
            let _ = writeln!(text, "{fitting}");
        }
        text
    }

    /// The lines of a frame without the text, for a picture that stays.
    pub fn bars(&self, timeline: &Timeline, now: BootInstant) -> String {
        let names = timeline
            .rows()
            .iter()
            .map(|row| row.name.chars().count())
            .max()
            .unwrap_or(0)
            .max(6);
        // The rest of a line: a token of up to 20 characters, and spaces.
        let cells = self.width.saturating_sub(names + 24).max(10);
        let mut text = String::new();
        for row in timeline.rows() {
            let last = row.bars.last().filter(|bar| is_fresh(bar, now));
            let token = last.map_or(String::new(), |bar| bar.token.to_string());
            let held = (0..cells).map(|cell| {
                let (from, to) = self.cell(cell, cells, now);
                let any = row.bars.iter().any(|bar| bar.from < to && bar.to >= from);
                if any { ('█', "32") } else { ('·', "2") }
            });
            let _ = writeln!(text, "{:<names$} {} {token:>20}", row.name, self.paint(held));
        }
        let marks = (0..cells).map(|cell| {
            let (from, to) = self.cell(cell, cells, now);
            let here = |mark: &&Mark| mark.from < to && mark.to.unwrap_or(now) >= from;
            match timeline
                .marks()
                .iter()
                .filter(here)
                .map(|mark| mark.kind)
                .max_by_key(|&kind| kind as u8)
            {
                Some(MarkKind::Violation) => ('!', "31"),
                Some(MarkKind::Fault) => ('▒', "31"),
                Some(MarkKind::Note) => ('|', "36"),
                None => (' ', "0"),
            }
        });
        let _ = writeln!(text, "{:<names$} {}", "events", self.paint(marks));
        text
    }

    /// The escape codes that put the cursor back to the beginning of this frame.
    pub fn rewind(frame: &str) -> String {
        format!("\x1b[{}A\x1b[J", frame.lines().count())
    }

    fn cell(&self, cell: usize, cells: usize, now: BootInstant) -> (BootInstant, BootInstant) {
        let start = now.saturating_sub(self.window);
        let step = self.window / cells as u32;
        (start + step * cell as u32, start + step * (cell as u32 + 1))
    }

    /// Characters with their colours, with as few escape codes as possible.
    fn paint(&self, cells: impl Iterator<Item = (char, &'static str)>) -> String {
        let mut text = String::new();
        let mut colour = "0";
        for (character, wanted) in cells {
            if self.colour && wanted != colour {
                let _ = write!(text, "\x1b[0;{wanted}m");
                colour = wanted;
            }
            text.push(character);
        }
        if colour != "0" {
            text.push_str("\x1b[0m");
        }
        text
    }
}

fn is_fresh(bar: &Bar, now: BootInstant) -> bool {
    now.saturating_since(bar.to) < FRESH
}

/// The present holder, and a summary so far.
fn happening(timeline: &Timeline, now: BootInstant) -> String {
    let bars = || timeline.rows().iter().flat_map(|row| &row.bars);
    let holders: Vec<&str> = timeline
        .rows()
        .iter()
        .filter(|row| row.bars.last().is_some_and(|bar| is_fresh(bar, now)))
        .map(|row| row.name.as_str())
        .collect();
    let holders = if holders.is_empty() {
        let since = bars().map(|bar| bar.to).max().unwrap_or(timeline.start());
        format!("nobody holds, for {}", short(now - since))
    } else {
        format!("held by {}", holders.join(", "))
    };
    let gaps = timeline.gaps();
    let longest = gaps.iter().map(|&(from, to)| to - from).max().unwrap_or_default();
    format!(
        "{} | {holders} | {} handoffs, longest without a holder {}",
        short(now - timeline.start()),
        gaps.len(),
        short(longest)
    )
}

/// The present faults.
fn broken(timeline: &Timeline, now: BootInstant) -> String {
    let broken: Vec<&str> = timeline
        .marks()
        .iter()
        .filter(|mark| mark.to.is_none_or(|to| to > now))
        .map(|mark| mark.label.as_str())
        .collect();
    if broken.is_empty() {
        "nothing is broken".to_owned()
    } else {
        broken.join("; ")
    }
}
