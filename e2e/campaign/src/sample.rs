//! What a trial has measured, many times over.

use std::fmt::{self, Display};

use anyhow::ensure;
use lockkeeper_judge::record::Record;
use lockkeeper_lock::BootInstant;

/// Times that a trial has measured, in seconds. A negative one means that something was late.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample(Vec<f64>);

impl Sample {
    pub fn add(&mut self, seconds: f64) {
        let place = self.0.partition_point(|&other| other < seconds);
        self.0.insert(place, seconds);
    }

    /// All of them, the shortest first.
    pub fn all(&self) -> &[f64] {
        &self.0
    }

    /// The shortest, if there is any.
    pub fn least(&self) -> Option<f64> {
        self.0.first().copied()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn negative(&self) -> usize {
        self.0.partition_point(|&seconds| seconds < 0.0)
    }

    /// The quantile of `share`, by nearest rank: this share of all times is at most as long.
    fn quantile(&self, share: f64) -> Option<f64> {
        let rank = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.max(1) - 1).copied()
    }
}

impl Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(least), Some(half), Some(most_of), Some(most)) = (
            self.least(),
            self.quantile(0.5),
            self.quantile(0.9),
            self.0.last(),
        ) else {
            return f.write_str("none");
        };
        write!(
            f,
            "least {least:.3}, p50 {half:.3}, p90 {most_of:.3}, most {most:.3} s (of {})",
            self.0.len()
        )
    }
}

/// Seconds from `earlier` to `later`; negative if `later` is earlier.
pub(crate) fn seconds(later: BootInstant, earlier: BootInstant) -> f64 {
    (later.as_nanos() as i64 - earlier.as_nanos() as i64) as f64 / 1e9
}

/// The longest time between two records under `token`, in seconds, from the last one before `from` on.
///
/// # Errors
/// When nothing is recorded under that token.
pub(crate) fn longest_silence(records: &[Record], token: i64, from: BootInstant) -> anyhow::Result<f64> {
    let of_token = records.iter().filter(|record| record.token == token);
    let stamps: Vec<_> = of_token.map(|record| record.at).collect();
    ensure!(!stamps.is_empty(), "nothing is recorded under the token {token}");
    let since = stamps.partition_point(|&at| at < from).saturating_sub(1);
    let pairs = stamps[since..].windows(2);
    Ok(pairs.map(|pair| seconds(pair[1], pair[0])).fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let mut times = Sample::default();
        assert_eq!(times.to_string(), "none");
        for seconds in [4.0, -1.0, 2.0, 3.0, 1.0] {
            times.add(seconds);
        }
        assert_eq!(
            (times.least(), times.quantile(0.5), times.quantile(0.9)),
            (Some(-1.0), Some(2.0), Some(4.0))
        );
        assert_eq!((times.len(), times.negative()), (5, 1));
    }
}
