//! The keepers of a guard that is their parent: the next one takes the place of one that ends.
//!
//! A keeper that is killed, or runs out of memory, takes nothing with it: the application has its deadline from the guard,
//! and the guard has the ticket with which the next keeper goes on.

use std::io;
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use rustix::process::Pid;

use super::keeper_program::KeeperProgram;
use crate::link::guard_end::GuardEnd;

/// A keeper that has lived this long had no short life: what ends it is not what had ended the one before it.
const LONG_LIFE: Duration = Duration::from_secs(10);

/// How many keepers with short lives in a row are replaced. When one more ends, the guard is left without a keeper.
const MOST_SHORT_LIVES: u32 = 6;

/// The pause before the guard replaces the second keeper in a row with a short life. It doubles with each further one;
/// the first is replaced at once.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// The keepers of one guard, of which one lives at a time.
#[derive(Debug)]
pub(super) struct Keepers {
    /// How to start a keeper; `None` if the guard replaces none.
    program: Option<KeeperProgram>,
    first: Option<Pid>,
    began: BootInstant,
    short_lives: u32,
    next_at: Option<BootInstant>,
}

impl Keepers {
    /// Starts the first keeper.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(program: KeeperProgram) -> io::Result<(GuardEnd, Self)> {
        let cannot =
            |error: io::Error| io::Error::new(error.kind(), format!("cannot start the keeper: {error}"));
        let (socket, pid) = program.start().map_err(cannot)?;
        let keepers = Self {
            program: Some(program),
            ..Self::only(Some(pid))
        };
        Ok((GuardEnd::inherited(socket)?, keepers))
    }

    /// Returns the only keeper of a guard, which is not replaced.
    pub(crate) fn only(pid: Option<Pid>) -> Self {
        Self {
            program: None,
            first: pid,
            began: BootInstant::now(),
            short_lives: 0,
            next_at: None,
        }
    }

    pub(crate) fn first(&self) -> Option<Pid> {
        self.first
    }

    /// Notes that the keeper is lost at `now`, and returns whether another one will come.
    pub(crate) fn lost(&mut self, now: BootInstant) -> bool {
        if self.program.is_none() {
            return false;
        }
        if now.saturating_since(self.began) >= LONG_LIFE {
            self.short_lives = 0;
        }
        self.short_lives += 1;
        let pause = match self.short_lives {
            1 => Duration::ZERO,
            doubled => SHORTEST_PAUSE * (1 << (doubled - 2).min(MOST_SHORT_LIVES)),
        };
        self.next_at = (self.short_lives <= MOST_SHORT_LIVES).then(|| now + pause);
        self.next_at.is_some()
    }

    /// Returns when the next keeper is to be started, if the one before it has ended.
    pub(crate) fn next_at(&self) -> Option<BootInstant> {
        self.next_at
    }

    /// Starts the next keeper.
    ///
    /// # Errors
    /// When it cannot be forked.
    pub(crate) fn next(&mut self, now: BootInstant) -> io::Result<(GuardEnd, Pid)> {
        self.next_at = None;
        self.began = now;
        let Some(program) = &self.program else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let (socket, pid) = program.start()?;
        Ok((GuardEnd::inherited(socket)?, pid))
    }
}
