//! The frames that the guard was sent on this connection.

use lockkeeper_lock::BootInstant;

use crate::link::protocol::{Grant, ToGuard};

/// Grants and suspicions that were sent.
#[derive(Debug)]
pub(super) struct Told {
    /// The newest grant, without its `start` and its generation, and with the end that a stop has set.
    last: Option<Grant>,
    /// How many grants were sent.
    generation: u32,
    /// Whether the guard was told to suspect; unknown after it came back.
    suspect: Option<bool>,
}

impl Told {
    pub(crate) fn nothing() -> Self {
        Self {
            last: None,
            generation: 0,
            suspect: Some(false),
        }
    }

    /// The connection is over.
    pub(crate) fn lost(&mut self) {
        self.last = None;
    }

    /// A guard that has something running has connected: it may have been told to suspect before.
    pub(crate) fn greeted(&mut self) {
        self.last = None;
        self.suspect = None;
    }

    /// An application is about to be started.
    pub(crate) fn begin(&mut self) {
        self.last = None;
        self.suspect = Some(false);
    }

    /// Whether the guard does not know this grant yet.
    pub(crate) fn is_news(&self, grant: Grant) -> bool {
        self.last != Some(grant)
    }

    /// Whether the guard knows of no deadline, or of a later one.
    pub(crate) fn is_earlier(&self, kill_at: BootInstant) -> bool {
        self.last.is_none_or(|told| kill_at < told.kill_at)
    }

    /// The frame with this grant, which is sent now.
    pub(crate) fn grant(&mut self, grant: Grant, start: bool) -> ToGuard {
        self.last = Some(grant);
        self.generation = self.generation.wrapping_add(1);
        ToGuard::Grant(Grant {
            generation: self.generation,
            start,
            ..grant
        })
    }

    /// A stop is sent now. It sets this end.
    pub(crate) fn stop(&mut self, end: Grant) {
        self.last = Some(end);
    }

    /// Whether the guard has to be told whether the connection is in doubt, because that has changed. If so, the
    /// frame is sent now.
    pub(crate) fn suspect(&mut self, is_suspect: bool) -> bool {
        self.suspect.replace(is_suspect) != Some(is_suspect)
    }

    /// Whether the guard has stopped what runs on suspicion.
    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect == Some(true)
    }

    /// Until when the file with the token may be there.
    pub(crate) fn lease_file_until(&self) -> Option<BootInstant> {
        self.last.map(lease_file_until)
    }

    /// The deadline of a grant under which nothing was started; it does not count any more.
    pub(crate) fn take_deadline(&mut self) -> Option<BootInstant> {
        self.last.take().map(|grant| grant.kill_at)
    }
}

/// When the guard begins to stop what runs under `grant`: the file has to be gone by then.
pub(super) fn lease_file_until(grant: Grant) -> BootInstant {
    if grant.pause { grant.kill_at } else { grant.term_at }
}
