//! Simulated lock, keeper and guard: millions of histories, each from one seed.

use anyhow::Context as _;
use lockkeeper_lock::BootInstant;
use lockkeeper_simulation::{Setup, history, series};

use crate::context::Context;
use crate::figures::{Figures, Violations};
use crate::random_faults::SEED_VARIABLE;

/// Histories between two lines of progress.
const EACH: u64 = 10_000;

/// This many failures are enough to find the fault.
const ENOUGH: usize = 5;

pub(super) fn simulation(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    let mut setup = Setup::default();
    if !context.hazards.is_empty() {
        setup.hazards.clone_from(&context.hazards);
    }
    let (first, count) = (context.seed, context.histories);
    let seeds = first..first.checked_add(count).context("the seed is too large")?;
    let began = BootInstant::now();
    let rate = |done: u64| done as f64 / (BootInstant::now() - began).as_secs_f64();
    let played = series(seeds, &setup, ENOUGH, |done| {
        if done.is_multiple_of(EACH) {
            println!("{done} of {count} histories, {:.0} in each second", rate(done));
        }
    });
    let mut violations = Violations::default();
    for failure in &played.failures {
        violations.add(format!("history {}: {}", failure.seed, failure.violation));
    }
    // A single history is printed line by line.
    let told = played.failures.first().map(|failure| failure.seed);
    if let Some(seed) = told.or((count == 1).then_some(first)) {
        for line in history(seed, &setup, true).log {
            context.say(line)?;
        }
        context.say(format_args!(
            "again: --trial simulation --histories 1 --seed {seed}"
        ))?;
    }
    let mut figures = Figures::default();
    let sum = played.sum;
    figures.row(
        "no two at once, nothing outlives its contender, every contender served",
        format!(
            "{} of {} histories from {SEED_VARIABLE}={first}",
            played.failures.len(),
            played.histories
        ),
    );
    figures.row("faults", sum.strikes.to_string());
    figures.row("starts of applications", sum.starts.to_string());
    figures.row("sessions that expired", sum.expired.to_string());
    figures.row("keepers that went on", sum.resumed.to_string());
    figures.row(
        "histories in each second",
        format!("{:.0}", rate(played.histories)),
    );
    violations.finish(figures)
}
