//! What all parts of one history share: the ensemble, the true time, the ledger and the log.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use lockkeeper_lock::fake::World;

use crate::ledger::Ledger;
use crate::plan::Rules;

pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) rules: Rules,
    pub(crate) ledger: RefCell<Ledger>,
    log: Option<RefCell<Vec<String>>>,
    /// From now on nothing is started again.
    pub(crate) is_over: Cell<bool>,
    /// The faults have ended: applications do short work.
    pub(crate) is_calm: Cell<bool>,
    numbers: Cell<u64>,
}

impl Stage {
    pub(crate) fn new(world: World, rules: Rules, ledger: Ledger, is_told: bool) -> Self {
        Self {
            world,
            rules,
            ledger: RefCell::new(ledger),
            log: is_told.then(RefCell::default),
            is_over: Cell::new(false),
            is_calm: Cell::new(false),
            numbers: Cell::new(0),
        }
    }

    /// True time since the history began.
    pub(crate) fn now(&self) -> Duration {
        self.world.now()
    }

    /// A number that nothing else has.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.update(|number| number + 1);
        self.numbers.get()
    }

    /// A line of the history, if anybody wants to read it.
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

/// Up to `longest`, in whole milliseconds.
pub(crate) fn up_to(longest: Duration) -> Duration {
    Duration::from_millis(fastrand::u64(..=longest.as_millis() as u64))
}
