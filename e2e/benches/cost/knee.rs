//! The largest number of held locks with which every lease is kept: the knee.

use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Ensemble, Host};

use super::calm::{self, millis};
use super::crowd::Size;
use super::meter::{Cost, value_of};
use super::tally::Fate;

/// The search ends when the knee is known up to this factor.
const PRECISION: f64 = 1.1;
/// How long what an overloaded step has left may stay: sessions expire, and busy servers are late.
const PATIENCE: Duration = Duration::from_secs(120);
/// A program that is short of CPU finds less than this share of all cores idle.
const SCARCE: f64 = 0.15;

pub struct Search<'a> {
    pub ensemble: &'a Ensemble,
    pub clients: &'a Host,
    /// A waiter behind each holder.
    pub with_waiters: bool,
    /// How long the locks of a step are held.
    pub hold: Duration,
    /// The least time until a deadline in calm.
    pub calm: Duration,
    /// No step begins later.
    pub until: BootInstant,
}

struct Known {
    /// The largest number with which every lease was kept.
    kept: Option<(usize, Cost)>,
    /// The least number with which that was not so.
    missed: Option<(usize, Cost)>,
}

impl Search<'_> {
    /// Doubles the number from `first` on until leases are not kept, and then closes in on the knee. Prints it.
    pub fn run(&self, first: usize) -> anyhow::Result<()> {
        println!(
            "\n## The knee, {} waiters\n\n\
             Held for {:?} in each step. A lease is kept if its lock is not lost, and if at each renewal, and at the \
             end, at least {:.2?} were left until the deadline: half of what is left in calm.\n\n\
             | locks | writes/s | reads/s | p50 | p99 | least left | never held | lost | reconnections | CPU, servers | client | others | fsyncs/s of a server, each | memory | |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
            if self.with_waiters { "with" } else { "without" },
            self.hold,
            self.calm / 2,
        );
        let mut known = Known {
            kept: None,
            missed: None,
        };
        let mut next = Some(first);
        while let Some(locks) = next.filter(|_| BootInstant::now() < self.until) {
            self.step(locks, &mut known)?;
            next = known.next(first);
        }
        known.print(next.is_some());
        Ok(())
    }

    fn step(&self, locks: usize, known: &mut Known) -> anyhow::Result<()> {
        let size = Size {
            locks,
            with_waiters: self.with_waiters,
        };
        let (cost, fate) = calm::of(self.ensemble, self.clients, size, self.hold)?;
        let is_kept = fate.missing == 0 && fate.lost == 0 && fate.least_left >= self.calm / 2;
        print(locks, &cost, &fate, is_kept);
        match is_kept {
            true => known.kept = Some((locks, cost)),
            false => known.missed = Some((locks, cost)),
        }
        self.wait_until_nothing_is_left()
    }

    /// Locks that were lost leave their sessions behind.
    fn wait_until_nothing_is_left(&self) -> anyhow::Result<()> {
        wait_for(PATIENCE, || {
            let leader = self.ensemble.leader()?;
            let mntr = self.ensemble.ask(leader, "mntr")?;
            (value_of(&mntr, "zk_ephemerals_count")? == 0.0).then_some(())
        })
        .context("contenders of the step before did not end")
    }
}

impl Known {
    /// The number to try next; `None` when the knee is known.
    fn next(&self, first: usize) -> Option<usize> {
        match (&self.kept, &self.missed) {
            (None, None) => Some(first),
            (Some((kept, _)), None) => Some(kept * 2),
            // It began too high.
            (None, Some((missed, _))) => Some(missed / 2).filter(|&next| next > 0),
            (Some((kept, _)), Some((missed, _))) => {
                let (kept, missed) = (*kept as f64, *missed as f64);
                let between = (kept * missed).sqrt().round();
                (missed / kept > PRECISION && between > kept && between < missed).then_some(between as usize)
            }
        }
    }

    fn print(&self, is_cut_short: bool) {
        let end = if is_cut_short {
            " (The search ended for lack of time.)"
        } else {
            ""
        };
        match (&self.kept, &self.missed) {
            (Some((kept, cost)), Some((missed, over))) => println!(
                "\nknee: every lease of {kept} locks is kept, and not of {missed}.{end}\n{}\n{}",
                cost.bottleneck(*kept),
                over.bottleneck(*missed),
            ),
            (Some((kept, cost)), None) => {
                println!("\nknee: above {kept} locks.{end}\n{}", cost.bottleneck(*kept));
            }
            (None, Some((missed, over))) => {
                println!("\nknee: below {missed} locks.{end}\n{}", over.bottleneck(*missed));
            }
            (None, None) => println!("\nknee: not searched.{end}"),
        }
        println!(
            "Clients and servers share this machine: with machines of their own the servers carry at least this."
        );
    }
}

impl Cost {
    /// What was short, as far as the CPU shows.
    fn bottleneck(&self, locks: usize) -> String {
        let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64) * 100.0;
        let used = self.servers + self.client + self.others;
        let what = if self.client > 95.0 {
            "the clients, which have one thread"
        } else if used > cores * (1.0 - SCARCE) {
            match (
                self.servers > self.client,
                self.others > self.servers.max(self.client),
            ) {
                (_, true) => "the CPU, which other programs used most",
                (true, _) => "the CPU, which the servers used most",
                (false, _) => "the CPU, which the clients used most",
            }
        } else {
            "not the CPU: the servers waited for their disk, or for one another"
        };
        format!(
            "bottleneck at {locks}: {what} (servers {:.0} %, clients {:.0} %, others {:.0} % of {cores:.0} %).",
            self.servers, self.client, self.others
        )
    }
}

fn print(locks: usize, cost: &Cost, fate: &Fate, is_kept: bool) {
    println!(
        "| {locks} | {:.0} | {:.0} | {} | {} | {:.2?} | {} | {} | {} | {:.0} | {:.0} | {:.0} | {:.0}, {} | {} MB | {} |",
        cost.writes,
        cost.reads,
        millis(fate.p50),
        millis(fate.p99),
        fate.least_left,
        fate.missing,
        match fate.lost {
            0 => "0".to_owned(),
            lost => format!("{lost} {:?}", fate.reasons),
        },
        fate.reconnections,
        cost.servers,
        cost.client,
        cost.others,
        cost.syncs,
        millis(cost.sync),
        cost.memory / 1_000_000,
        if is_kept { "kept" } else { "not kept" },
    );
}
