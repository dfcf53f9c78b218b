//! The common part of all targets, with the bound on memory.

use std::fmt;

/// One parser, with its promises.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name in the command and in the documentation.
    pub name: &'static str,
    /// The longest input, in bytes: a little more than the parser's own limits.
    pub longest: usize,
    /// The most bytes that may be allocated at one moment, as a function of the input. It includes the memory
    /// that the target itself needs to check the result; a comment at each bound has the reason.
    pub bound: fn(&[u8]) -> usize,
    /// Inputs to begin with, good and bad.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words of the format, for both engines.
    pub words: &'static [&'static str],
    /// Feeds the parser. Panics when a promise is violated.
    pub run: fn(&[u8]),
}

/// A parser took more memory than its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Bytes that were allocated at one moment.
    pub peak: usize,
    /// Bytes that are allowed.
    pub bound: usize,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peak, bound } = self;
        write!(f, "it took {peak} bytes of memory, and may take {bound}")
    }
}

impl Target {
    /// Makes the allocations that a process or a thread makes only once: regular expressions, a runtime.
    pub fn warm_up(&self) {
        for seed in (self.seeds)() {
            (self.run)(&seed);
        }
    }

    /// Feeds the parser, and returns the most bytes that were allocated at one moment.
    ///
    /// # Errors
    /// When these are too many.
    ///
    /// # Panics
    /// When a promise is violated.
    pub fn try_out(&self, input: &[u8]) -> Result<usize, Excess> {
        let measured = allocation_counter::measure(|| (self.run)(input));
        let peak = usize::try_from(measured.bytes_max).unwrap_or(usize::MAX);
        let bound = (self.bound)(input);
        if peak > bound {
            return Err(Excess { peak, bound });
        }
        Ok(peak)
    }
}
