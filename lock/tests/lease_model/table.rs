//! Many histories, and what each rule did in them.

use std::fmt::{self, Write as _};
use std::time::Duration;

use lockkeeper_lock::SLACK;

use super::client::Client;
use super::network::{MS, Time};
use super::plan::{Plan, Profile};
use super::rules;
use super::world::World;

/// The slack of the rule, in nanoseconds.
pub const SLACK_NANOS: Time = SLACK.as_nanos() as Time;

/// What one history ended with.
pub struct Outcome {
    /// For each rule: moment at which the session ended, less the moment up to which the rule let
    /// the client act, in nanoseconds. Negative is an overlap.
    pub spare: [Option<i64>; rules::COUNT],
    /// Whether the ensemble ended the session at all.
    pub expired: bool,
}

/// Runs one history.
pub fn history(seed: u64, profile: Profile, change: impl Fn(&mut Plan)) -> Outcome {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut plan = Plan::new(&mut rng, profile, SLACK_NANOS);
    change(&mut plan);
    let rules = rules::all(
        Duration::from_nanos(plan.session_timeout),
        Duration::from_nanos(plan.tick),
        SLACK,
    );
    let mut world = World::new(plan, rng, Client::new(rules));
    world.run();
    let expired = world.expired;
    Outcome {
        spare: world
            .client
            .acts_until
            .map(|until| Some(expired? as i64 - until? as i64)),
        expired: expired.is_some(),
    }
}

#[derive(Clone, Copy, Default)]
struct Cell {
    overlaps: u32,
    least: Option<i64>,
}

/// Results of many histories of some profiles.
pub struct Table {
    columns: Vec<(Profile, u32, [Cell; rules::COUNT])>,
    /// For each rule, the first history with an overlap.
    first: [Option<(Profile, u64)>; rules::COUNT],
    pub histories: u32,
    pub expired: u32,
}

impl Table {
    /// Runs `histories` histories with seeds from `seed` on, an equal share for each profile.
    pub fn run(profiles: &[Profile], seed: u64, histories: u32, change: impl Fn(&mut Plan)) -> Self {
        let mut table = Self {
            columns: Vec::new(),
            first: [None; rules::COUNT],
            histories: 0,
            expired: 0,
        };
        let share = histories.div_ceil(profiles.len() as u32);
        for &profile in profiles {
            let mut cells = [Cell::default(); rules::COUNT];
            for seed in (seed..).take(share as usize) {
                let outcome = history(seed, profile, &change);
                table.histories += 1;
                table.expired += u32::from(outcome.expired);
                for (index, spare) in outcome.spare.into_iter().enumerate() {
                    let Some(spare) = spare else { continue };
                    cells[index].least = Some(cells[index].least.map_or(spare, |least| least.min(spare)));
                    if spare < 0 {
                        cells[index].overlaps += 1;
                        table.first[index].get_or_insert((profile, seed));
                    }
                }
            }
            table.columns.push((profile, share, cells));
        }
        table
    }

    /// In how many histories `rule` let the client act for too long.
    pub fn overlaps(&self, rule: usize) -> u32 {
        self.columns
            .iter()
            .map(|(_, _, cells)| cells[rule].overlaps)
            .sum()
    }

    /// How to see the first overlap of `rule` again.
    pub fn repeat(&self, rule: usize) -> String {
        match self.first[rule] {
            Some((profile, seed)) => {
                format!(
                    "{}: LOCKKEEPER_SEED={seed}, {profile:?}\n{self}",
                    rules::NAMES[rule]
                )
            }
            None => format!("{}: never\n{self}", rules::NAMES[rule]),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<34}", "overlaps (least spare, seconds)")?;
        for (profile, histories, _) in &self.columns {
            write!(f, "{:>20}", format!("{profile:?} {histories}"))?;
        }
        for (index, name) in rules::NAMES.iter().enumerate() {
            write!(f, "\n{name:<34}")?;
            for (_, _, cells) in &self.columns {
                let mut cell = String::new();
                write!(cell, "{}", cells[index].overlaps)?;
                if let Some(least) = cells[index].least {
                    write!(cell, " ({:+.3})", least as f64 / (1_000 * MS) as f64)?;
                }
                write!(f, "{cell:>20}")?;
            }
        }
        Ok(())
    }
}
