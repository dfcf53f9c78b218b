//! A distribution of times as an SVG file, for light or for dark pages.

use std::fmt::Write as _;

use lockkeeper_palette::Theme;

/// All lengths are in SVG user units, which are pixels at 100 %.
/// Pages show pictures some 700 pixels wide, where text of 13 still has 12.
const WIDTH: f64 = 760.0;
const LEFT: f64 = 24.0;
const TOP: f64 = 64.0;
const HEIGHT: f64 = 220.0;
/// Bars in each decade of time: enough to distinguish orders of magnitude, such as a cut from a release.
const BARS: i32 = 8;
/// Shorter times are drawn as this one, a tenth of a millisecond.
const LEAST: f64 = 1e-4;

const STYLE: &str = "\
text{font-family:ui-sans-serif,system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;font-size:13px;fill:{{quiet}}}\
.title{font-size:16px;font-weight:600;fill:{{ink}}}.grid{stroke:{{faint}}}.bar{fill:{{holder}}}";

/// Draws these times, in seconds, on a logarithmic axis. Negative times do not fit on it: put them into the
/// subtitle.
pub fn render(seconds: &[f64], title: &str, subtitle: &str, theme: Theme) -> String {
    let place = |seconds: f64| (seconds.max(LEAST).log10() * f64::from(BARS)).floor() as i32;
    let drawn = || seconds.iter().copied().filter(|seconds| *seconds >= 0.0);
    // Whole decades, so that the axis begins and ends at round numbers.
    let first = drawn().map(place).min().unwrap_or(0).div_euclid(BARS) * BARS;
    let last = (drawn().map(place).max().unwrap_or(0).div_euclid(BARS) + 1) * BARS;
    let mut counts = vec![0_u32; usize::try_from(last - first).unwrap_or(0)];
    for seconds in drawn() {
        counts[usize::try_from(place(seconds) - first).unwrap_or(0)] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let bar = (WIDTH - 2.0 * LEFT) / counts.len() as f64;
    let bottom = TOP + HEIGHT;
    let height = bottom + 28.0;
    let style = theme.paint(STYLE).expect("a style with colours of the palette");
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n<style>{style}</style>\n\
         <text class=\"title\" x=\"8\" y=\"22\">{title}</text>\n<text x=\"8\" y=\"43\">{subtitle}</text>\n"
    );
    for decade in (first..=last).step_by(BARS as usize) {
        let x = LEFT + f64::from(decade - first) * bar;
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            "<line class=\"grid decoration\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 18.0,
            power_of_ten(decade / BARS)
        );
    }
    for (index, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
        let tall = f64::from(count) / f64::from(most) * (HEIGHT - 16.0);
        let x = LEFT + index as f64 * bar;
        let _ = writeln!(
            svg,
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{tall:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{count}</text>",
            x + 1.0,
            bottom - tall,
            bar - 2.0,
            x + bar / 2.0,
            bottom - tall - 4.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn power_of_ten(exponent: i32) -> String {
    if exponent < 0 {
        format!("{} ms", 10_f64.powi(exponent + 3))
    } else {
        format!("{} s", 10_f64.powi(exponent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_above_their_order_of_magnitude() {
        let svg = render(&[0.002, 0.0021, 5.0, -1.0], "Title", "least -1 s", Theme::Light);
        for label in ["1 ms", "10 ms", "100 ms", "1 s", "10 s"] {
            assert!(svg.contains(&format!(">{label}</text>")), "{label}: {svg}");
        }
        // One bar for two similar times, and one for the third; a negative time has no bar.
        assert_eq!(svg.matches("class=\"bar\"").count(), 2);
        assert!(svg.contains(">2</text>") && svg.contains(">1</text>"));
    }

    #[test]
    fn no_times_are_an_empty_picture() {
        assert_eq!(
            render(&[], "Title", "", Theme::Dark)
                .matches("class=\"bar\"")
                .count(),
            0
        );
    }
}
