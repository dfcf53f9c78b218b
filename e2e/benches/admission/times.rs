//! Durations, and their output.

use std::time::Duration;

/// The durations of many events.
#[derive(Default)]
pub struct Times(Vec<Duration>);

const PERCENTILES: [f64; 4] = [50.0, 90.0, 99.0, 100.0];

impl Times {
    pub fn add(&mut self, more: Vec<Duration>) {
        self.0.extend(more);
    }

    pub fn print_head(title: &str) {
        println!("{title:<46} {:>9} {:>9} {:>9} {:>9}", "p50", "p90", "p99", "max");
    }

    pub fn print(&self, name: &str) {
        let columns = self.percentiles().map(|millis| format!("{millis:>6.1} ms"));
        println!("  {name:<44} {}", columns.join(" "));
    }

    /// The differences of the percentiles.
    pub fn print_more_than(&self, other: &Self, name: &str) {
        let (own, other) = (self.percentiles(), other.percentiles());
        let columns = [0, 1, 2, 3].map(|at| format!("{:>+6.1} ms", own[at] - other[at]));
        println!("  {name:<44} {}", columns.join(" "));
    }

    fn percentiles(&self) -> [f64; 4] {
        let mut sorted = self.0.clone();
        sorted.sort();
        PERCENTILES.map(|percent| {
            let at = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
            sorted[at.max(1) - 1].as_secs_f64() * 1e3
        })
    }
}
