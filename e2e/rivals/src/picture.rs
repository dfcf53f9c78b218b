//! The results as two pictures, each for light or for dark pages.

use std::fmt::{Display, Write as _};

use lockkeeper_palette::Theme;

use crate::cell::Cell;
use crate::faults::{FAULTS, Fault};
use crate::results::Results;
use crate::systems::{SYSTEMS, System};

/// All lengths are in SVG user units, which are pixels at 100 %.
const LABEL: f64 = 340.0;
const COLUMN: f64 = 74.0;
const ROW: f64 = 24.0;
const TOP: f64 = 130.0;

const STYLE: &str = "\
text{font-family:ui-sans-serif,system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;font-size:11px;fill:{{quiet}}}\
.title{font-size:15px;font-weight:600;fill:{{ink}}}.name{fill:{{ink}}}.in{fill:{{on-solid}}}.grid{stroke:{{faint}}}\
.never{fill:{{holder}}}.brief{fill:{{fault}}}.long{fill:{{danger}}}.none{fill:{{panel}}}.unknown{fill:{{other}}}\
.dot{fill:{{other}}}.own{fill:{{holder}}}";

/// Overlaps below this, in seconds, are brief: a write that had begun.
const BRIEF: f64 = 0.1;

/// Lock by fault: green if two never ran at once, else by the worst overlap; empty where the fault does not apply, and a
/// question mark where it was not measured.
pub fn heat_map(results: &Results, theme: Theme) -> String {
    let rows = SYSTEMS;
    let width = LABEL + COLUMN * FAULTS.len() as f64 + 20.0;
    let height = TOP + ROW * rows.len() as f64 + 20.0;
    let mut svg = head(
        width,
        height,
        "Did two run at once? Rounds in which they did, and for how long at worst",
        theme,
    );
    for (column, fault) in FAULTS.iter().enumerate() {
        let x = LABEL + COLUMN * column as f64 + COLUMN / 2.0;
        for (line, word) in fault.name().split('-').enumerate() {
            text(&mut svg, "", x, TOP - 50.0 + 14.0 * line as f64, "middle", word);
        }
    }
    for (row, system) in rows.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        text(
            &mut svg,
            "name",
            LABEL - 8.0,
            y + 16.0,
            "end",
            escaped(&system.title.replace('`', "")),
        );
        for (column, &fault) in FAULTS.iter().enumerate() {
            let x = LABEL + COLUMN * column as f64;
            let (class, words) = square(results, system, fault);
            // Writing to a string does not fail.
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"3\"/>",
                x + 1.0,
                y + 1.0,
                COLUMN - 2.0,
                ROW - 2.0
            );
            text(&mut svg, "in", x + COLUMN / 2.0, y + 16.0, "middle", words);
        }
    }
    svg + "</svg>\n"
}

fn square(results: &Results, system: &System, fault: Fault) -> (&'static str, String) {
    match cell(results, system, fault) {
        None if fault.applies_to(system).is_ok() => ("unknown", "?".to_owned()),
        None => ("none decoration", String::new()),
        Some(cell) => match cell.worst_overlap {
            None => ("never", format!("0/{}", cell.rounds)),
            Some(worst) => {
                let class = if worst < BRIEF { "brief" } else { "long" };
                (
                    class,
                    format!(
                        "{}/{} {}{}",
                        cell.overlaps,
                        cell.rounds,
                        if cell.goes_on { "≥" } else { "" },
                        seconds(worst)
                    ),
                )
            }
        },
    }
}

/// Overlap against time without a holder, one numbered dot for each system: its worst overlap over all faults, and the
/// median of its median times. Without the fault that concerns only locks whose holder is another process than the work.
pub fn scatter(results: &Results, theme: Theme) -> String {
    let (width, left, right, bottom) = (1160.0, 70.0, 760.0, 640.0);
    let mut svg = head(
        width,
        700.0,
        "The worst overlap against the median time without a holder, over all faults but library-paused",
        theme,
    );
    // Logarithmic from 1 ms to 100 s, with a place for what never happened.
    let along = |value: Option<f64>| match value {
        None => 0.0,
        Some(value) => (value.clamp(1e-3, 100.0).log10() + 3.0) / 5.0 * 0.9 + 0.1,
    };
    let x = |value| left + along(value) * (right - left);
    let y = |value| bottom - along(value) * (bottom - 60.0);
    for (value, label) in [
        (None, "never"),
        (Some(1e-3), "1 ms"),
        (Some(0.1), "100 ms"),
        (Some(1.0), "1 s"),
        (Some(10.0), "10 s"),
    ] {
        let _ = writeln!(
            svg,
            "<line class=\"grid decoration\" x1=\"{left}\" x2=\"{right}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/>",
            y(value)
        );
        text(&mut svg, "", left - 6.0, y(value) + 4.0, "end", label);
        if value.is_some() {
            text(&mut svg, "", x(value), bottom + 22.0, "middle", label);
        }
    }
    text(
        &mut svg,
        "",
        f64::midpoint(left, right),
        bottom + 44.0,
        "middle",
        "median time without a holder (dots at one place stand one above the other)",
    );
    let dots: Vec<_> = SYSTEMS
        .iter()
        .filter_map(|system| Some((system, dot(results, system)?)))
        .collect();
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for (number, (system, (overlap, gap))) in dots.into_iter().enumerate() {
        let class = if system.name.starts_with("lockkeeper") {
            "own"
        } else {
            "dot"
        };
        let (at, mut over) = (x(gap), y(overlap));
        // Dots at one place stand one above the other.
        while taken
            .iter()
            .any(|&(x, y)| (x - at).abs() < 20.0 && (y - over).abs() < 16.0)
        {
            over -= 17.0;
        }
        taken.push((at, over));
        let _ = writeln!(
            svg,
            "<circle class=\"{class}\" cx=\"{at:.1}\" cy=\"{over:.1}\" r=\"9\"/>"
        );
        text(&mut svg, "in", at, over + 4.0, "middle", number + 1);
        let line = 60.0 + 16.0 * number as f64;
        text(&mut svg, "name", right + 44.0, line, "end", number + 1);
        text(
            &mut svg,
            "name",
            right + 52.0,
            line,
            "start",
            escaped(&system.title.replace('`', "")),
        );
    }
    svg + "</svg>\n"
}

/// The worst overlap of a system, and the median of its median times without a holder.
fn dot(results: &Results, system: &System) -> Option<(Option<f64>, Option<f64>)> {
    let faults = FAULTS.iter().filter(|fault| **fault != Fault::LibraryPaused);
    let cells: Vec<_> = faults.filter_map(|&fault| cell(results, system, fault)).collect();
    let overlap = cells
        .iter()
        .filter_map(|cell| cell.worst_overlap)
        .max_by(f64::total_cmp);
    let mut gaps: Vec<_> = cells.iter().filter_map(|cell| cell.median_gap).collect();
    gaps.sort_by(f64::total_cmp);
    (!cells.is_empty()).then(|| (overlap, gaps.get(gaps.len() / 2).copied()))
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

fn head(width: f64, height: f64, title: &str, theme: Theme) -> String {
    let style = theme.paint(STYLE).expect("a style with colours of the palette");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n<style>{style}</style>\n\
         <text class=\"title\" x=\"8\" y=\"24\">{title}</text>\n"
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
            map.contains("class=\"long\"") && map.contains(">1/1 3.2 s</text>"),
            "{map}"
        );
        assert!(map.matches("class=\"unknown\"").count() > 100);
        let dots = scatter(&results, Theme::Dark);
        assert_eq!(dots.matches("<circle").count(), 2);
    }
}
