//! The shared parts of one history: the ensemble, the true time, the ledger and the log.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_fake::{Takeovers, World};

use crate::ledger::Ledger;
use crate::plan::Rules;

pub(crate) struct Simulation {
    pub(crate) world: World,
    pub(crate) rules: Rules,
    pub(crate) ledger: RefCell<Ledger>,
    log: Option<RefCell<Vec<String>>>,
    /// True at the end: no process is started again.
    pub(crate) is_over: Cell<bool>,
    /// True when the faults have ended: applications end soon by themselves.
    pub(crate) is_calm: Cell<bool>,
    numbers: Cell<u64>,
    resumptions: Cell<usize>,
    pub(crate) takeovers: Arc<Takeovers>,
}

impl Simulation {
    pub(crate) fn new(world: World, rules: Rules, ledger: Ledger, is_told: bool) -> Self {
        Self {
            world,
            rules,
            ledger: RefCell::new(ledger),
            log: is_told.then(RefCell::default),
            is_over: Cell::new(false),
            is_calm: Cell::new(false),
            numbers: Cell::new(0),
            resumptions: Cell::new(0),
            takeovers: Arc::default(),
        }
    }

    /// True time since the history began.
    pub(crate) fn now(&self) -> Duration {
        self.world.now()
    }

    /// A unique number in this history.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.update(|number| number + 1);
        self.numbers.get()
    }

    /// A keeper begins with the contender of the one before it.
    pub(crate) fn resumed(&self) {
        self.resumptions.update(|count| count + 1);
    }

    pub(crate) fn resumptions(&self) -> usize {
        self.resumptions.get()
    }

    /// Adds a line to the history, if it is to be printed.
    pub(crate) fn say(&self, what: impl FnOnce() -> String) {
        if let Some(log) = &self.log {
            let line = format!("{:>9.3} {}", self.now().as_secs_f64(), what());
            log.borrow_mut().push(line);
        }
    }

    pub(crate) fn take_log(&self) -> Vec<String> {
        self.log.as_ref().map(RefCell::take).unwrap_or_default()
    }
}

/// A random duration up to `longest`, in whole milliseconds.
pub(crate) fn up_to(longest: Duration) -> Duration {
    Duration::from_millis(fastrand::u64(..=longest.as_millis() as u64))
}
