//! The timeline as an SVG file, for light or for dark pages.

use std::fmt::Write as _;
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use lockkeeper_palette::Theme;

use super::{Mark, MarkKind, Timeline, short};

/// All lengths are in SVG user units, which are pixels at 100 %. Pages show pictures some 700 pixels wide, where the text of 13
/// still has 12.
const WIDTH: f64 = 760.0;
/// The least width of the column of names.
const NAMES: f64 = 110.0;
/// The width of a character of a row's name.
const NAME_LETTER: f64 = 7.6;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const ROW: f64 = 30.0;
const BAR: f64 = 18.0;
const LANE: f64 = 23.0;
/// An upper estimate of the width of a character in a label.
const LETTER: f64 = 7.6;
/// Shorter gaps have no label, since they are handoffs and not outages, unless they take a tenth of the
/// picture.
const NOTABLE_GAP: Duration = Duration::from_millis(100);

const STYLE: &str = "\
text{font-family:ui-sans-serif,system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;font-size:13px;fill:{{quiet}}}\
.title{font-size:16px;font-weight:600;fill:{{ink}}}.name{fill:{{ink}}}\
.grid{stroke:{{faint}}}.base{stroke:{{faint}};stroke-dasharray:1 4}\
.hold{fill:{{holder}}}.token{fill:{{on-solid}};font-variant-numeric:tabular-nums}\
.band{fill:{{fault}};fill-opacity:.10}rect.fault{fill:{{fault}}}\
.moment{fill:{{line}};fill-opacity:.45}.while{fill:{{line}};fill-opacity:.10}.note{fill:{{ink}}}\
.bad{fill:{{danger}};fill-opacity:.08}.violation{fill:{{danger-ink}}}.gap{fill:none;stroke:{{ink}}}.gaplabel{fill:{{ink}}}";

/// Draws a timeline with the colours of a theme.
pub fn render(timeline: &Timeline, title: &str, theme: Theme) -> String {
    let scale = Scale {
        start: timeline.start(),
        length: (timeline.end() - timeline.start()).max(Duration::from_millis(1)),
        left: timeline
            .rows()
            .iter()
            .map(|row| row.name.chars().count() as f64 * NAME_LETTER + 16.0)
            .fold(NAMES, f64::max),
    };
    let lanes = lanes(timeline.marks(), &scale);
    let lane_count = lanes.iter().map(|&(lane, _)| lane + 1).max().unwrap_or(0);
    let rows_end = TOP + timeline.rows().len() as f64 * ROW;
    let gaps_y = rows_end + 12.0;
    let lanes_y = gaps_y + 20.0;
    let axis_y = lanes_y + lane_count as f64 * LANE + 8.0;
    let height = axis_y + 30.0;

    let mut svg = String::new();
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n<style>{style}</style>\n\
         <text class=\"title\" x=\"8\" y=\"22\">{title}</text>",
        title = escape(title),
        style = theme.paint(STYLE).expect("a style with colours of the palette")
    );
    axis(&mut svg, &scale, TOP - 6.0, axis_y);
    for (mark, &(lane, label_x)) in timeline.marks().iter().zip(&lanes) {
        draw_mark(&mut svg, &scale, mark, lanes_y + lane as f64 * LANE, label_x);
    }
    draw_rows(&mut svg, &scale, timeline);
    draw_gaps(&mut svg, &scale, timeline, gaps_y);
    let caption = |svg: &mut String, y: f64, text: &str| {
        let _ = writeln!(svg, "<text x=\"8\" y=\"{y:.1}\">{text}</text>");
    };
    caption(&mut svg, gaps_y + 4.0, "nobody holds");
    if lane_count > 0 {
        caption(&mut svg, lanes_y + 12.0, "events");
    }
    svg.push_str("</svg>\n");
    svg
}

struct Scale {
    start: BootInstant,
    length: Duration,
    /// The x coordinate at which the time axis begins, right of the names.
    left: f64,
}

impl Scale {
    fn x(&self, at: BootInstant) -> f64 {
        let fraction = (at - self.start).as_secs_f64() / self.length.as_secs_f64();
        self.left + fraction.min(1.0) * (WIDTH - self.left - RIGHT)
    }
}

fn axis(svg: &mut String, scale: &Scale, top: f64, bottom: f64) {
    let seconds = scale.length.as_secs_f64();
    // Some four to ten ticks, at round times.
    let steps = [
        0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0,
    ];
    let step = steps
        .into_iter()
        .find(|step| seconds / step <= 10.0)
        .unwrap_or(3600.0);
    let digits = if step < 0.01 {
        3
    } else if step < 0.1 {
        2
    } else if step < 1.0 {
        1
    } else {
        0
    };
    let mut tick = 0.0;
    while tick <= seconds {
        let x = scale.x(scale.start + Duration::from_secs_f64(tick));
        let _ = writeln!(
            svg,
            "<line class=\"grid decoration\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick:.digits$} s</text>",
            bottom + 17.0
        );
        tick += step;
    }
}

fn draw_rows(svg: &mut String, scale: &Scale, timeline: &Timeline) {
    for (index, row) in timeline.rows().iter().enumerate() {
        let middle = TOP + index as f64 * ROW + ROW / 2.0;
        let _ = writeln!(
            svg,
            "<text class=\"name\" x=\"8\" y=\"{:.1}\">{}</text>\
             <line class=\"base decoration\" x1=\"{}\" x2=\"{}\" y1=\"{middle}\" y2=\"{middle}\"/>",
            middle + 4.0,
            escape(&row.name),
            scale.left,
            WIDTH - RIGHT
        );
        for bar in &row.bars {
            let (from, to) = (scale.x(bar.from), scale.x(bar.to));
            // A short hold must still be visible.
            let width = (to - from).max(1.5);
            let _ = writeln!(
                svg,
                "<rect class=\"hold\" x=\"{from:.2}\" y=\"{:.1}\" width=\"{width:.2}\" height=\"{BAR}\" rx=\"{:.1}\">\
                 <title>{}: token {}, {} from {:.3} s</title></rect>",
                middle - BAR / 2.0,
                (width / 2.0).min(4.0),
                escape(&row.name),
                bar.token,
                short(bar.to - bar.from),
                (bar.from - scale.start).as_secs_f64()
            );
            if let Some(label) = token_label(bar.token, width) {
                let _ = writeln!(
                    svg,
                    "<text class=\"token\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                    from + width / 2.0,
                    middle + 4.0
                );
            }
        }
    }
}

/// The token, or as many of its last digits as fit, behind an ellipsis.
fn token_label(token: i64, room: f64) -> Option<String> {
    let text = token.to_string();
    let letters = ((room - 6.0) / LETTER) as usize;
    if letters >= text.len() {
        Some(text)
    } else if letters >= 4 {
        Some(format!("…{}", &text[text.len() - (letters - 1)..]))
    } else {
        None
    }
}

fn draw_gaps(svg: &mut String, scale: &Scale, timeline: &Timeline, y: f64) {
    let mut free_from = scale.left;
    for (from, to) in timeline.gaps() {
        let (x1, x2) = (scale.x(from), scale.x(to));
        let _ = writeln!(
            svg,
            "<path class=\"gap\" d=\"M{x1:.2} {:.1}v4H{x2:.2}v-4\"><title>{}</title></path>",
            y - 4.0,
            short(to - from)
        );
        let label = short(to - from);
        let half = label.len() as f64 * LETTER / 2.0;
        let middle = ((x1 + x2) / 2.0).min(WIDTH - half);
        let is_notable = to - from >= NOTABLE_GAP || (to - from) * 10 >= scale.length;
        if is_notable && middle - half >= free_from {
            let _ = writeln!(
                svg,
                "<text class=\"gaplabel\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                y + 14.0
            );
            free_from = middle + half + LETTER;
        }
    }
}

fn draw_mark(svg: &mut String, scale: &Scale, mark: &Mark, y: f64, label_x: f64) {
    let (band, class) = match mark.kind {
        MarkKind::Note if mark.to == Some(mark.from) => ("moment", "note"),
        MarkKind::Note => ("while", "note"),
        MarkKind::Fault => ("band", "fault"),
        MarkKind::Violation => ("bad", "violation"),
    };
    let from = scale.x(mark.from);
    let to = mark.to.map_or(WIDTH - RIGHT, |to| scale.x(to));
    let width = (to - from).max(if mark.kind == MarkKind::Note { 1.5 } else { 4.0 });
    let top = TOP - 6.0;
    let _ = writeln!(
        svg,
        "<rect class=\"{band} decoration\" x=\"{from:.2}\" y=\"{top}\" width=\"{width:.2}\" height=\"{:.1}\"/>\
         <rect class=\"{class}\" x=\"{from:.2}\" y=\"{:.1}\" width=\"{width:.2}\" height=\"4\" rx=\"1\"/>\
         <text class=\"{class}\" x=\"{label_x:.1}\" y=\"{:.1}\">{}</text>",
        y - top,
        y,
        y + 16.0,
        escape(&mark.label)
    );
}

/// For each mark its lane, and the x coordinate of its label, so that labels do not overlap.
fn lanes(marks: &[Mark], scale: &Scale) -> Vec<(usize, f64)> {
    let mut order: Vec<usize> = (0..marks.len()).collect();
    order.sort_by_key(|&index| marks[index].from);
    let mut ends: Vec<f64> = Vec::new();
    let mut placed = vec![(0, 0.0); marks.len()];
    for index in order {
        let mark = &marks[index];
        let length = mark.label.chars().count() as f64 * LETTER;
        let from = scale.x(mark.from);
        let label = from.min(WIDTH - length - 4.0).max(0.0);
        let end = mark
            .to
            .map_or(WIDTH - RIGHT, |to| scale.x(to))
            .max(label + length)
            + 6.0;
        let lane = ends
            .iter()
            .position(|&taken| taken <= label.min(from))
            .unwrap_or(ends.len());
        if lane == ends.len() {
            ends.push(end);
        } else {
            ends[lane] = end;
        }
        placed[index] = (lane, label);
    }
    placed
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
