//! What all targets have in common, and the bound on memory.

use std::fmt;

/// One parser, with what is promised of it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// As the command and the documentation call it.
    pub name: &'static str,
    /// Inputs have so many bytes at most: a little more than the longest that the parser treats alike.
    pub longest: usize,
    /// The most bytes that may be allocated at one moment, by the input, and why so many. What the target itself needs
    /// to look at the outcome is in it.
    pub bound: fn(&[u8]) -> usize,
    /// Inputs to begin with, good and bad.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words of the format, for both engines.
    pub words: &'static [&'static str],
    /// Feeds the parser. Panics when something is not as it is promised.
    pub run: fn(&[u8]),
}

/// A parser took more memory than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Bytes that were allocated at one moment.
    pub peak: usize,
    /// Bytes that may be.
    pub bound: usize,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peak, bound } = self;
        write!(f, "it took {peak} bytes of memory, and may take {bound}")
    }
}

impl Target {
    /// Does once what is done only once in a process or a thread: regular expressions, a runtime.
    pub fn warm_up(&self) {
        for seed in (self.seeds)() {
            (self.run)(&seed);
        }
    }

    /// Feeds the parser, and says how many bytes were allocated at one moment.
    ///
    /// # Errors
    /// When these are too many.
    ///
    /// # Panics
    /// When something is not as it is promised.
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
