//! The pictures of a lease have the default times, in words and in their places on the axis.

use std::path::Path;
use std::time::Duration;

use lockkeeper_documents::{Drawing, Form, read};
use lockkeeper_lock::{KILL_ALLOWANCE, Timing};

/// The default `sessionTimeout`.
const SESSION_TIMEOUT: Duration = Duration::from_secs(15);
/// A moment may be drawn so far from its place, in seconds.
const TOLERANCE: f64 = 0.05;

/// When what happens, in seconds since the last acknowledged renewal was sent.
struct Moments {
    interval: f64,
    sigterm: f64,
    sigkill: f64,
    end: f64,
    takeover: f64,
}

fn moments() -> Moments {
    let timing = Timing::new(SESSION_TIMEOUT);
    let end = timing.lease().expect("by default there is a lease").as_secs_f64();
    // docs/safety.md: the margin of a takeover lease, and the wait of the next contender.
    let sigkill = end - end / 100.0 - KILL_ALLOWANCE.as_secs_f64();
    Moments {
        interval: timing.interval().as_secs_f64(),
        sigterm: sigkill - timing.stop_grace.as_secs_f64(),
        sigkill,
        end,
        takeover: end * 1.01,
    }
}

fn drawing(name: &str) -> Drawing {
    Drawing::parse(&read(Path::new(&format!("docs/pictures/{name}-light.svg")))).expect("a picture")
}

fn words(drawing: &Drawing) -> Vec<&str> {
    let words = drawing.items.iter().filter_map(|item| match &item.form {
        Form::Text { words, .. } => Some(words.as_str()),
        _ => None,
    });
    words.collect()
}

/// The places of all ends of lines and edges on the axis, in seconds. Two labels of the axis say where it is.
fn places(drawing: &Drawing, labels: [(&str, f64); 2]) -> Vec<f64> {
    let [(from, from_secs), (to, to_secs)] = labels.map(|(label, secs)| {
        let item = drawing
            .items
            .iter()
            .find(|item| item.name() == format!("\"{label}\""));
        let frame = item.expect("the axis has this label").bounds();
        (f64::midpoint(frame.left, frame.right), secs)
    });
    let xs = drawing.items.iter().flat_map(|item| match &item.form {
        Form::Lines(lines) => lines.iter().flat_map(|(from, to)| [from.0, to.0]).collect(),
        Form::Rect(frame) => vec![frame.left, frame.right],
        _ => Vec::new(),
    });
    xs.map(|x| from_secs + (x - from) / (to - from) * (to_secs - from_secs))
        .collect()
}

#[test]
fn the_lease_is_drawn_with_the_default_times() {
    let moments = moments();
    let drawing = drawing("lease");
    let words = words(&drawing);
    for expected in [
        format!("every {:.2} s", moments.interval),
        format!("SIGTERM {:.1} s", moments.sigterm),
        format!("SIGKILL {:.1} s", moments.sigkill),
        format!(
            "{:.1} s from the sending of the last acknowledged renewal",
            moments.end
        ),
        format!("from {:.1} s", moments.takeover),
    ] {
        assert!(words.contains(&expected.as_str()), "{expected}: {words:#?}");
    }
    let places = places(&drawing, [("0 s", 0.0), ("10 s", 10.0)]);
    for moment in [
        -moments.interval,
        0.0,
        moments.interval,
        moments.sigterm,
        moments.sigkill,
        moments.end,
        moments.takeover,
    ] {
        let is_drawn = places.iter().any(|place| (place - moment).abs() < TOLERANCE);
        assert!(is_drawn, "nothing is at {moment} s: {places:?}");
    }
}

#[test]
fn the_cut_under_lockkeeper_is_drawn_with_the_default_times() {
    let moments = moments();
    let places = places(&drawing("cut"), [("0 s", 0.0), ("15 s", 15.0)]);
    for moment in [0.0, moments.sigterm, moments.sigkill, moments.takeover] {
        let is_drawn = places.iter().any(|place| (place - moment).abs() < TOLERANCE);
        assert!(is_drawn, "nothing is at {moment} s: {places:?}");
    }
}
