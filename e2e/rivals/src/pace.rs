//! When the next of many rounds begins: many are played at once, and none of them may starve the others of processors.

use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;

use crate::results::lock;

/// For how long the processors are looked at.
const WINDOW: Duration = Duration::from_millis(400);

/// What share of all processors has to be idle then. A round takes most of its processor time at its beginning, when it
/// starts two contenders.
const IDLE_SHARE: f64 = 0.25;

/// One round begins after the other, each when processors are idle.
#[derive(Default)]
pub(crate) struct Pace {
    turn: Mutex<()>,
}

impl Pace {
    /// Waits for that. The time has no bound: the other rounds end, and what else runs on the machine delays the next one.
    ///
    /// # Errors
    /// When the kernel does not tell how its processors are used.
    pub(crate) fn wait(&self) -> anyhow::Result<()> {
        let _turn = lock(&self.turn);
        let mut before = Ticks::now()?;
        loop {
            std::thread::sleep(WINDOW);
            let now = Ticks::now()?;
            if now.idle_share_since(before) >= IDLE_SHARE {
                return Ok(());
            }
            before = now;
        }
    }
}

/// What all processors have done since the machine started, in ticks of the kernel's clock.
#[derive(Clone, Copy)]
struct Ticks {
    idle: u64,
    all: u64,
}

impl Ticks {
    fn now() -> anyhow::Result<Self> {
        Self::of(&fs::read_to_string("/proc/stat")?)
    }

    /// From the first line of `/proc/stat` (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq, steal. What
    /// follows is counted in user and nice already. A round comes before what has a low priority, as it would on an idle
    /// processor.
    fn of(stat: &str) -> anyhow::Result<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
        let fields = line.context("no cpu in /proc/stat")?.split_whitespace().take(8);
        let fields = fields
            .map(|field| field.parse::<u64>().context("no number in /proc/stat"))
            .collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self {
            idle: [1, 3, 4].iter().filter_map(|&at| fields.get(at)).sum(),
            all: fields.iter().sum(),
        })
    }

    fn idle_share_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        // The kernel's idle counters may go back a little (proc_stat(5)).
        let idle = self.idle.saturating_sub(before.idle);
        idle as f64 / all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_priority_and_waiting_for_a_disk_are_idle_and_guests_are_counted_once() {
        let before = Ticks::of("cpu  10 0 10 60 20 0 0 0 0 0\ncpu0 1 1\n").unwrap();
        let after = Ticks::of("cpu  60 10 20 80 30 0 5 5 40 10\n").unwrap();
        // 110 ticks: in 20 they were idle, in 10 they waited for a disk, in 10 something of low priority ran.
        assert!((after.idle_share_since(before) - 40.0 / 110.0).abs() < 1e-9);
        assert!(Ticks::of("intr 5\n").is_err());
    }
}
