//! The results as two pictures, each for light or for dark pages.

use std::fmt::{Display, Write as _};

use lockkeeper_palette::Theme;

use crate::cell::{Cell, ONE_LINE};
use crate::faults::{FAULTS, Fault};
use crate::results::Results;
use crate::systems::{SYSTEMS, System};

/// All lengths are in SVG user units, which are pixels at 100 %. A page may be 700 of them wide: texts of 12 are legible
/// then.
const WIDTH: f64 = 760.0;
const LABEL: f64 = 206.0;
const COLUMN: f64 = 39.0;
const ROW: f64 = 33.0;
const TOP: f64 = 158.0;

/// How many characters of a title there is room for beside a row.
const LABEL_CHARACTERS: usize = 28;

const STYLE: &str = "\
text{font-family:ui-sans-serif,system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;font-size:12px;fill:{{quiet}}}\
.title{font-size:15px;font-weight:600;fill:{{ink}}}.name{fill:{{ink}}}.in{fill:{{on-solid}}}.grid{stroke:{{faint}}}\
.never{fill:{{holder}}}.brief{fill:{{fault}}}.long{fill:{{danger}}}.none{fill:{{panel}}}.unknown{fill:{{other}}}\
.dot{fill:{{other}}}.own{fill:{{holder}}}";

/// The distance of two lines of a legend.
const LINE: f64 = 18.0;

/// A time that stands for ever, in seconds.
const EVER: f64 = 1000.0;

/// Overlaps below this, in seconds, are brief: a write that had begun.
const BRIEF: f64 = 0.1;

/// Lock by fault: green if two never ran at once, else by the worst overlap; empty where the fault does not apply, and a
/// question mark where it was not measured.
pub fn heat_map(results: &Results, theme: Theme) -> String {
    let rows = SYSTEMS;
    let height = TOP + ROW * rows.len() as f64 + 8.0;
    let mut svg = head(
        height,
        "Did two run at once?",
        "The worst overlap, and in how many rounds. Green: never. Amber: under 0.1 s. Red: longer.",
        theme,
    );
    for (column, fault) in FAULTS.iter().enumerate() {
        let x = LABEL + COLUMN * (column as f64 + 0.5);
        // A name is wider than its column: every second one stands above the others.
        let bottom = if column % 2 == 0 { TOP - 56.0 } else { TOP - 8.0 };
        for (line, word) in fault.name().split('-').rev().enumerate() {
            text(&mut svg, "", x, bottom - 14.0 * line as f64, "middle", word);
        }
        if column % 2 == 0 {
            // Writing to a string does not fail.
            let _ = writeln!(
                svg,
                "<line class=\"grid decoration\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                bottom + 5.0,
                TOP - 2.0
            );
        }
    }
    for (row, system) in rows.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        lines(&mut svg, "name", LABEL - 8.0, y, "end", &wrapped(system.title));
        for (column, &fault) in FAULTS.iter().enumerate() {
            let x = LABEL + COLUMN * column as f64;
            let (class, words) = square(results, system, fault);
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"3\"/>",
                x + 1.0,
                y + 1.0,
                COLUMN - 2.0,
                ROW - 2.0
            );
            lines(&mut svg, "in", x + COLUMN / 2.0, y, "middle", &words);
        }
    }
    svg + "</svg>\n"
}

/// A title in one line or two.
fn wrapped(title: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for word in title.replace('`', "").split(' ') {
        let last = found.last_mut().expect("one line");
        if last.is_empty() {
            *last = word.to_owned();
        } else if last.chars().count() + 1 + word.chars().count() <= LABEL_CHARACTERS {
            last.push(' ');
            last.push_str(word);
        } else {
            found.push(word.to_owned());
        }
    }
    found.iter().map(|line| escaped(line)).collect()
}

/// One line or two in the middle of a row that begins at `y`.
fn lines(svg: &mut String, class: &str, x: f64, y: f64, anchor: &str, words: &[String]) {
    let first = y + ROW / 2.0 + 4.0 - 7.0 * (words.len().max(1) - 1) as f64;
    for (line, words) in words.iter().enumerate() {
        text(svg, class, x, first + 14.0 * line as f64, anchor, words);
    }
}

fn square(results: &Results, system: &System, fault: Fault) -> (&'static str, Vec<String>) {
    match cell(results, system, fault) {
        None if fault.applies_to(system).is_ok() => ("unknown", vec!["?".to_owned()]),
        None => ("none decoration", Vec::new()),
        Some(cell) => {
            let rounds = format!("{}/{}", cell.overlaps, cell.rounds);
            match cell.worst_overlap {
                None => ("never", vec![rounds]),
                Some(worst) => {
                    let class = if worst < BRIEF { "brief" } else { "long" };
                    let mark = if cell.goes_on { "≥" } else { "" };
                    (class, vec![format!("{mark}{}", short(worst)), rounds])
                }
            }
        }
    }
}

/// A time in the width of a column: `12 ms`, `3.4 s`, `31 s`.
fn short(value: f64) -> String {
    if value < ONE_LINE {
        "&lt;5 ms".to_owned()
    } else if value < 9.95 {
        seconds(value)
    } else {
        format!("{value:.0} s")
    }
}

/// Overlap against time without a holder, one dot with a number for each system: its worst overlap over all faults, and the
/// longest of its median times. Without the fault that concerns only locks whose holder is another process than the work.
pub fn scatter(results: &Results, theme: Theme) -> String {
    let (left, right, top, bottom) = (64.0, WIDTH - 40.0, 90.0, 560.0);
    let legend = bottom + 76.0;
    let rows = SYSTEMS.len().div_ceil(2);
    let mut svg = head(
        legend + LINE * rows as f64,
        "Two at once, or nobody at all",
        "Worst overlap and longest median gap, over all faults but library-paused and, for Redis, memory-full.",
        theme,
    );
    // Logarithmic from 1 ms to 1,000 s, which stands for ever, with a place for what never happened.
    let along = |value: Option<f64>| match value {
        None => 0.0,
        Some(value) => (value.clamp(1e-3, EVER).log10() + 3.0) / 6.0 * 0.9 + 0.1,
    };
    // From 100 ms on.
    let x = |value: f64| left + (value.clamp(0.1, EVER).log10() + 1.0) / 4.0 * (right - left);
    let y = |value| bottom - along(value) * (bottom - top);
    for (value, label) in [
        (None, "never"),
        (Some(1e-3), "1 ms"),
        (Some(0.1), "100 ms"),
        (Some(1.0), "1 s"),
        (Some(10.0), "10 s"),
        (Some(100.0), "100 s"),
        (Some(EVER), "for ever"),
    ] {
        let _ = writeln!(
            svg,
            "<line class=\"grid decoration\" x1=\"{left}\" x2=\"{right}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/>",
            y(value)
        );
        text(&mut svg, "", left - 6.0, y(value) + 4.0, "end", label);
        if let Some(value) = value.filter(|value| *value >= 0.1) {
            text(&mut svg, "", x(value), bottom + 22.0, "middle", label);
        }
    }
    text(
        &mut svg,
        "",
        f64::midpoint(left, right),
        bottom + 44.0,
        "middle",
        "to the right: the longest time without a holder (median of a fault); upwards: the worst overlap",
    );
    let dots: Vec<_> = SYSTEMS
        .iter()
        .filter_map(|system| Some((system, dot(results, system)?)))
        .collect();
    let mut groups: Vec<Group> = Vec::new();
    for (number, (system, (overlap, gap))) in dots.into_iter().enumerate() {
        let class = if system.name.starts_with("lockkeeper") {
            "own"
        } else {
            "dot"
        };
        let (at, over) = (x(gap), y(overlap));
        let mut drawn = groups.iter().flat_map(|group| &group.members);
        // One that lies on another one is a number beside it.
        if !drawn.any(|(x, y, _)| (x - at).abs() < 8.0 && (y - over).abs() < 8.0) {
            let _ = writeln!(
                svg,
                "<circle class=\"{class}\" cx=\"{at:.1}\" cy=\"{over:.1}\" r=\"5\"/>"
            );
        }
        match groups.iter_mut().find(|group| group.is_near(at, over)) {
            Some(group) => group.members.push((at, over, number + 1)),
            None => groups.push(Group {
                members: vec![(at, over, number + 1)],
            }),
        }
        let line = legend + LINE * (number % rows) as f64;
        let column = 30.0 + (WIDTH / 2.0) * (number / rows) as f64;
        text(&mut svg, "name", column, line, "end", number + 1);
        let title = escaped(&system.title.replace('`', ""));
        text(&mut svg, "name", column + 8.0, line, "start", title);
    }
    for group in groups {
        group.name(&mut svg);
    }
    svg + "</svg>\n"
}

/// Dots that are near each other: their numbers stand above all of them.
struct Group {
    /// Where each is, and its number.
    members: Vec<(f64, f64, usize)>,
}

impl Group {
    fn is_near(&self, at: f64, over: f64) -> bool {
        self.members
            .iter()
            .any(|(x, y, _)| (x - at).abs() < 26.0 && (y - over).abs() < 20.0)
    }

    fn name(&self, svg: &mut String) {
        let middle = self.members.iter().map(|(x, ..)| x).sum::<f64>() / self.members.len() as f64;
        let top = self
            .members
            .iter()
            .map(|(_, y, _)| *y)
            .fold(f64::INFINITY, f64::min);
        let numbers: Vec<_> = self
            .members
            .iter()
            .map(|(.., number)| number.to_string())
            .collect();
        for (line, numbers) in numbers.chunks(4).rev().enumerate() {
            let y = top - 10.0 - 15.0 * line as f64;
            text(svg, "name", middle, y, "middle", numbers.join(", "));
        }
    }
}

/// The worst overlap of a system, and the longest of its median times without a holder.
fn dot(results: &Results, system: &System) -> Option<(Option<f64>, f64)> {
    let faults = FAULTS
        .iter()
        .filter(|fault| **fault != Fault::LibraryPaused && !fault.is_of_a_setting(system));
    let cells: Vec<_> = faults.filter_map(|&fault| cell(results, system, fault)).collect();
    let overlap = cells
        .iter()
        .filter_map(|cell| cell.worst_overlap)
        .max_by(f64::total_cmp);
    // Nobody for ever is longer than any time.
    let gap = |cell: &Cell| {
        let is_mostly_never = 2 * cell.never_again > cell.rounds;
        cell.median_gap
            .filter(|_| !is_mostly_never)
            .unwrap_or(f64::INFINITY)
    };
    let longest = cells.iter().map(gap).max_by(f64::total_cmp);
    longest.map(|gap| (overlap, gap))
}

/// The summary of a system under a fault, if it was measured.
pub(crate) fn cell(results: &Results, system: &System, fault: Fault) -> Option<Cell> {
    Cell::of(results.rounds.get(system.name)?.get(&fault)?)
}

/// A time for people: `12 ms`, `3.4 s`.
pub fn seconds(value: f64) -> String {
    if value < 0.0995 {
        format!("{:.0} ms", value * 1e3)
    } else {
        format!("{value:.1} s")
    }
}

fn head(height: f64, title: &str, more: &str, theme: Theme) -> String {
    let style = theme.paint(STYLE).expect("a style with colours of the palette");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{title} {more}\">\n<style>{style}</style>\n\
         <text class=\"title\" x=\"8\" y=\"24\">{title}</text>\n\
         <text x=\"8\" y=\"44\">{more}</text>\n"
    )
}

fn text(svg: &mut String, class: &str, x: f64, y: f64, anchor: &str, words: impl Display) {
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Round;

    #[test]
    fn green_is_what_never_ran_twice_and_red_what_did_for_long() {
        let mut results = Results::default();
        let round = |overlap| Round {
            overlap,
            gap: Some(2.0),
            ..Round::default()
        };
        let mut add = |system: &str, overlap| {
            let faults = results.rounds.entry(system.to_owned()).or_default();
            faults
                .entry(Fault::HolderPaused)
                .or_default()
                .push(round(overlap));
        };
        add("lockkeeper", None);
        add("kazoo", Some(3.25));
        let map = heat_map(&results, Theme::Light);
        assert_eq!(map.matches("class=\"never\"").count(), 1);
        assert!(
            map.contains("class=\"long\"") && map.contains(">3.2 s</text>") && map.contains(">1/1</text>"),
            "{map}"
        );
        assert!(map.matches("class=\"unknown\"").count() > 100);
        let dots = scatter(&results, Theme::Dark);
        assert_eq!(dots.matches("<circle").count(), 2);
    }
}
