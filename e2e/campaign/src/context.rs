//! The context of a trial.

use std::fmt::Display;
use std::io::Write;
use std::time::Duration;

use fastrand::Rng;
use lockkeeper_simulation::Hazard;

use crate::times::LeaseOption;

pub struct Context<'a> {
    pub rounds: u32,
    /// Trials of random faults last this many minutes instead, in longer rounds; the trial `load` as well.
    pub minutes: Option<u32>,
    /// The lease duration of contenders for which the trial states none itself.
    pub lease: LeaseOption,
    /// The source of all its random choices.
    pub random: Rng,
    /// For the trial `simulation`: its first seed, the number of its histories, and their hazards beside
    /// ordinary faults.
    pub seed: u64,
    /// See [`Context::seed`].
    pub histories: u64,
    /// See [`Context::seed`].
    pub hazards: Vec<Hazard>,
    pub out: &'a mut dyn Write,
}

impl Context<'_> {
    /// How many rounds of this length a trial of random faults has; at least one.
    pub(crate) fn rounds_of(&self, length: Duration) -> u32 {
        let whole = |minutes| {
            (Duration::from_secs(60) * minutes)
                .as_secs()
                .div_ceil(length.as_secs())
        };
        self.minutes
            .map_or(self.rounds, |minutes| {
                u32::try_from(whole(minutes)).unwrap_or(u32::MAX)
            })
            .max(1)
    }

    pub(crate) fn say(&mut self, line: impl Display) -> anyhow::Result<()> {
        writeln!(self.out, "{line}")?;
        Ok(self.out.flush()?)
    }
}
