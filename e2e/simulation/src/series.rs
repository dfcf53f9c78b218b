//! Many histories, on as many threads as there are processors.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::history::{Summary, history};
use crate::plan::Setup;

/// A history that violated a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub seed: u64,
    pub violation: String,
}

/// The result of a series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    pub histories: u64,
    /// The sums of their figures.
    pub sum: Summary,
    /// The histories that violated a promise, by seed.
    pub failures: Vec<Failure>,
}

/// Plays the histories of `seeds`, in their order, until `most` have failed. `progress` gets
/// the number of histories played, now and then.
///
/// # Panics
/// When a history does.
pub fn series(seeds: Range<u64>, setup: &Setup, most: usize, progress: impl Fn(u64) + Sync) -> Series {
    let next = AtomicU64::new(seeds.start);
    let series = Mutex::new(Series::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let outcome = history(seed, setup, false);
            let mut series = series.lock().expect("no panic while it is locked");
            series.histories += 1;
            series.sum.add(outcome.summary);
            if let Some(violation) = outcome.violation {
                series.failures.push(Failure { seed, violation });
            }
            let (done, is_over) = (series.histories, series.failures.len() >= most);
            drop(series);
            if done.is_multiple_of(EACH) {
                progress(done);
            }
            if is_over {
                next.store(seeds.end, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut series = series.into_inner().expect("no panic while it was locked");
    series.failures.sort_by_key(|failure| failure.seed);
    series
}

/// Histories between two reports of progress.
const EACH: u64 = 1_000;
