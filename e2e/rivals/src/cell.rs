//! What the rounds of a system under a fault say together.

use std::cmp::Ordering;

use crate::faults::Fault;
use crate::rank::{percentile, sorted};
use crate::results::Round;

/// A program writes a line in 5 ms, in seconds: an overlap that is shorter is one late line.
pub(crate) const ONE_LINE: f64 = 0.005;

/// A summary of rounds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    pub rounds: usize,
    /// In how many two ran at once.
    pub overlaps: usize,
    /// Whether one of these had not ended when its round did: the worst one was at least as long.
    pub goes_on: bool,
    /// In how many rounds two ran before the fault.
    pub before: usize,
    /// The worst and the median overlap, in seconds, of those rounds.
    pub worst_overlap: Option<f64>,
    /// See [`Cell::worst_overlap`].
    pub median_overlap: Option<f64>,
    /// The median and the worst time in which no contender ran, in seconds, of the rounds in which one ran again.
    pub median_gap: Option<f64>,
    /// See [`Cell::median_gap`].
    pub worst_gap: Option<f64>,
    /// How long the servers were away in the round with the worst one, in seconds, if they were killed.
    pub servers_away: Option<f64>,
    /// In how many nobody ever ran again.
    pub never_again: usize,
    /// Late writes, and how many of them the token refuses.
    pub late: u32,
    /// See [`Cell::late`].
    pub refused: u32,
    /// The median time after which the library told its holder, in seconds, and in how many rounds it did.
    pub told: Option<f64>,
    /// See [`Cell::told`].
    pub told_in: usize,
}

impl Cell {
    /// Of at least one round.
    pub(crate) fn of(rounds: &[Round]) -> Option<Self> {
        if rounds.is_empty() {
            return None;
        }
        let overlaps = sorted(rounds.iter().filter_map(|round| round.overlap));
        let gaps = sorted(rounds.iter().filter_map(|round| round.gap));
        let told = sorted(rounds.iter().filter_map(|round| round.told));
        Some(Self {
            rounds: rounds.len(),
            overlaps: overlaps.len(),
            goes_on: rounds.iter().any(|round| round.goes_on),
            before: rounds.iter().filter(|round| round.before).count(),
            worst_overlap: overlaps.last().copied(),
            median_overlap: percentile(&overlaps, 50),
            median_gap: percentile(&gaps, 50),
            worst_gap: gaps.last().copied(),
            servers_away: rounds
                .iter()
                .max_by(|one, other| one.gap.partial_cmp(&other.gap).unwrap_or(Ordering::Equal))
                .and_then(|round| round.served),
            never_again: rounds.len() - gaps.len(),
            late: rounds.iter().map(|round| round.late).sum(),
            refused: rounds.iter().map(|round| round.refused).sum(),
            told: percentile(&told, 50),
            told_in: told.len(),
        })
    }

    /// Whether all overlaps that were seen are one line that a program wrote when its machine had woken: no lock that
    /// expires prevents that.
    pub(crate) fn has_only_late_lines(&self, fault: Fault) -> bool {
        fault == Fault::HolderPaused && self.worst_overlap.is_some_and(|worst| worst < ONE_LINE)
    }

    /// Whether no two ran, but for such a line.
    pub(crate) fn never_two(&self, fault: Fault) -> bool {
        self.overlaps == 0 || self.has_only_late_lines(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(overlap: Option<f64>, gap: Option<f64>) -> Round {
        Round {
            seed: 1,
            overlap,
            gap,
            late: 2,
            refused: 1,
            ..Round::default()
        }
    }

    #[test]
    fn a_cell_tells_the_worst_and_counts_what_never_ended() {
        let rounds = [
            round(None, Some(1.0)),
            round(Some(0.5), Some(9.0)),
            round(Some(0.1), None),
        ];
        let cell = Cell::of(&rounds).unwrap();
        assert_eq!((cell.rounds, cell.overlaps, cell.never_again), (3, 2, 1));
        assert_eq!((cell.worst_overlap, cell.median_overlap), (Some(0.5), Some(0.1)));
        assert_eq!((cell.median_gap, cell.worst_gap), (Some(1.0), Some(9.0)));
        assert_eq!((cell.late, cell.refused, cell.told), (6, 3, None));
        assert_eq!(Cell::of(&[]), None);
    }
}
