//! A crowd: many contenders in one process, each with a client of its own, and what they said.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::binaries::{Linking, built};
use lockkeeper_testbed::{Host, Process};
use serde::Deserialize;

use crate::driver_commands;
use crate::programs::named;
use crate::servers::Servers;
use crate::site::Machine;
use crate::systems::{Driver, System};

/// How long a crowd may take to connect on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Between two looks at all that a crowd has said: they take processors from what is measured.
const LOOK: Duration = Duration::from_millis(500);

/// What a crowd does.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub contenders: u32,
    /// The lease, session timeout or expiry.
    pub lease: Duration,
    pub hold: Duration,
    /// Who has released queues again at once, not when another one holds.
    pub at_once: bool,
}

/// A running crowd. Dropping it kills it.
pub struct Crowd {
    events: PathBuf,
    log: PathBuf,
    // Killed as it is: nobody needs the lock any more.
    _process: Process,
    machine: Machine,
}

/// What a contender of a crowd said.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Word {
    /// `ready`, `held`, `releasing`, `lost` or `error`.
    pub event: String,
    /// When, in nanoseconds since boot.
    pub at: u64,
    /// Which contender.
    pub who: u32,
}

impl Crowd {
    /// Starts a crowd, and waits until all of it have their clients.
    ///
    /// # Errors
    /// When its driver cannot be built or started, or does not get that far.
    pub fn start(system: &System, servers: &dyn Servers, lock: &str, plan: Plan) -> anyhow::Result<Self> {
        let mut machine = Machine::new(servers, lock)?;
        machine.make_ready(servers)?;
        let file = |kind: &str| machine.directory().join(format!("crowd.{kind}"));
        let (events, log) = (file("events"), file("log"));
        let mut command = program(system)?;
        command
            .args(["--servers", &servers.addresses()])
            .args(["--lock", lock])
            .args(["--lease-ms", &plan.lease.as_millis().to_string()])
            .args(["--hold-ms", &plan.hold.as_millis().to_string()])
            .args(["--crowd", &plan.contenders.to_string()])
            .args(["--rejoin", if plan.at_once { "at-once" } else { "next" }])
            .args(servers.options())
            .stdin(Stdio::null())
            .stdout(File::create(&events)?)
            .stderr(File::create(&log)?);
        named(&mut command, servers.names());
        let crowd = Self {
            _process: machine.host.spawn("crowd", command)?,
            machine,
            events,
            log,
        };
        let all_are_ready = |words: &[Word]| {
            let ready = words.iter().filter(|word| word.event == "ready");
            let ready: BTreeSet<_> = ready.map(|word| word.who).collect();
            ready.len() == plan.contenders as usize
        };
        crowd.wait_for(PATIENCE, all_are_ready)?.with_context(|| {
            format!(
                "not all {} have their clients after {PATIENCE:?}:\n{}",
                plan.contenders,
                std::fs::read_to_string(&crowd.log).unwrap_or_default()
            )
        })?;
        Ok(crowd)
    }

    pub(crate) fn host(&self) -> &Host {
        &self.machine.host
    }

    /// Waits until what it has said is enough; `None` if that takes too long.
    ///
    /// # Errors
    /// As [`Crowd::words`].
    pub fn wait_for(
        &self,
        bound: Duration,
        is_enough: impl Fn(&[Word]) -> bool,
    ) -> anyhow::Result<Option<()>> {
        let end = BootInstant::now() + bound;
        while !is_enough(&self.words()?) {
            if BootInstant::now() >= end {
                return Ok(None);
            }
            std::thread::sleep(LOOK);
        }
        Ok(Some(()))
    }

    /// What it has said so far.
    ///
    /// # Errors
    /// When a line is not of this form.
    pub fn words(&self) -> anyhow::Result<Vec<Word>> {
        let text = std::fs::read_to_string(&self.events)?;
        // The last line may be half there.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let words = whole.lines().map(|line| {
            serde_json::from_str(line).with_context(|| format!("{line:?} is no event of a crowd"))
        });
        words.collect()
    }
}

fn program(system: &System) -> anyhow::Result<Command> {
    let own = |recipe| -> anyhow::Result<Command> {
        let program = built("lockkeeper-rivals", "lockkeeper-crowd", &[], Linking::Shared)?;
        let mut command = Command::new(program);
        command.args(["--system", recipe]);
        Ok(command)
    };
    match (system.driver, driver_commands::crowd(system)?) {
        (Driver::Own(_), _) => own("lockkeeper"),
        (Driver::Crowd(recipe), _) => own(recipe),
        (_, Some(mut command)) => {
            command
                .args(["--system", system.name_for_driver()])
                .args(["--name", "crowd"]);
            Ok(command)
        }
        (_, None) => anyhow::bail!("{} has no driver", system.name),
    }
}

/// The times from a release to the next holder since a moment, where that was another one. Shortest first.
pub fn handoffs(words: &[Word], since: BootInstant) -> Vec<Duration> {
    let mut released: Option<&Word> = None;
    let mut found = Vec::new();
    for word in in_order(words) {
        match word.event.as_str() {
            "releasing" => released = Some(word),
            "held" => {
                if let Some(before) = released.take()
                    && before.who != word.who
                    && before.at >= since.as_nanos()
                {
                    found.push(Duration::from_nanos(word.at - before.at));
                }
            }
            _ => {}
        }
    }
    found.sort_unstable();
    found
}

/// How evenly a crowd got the lock until a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Evenness {
    /// The longest wait of a contender, the one that still lasts included.
    pub longest: Duration,
    /// Jain's index of the numbers of their holds: 1 if all had as many, 1/n if one had all.
    pub index: f64,
}

/// See [`Evenness`]; a wait lasts from a release, or the first moment, to the next hold.
pub(crate) fn evenness(words: &[Word], contenders: u32, since: BootInstant, until: BootInstant) -> Evenness {
    let mut counts = vec![0_u32; contenders as usize];
    let mut waiting: HashMap<u32, u64> = (0..contenders).map(|who| (who, since.as_nanos())).collect();
    let mut longest = 0;
    for word in in_order(words) {
        if word.at > until.as_nanos() {
            break;
        }
        match word.event.as_str() {
            "held" => {
                let from = waiting.remove(&word.who).unwrap_or(word.at);
                if word.at >= since.as_nanos() {
                    longest = longest.max(word.at.saturating_sub(from));
                    counts[word.who as usize] += 1;
                }
            }
            "releasing" => {
                waiting.insert(word.who, word.at.max(since.as_nanos()));
            }
            _ => {}
        }
    }
    let still = waiting
        .values()
        .map(|from| until.as_nanos().saturating_sub(*from));
    let longest = still.fold(longest, u64::max);
    let sum: f64 = counts.iter().map(|&count| f64::from(count)).sum();
    let squares: f64 = counts.iter().map(|&count| f64::from(count).powi(2)).sum();
    let index = if squares > 0.0 {
        sum * sum / (f64::from(contenders) * squares)
    } else {
        0.0
    };
    Evenness {
        longest: Duration::from_nanos(longest),
        index,
    }
}

/// Of two at one moment, the first in the file is the first.
fn in_order(words: &[Word]) -> Vec<&Word> {
    let mut words: Vec<_> = words.iter().collect();
    words.sort_by_key(|word| word.at);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(lines: &[(&str, u64, u32)]) -> Vec<Word> {
        let word = |&(event, millis, who): &(&str, u64, u32)| Word {
            event: event.to_owned(),
            at: millis * 1_000_000,
            who,
        };
        lines.iter().map(word).collect()
    }

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_handoff_is_one_to_another_contender_after_the_warm_up() {
        let said = words(&[
            ("held", 0, 0),
            ("releasing", 5, 0),
            ("held", 7, 1),
            ("releasing", 12, 1),
            ("held", 13, 1),
            ("releasing", 18, 1),
            ("held", 21, 0),
        ]);
        assert_eq!(handoffs(&said, at(6)), [Duration::from_millis(3)]);
        assert_eq!(handoffs(&said, at(0)), [2, 3].map(Duration::from_millis));
    }

    #[test]
    fn who_never_gets_the_lock_waits_until_the_end_and_lowers_the_index() {
        let said = words(&[
            ("held", 10, 0),
            ("releasing", 20, 0),
            ("held", 30, 1),
            ("releasing", 40, 1),
            ("held", 45, 0),
        ]);
        let found = evenness(&said[..4], 2, at(0), at(50));
        assert_eq!((found.longest, found.index), (Duration::from_millis(30), 1.0));
        let found = evenness(&said, 3, at(0), at(50));
        assert_eq!(found.longest, Duration::from_millis(50));
        assert!((found.index - 9.0 / 15.0).abs() < 1e-9);
    }
}
