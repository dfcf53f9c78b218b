//! Medians and other percentiles of what was measured.

/// In ascending order.
pub(crate) fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// By nearest rank: a value that was measured. `None` of nothing.
pub(crate) fn percentile<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let values = sorted([3.0, 1.0, 2.0, 4.0].into_iter());
        assert_eq!(percentile(&values, 50), Some(2.0));
        assert_eq!(percentile(&values, 99), Some(4.0));
        assert_eq!(percentile(&values, 0), Some(1.0));
        assert_eq!(percentile::<f64>(&[], 50), None);
    }
}
