//! What we know about the contenders before us, and the record that a holder leaves behind.

use std::collections::BTreeSet;

use crate::queue::Mode;
use crate::record::{CleanRelease, Control, Debts};

/// Contenders before us that matter when we hold.
#[derive(Default)]
pub(super) struct Past {
    /// Those that we have seen before us, and that may have held the lock last.
    pub(super) suspects: BTreeSet<String>,
    pub(super) record: Record,
    /// Those that may still be writing, and for which we have not waited.
    pub(super) debts: Debts,
}

/// Whether we are recorded among the holders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Record {
    /// Not requested yet.
    #[default]
    Unwritten,
    /// Requested; the result is not known yet, or the request has to be sent again.
    Asked,
    Written,
    /// The control node is missing, or we may not read it. That may change.
    Impossible,
    /// The control node gives no right to write.
    Refused,
}

impl Record {
    /// Whether the record needs nothing more before we hold.
    pub(super) fn is_done(self) -> bool {
        matches!(self, Self::Written | Self::Impossible | Self::Refused)
    }

    /// Whether the record may name us, so that our end has to be noted.
    pub(super) fn may_be_written(self) -> bool {
        matches!(self, Self::Asked | Self::Written)
    }
}

/// The record that a holder leaves behind when it releases cleanly.
pub(super) struct Farewell {
    pub(super) release: CleanRelease,
    pub(super) mode: Mode,
    pub(super) is_written: bool,
    pub(super) is_settled: bool,
    pub(super) debts: Debts,
}

impl Farewell {
    /// Adds it to the control node, and returns the new data.
    pub(super) fn write(&self, control: Control) -> Vec<u8> {
        let contender = &self.release.contender;
        let control = match (self.is_written, self.is_settled) {
            (false, _) => control,
            (true, false) => control.without_holder(contender, self.mode, &self.debts),
            (true, true) => {
                let control = control.without_holder(contender, self.mode, &Debts::default());
                control.without(&self.debts)
            }
        };
        control.with_release(self.release.clone())
    }
}
