//! Many histories, and the result of each rule in them.

use std::fmt::{self, Write as _};
use std::time::Duration;

use lockkeeper_lock::SLACK;

use super::client::Client;
use super::model::Model;
use super::network::{MS, Time};
use super::plan::{Plan, Profile};
use super::weaker;

/// The number of histories in which a test searches for a rare overlap.
const MANY: u32 = 12_000;

/// The slack of the rule, in nanoseconds.
pub const SLACK_NANOS: Time = SLACK.as_nanos() as Time;

/// The result of one history.
pub struct Outcome {
    /// For each rule: the moment at which the session ended, less the moment until which the rule let the client act,
    /// in nanoseconds. Negative means an overlap.
    pub spare: [Option<i64>; weaker::COUNT],
    /// Whether the ensemble ended the session at all.
    pub expired: bool,
}

pub fn history(seed: u64, profile: Profile, change: impl Fn(&mut Plan)) -> Outcome {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut plan = Plan::new(&mut rng, profile, SLACK_NANOS);
    change(&mut plan);
    let rules = weaker::all(
        Duration::from_nanos(plan.session_timeout),
        Duration::from_nanos(plan.tick),
        SLACK,
    );
    let mut model = Model::new(plan, rng, Client::new(rules));
    model.run();
    let expired = model.expired;
    Outcome {
        spare: model
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
#[derive(Default)]
pub struct Table {
    columns: Vec<(Profile, u32, [Cell; weaker::COUNT])>,
    /// For each rule, the first history with an overlap.
    first: [Option<(Profile, u64)>; weaker::COUNT],
    pub histories: u32,
    pub expired: u32,
}

impl Table {
    /// Runs `histories` histories with seeds from `seed` on, an equal share for each profile.
    pub fn run(profiles: &[Profile], seed: u64, histories: u32, change: impl Fn(&mut Plan)) -> Self {
        let mut table = Self::default();
        let share = histories.div_ceil(profiles.len() as u32);
        for &profile in profiles {
            table.column(profile, (seed..).take(share as usize), &change, |_| false);
        }
        table
    }

    /// Runs many histories of `profile`, and stops after one in which `rule` let the client act for too long.
    pub fn search(rule: usize, profile: Profile, change: impl Fn(&mut Plan)) -> Self {
        let mut table = Self::default();
        let is_overlap = |outcome: &Outcome| outcome.spare[rule].is_some_and(|spare| spare < 0);
        table.column(profile, 0..u64::from(MANY), &change, is_overlap);
        println!("{table}");
        table
    }

    /// Runs histories of one profile, up to the one for which `is_last` is true.
    fn column(
        &mut self,
        profile: Profile,
        seeds: impl Iterator<Item = u64>,
        change: &impl Fn(&mut Plan),
        is_last: impl Fn(&Outcome) -> bool,
    ) {
        let mut cells = [Cell::default(); weaker::COUNT];
        let before = self.histories;
        for seed in seeds {
            let outcome = history(seed, profile, change);
            self.histories += 1;
            self.expired += u32::from(outcome.expired);
            for (index, spare) in outcome.spare.into_iter().enumerate() {
                let Some(spare) = spare else { continue };
                cells[index].least = Some(cells[index].least.map_or(spare, |least| least.min(spare)));
                if spare < 0 {
                    cells[index].overlaps += 1;
                    self.first[index].get_or_insert((profile, seed));
                }
            }
            if is_last(&outcome) {
                break;
            }
        }
        self.columns.push((profile, self.histories - before, cells));
    }

    /// In how many histories `rule` let the client act for too long.
    pub fn overlaps(&self, rule: usize) -> u32 {
        self.columns
            .iter()
            .map(|(_, _, cells)| cells[rule].overlaps)
            .sum()
    }

    /// How to repeat the first overlap of `rule`.
    pub fn repeat(&self, rule: usize) -> String {
        match self.first[rule] {
            Some((profile, seed)) => {
                format!(
                    "{}: LOCKKEEPER_SEED={seed}, {profile:?}\n{self}",
                    weaker::NAMES[rule]
                )
            }
            None => format!("{}: never\n{self}", weaker::NAMES[rule]),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<34}", "overlaps (least spare, seconds)")?;
        for (profile, histories, _) in &self.columns {
            write!(f, "{:>20}", format!("{profile:?} {histories}"))?;
        }
        for (index, name) in weaker::NAMES.iter().enumerate() {
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
