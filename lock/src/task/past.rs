//! Who held before us and may still be writing, and the record that we leave to those after us.

use crate::queue::Mode;
use crate::record::{Account, Claimant, CleanRelease, Control, Debts, Holder, Witness};

/// What the control node and we know of each other.
#[derive(Default)]
pub(super) struct Past {
    record: Record,
    /// The former holders that may still be writing, and for which we have not waited.
    debts: Debts,
}

/// Whether we are recorded among the holders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Record {
    /// The record is not requested yet.
    #[default]
    Unwritten,
    /// The record is requested. The result is not known yet, or the request has to be sent again.
    Asked,
    Written,
    /// The control node is missing, or we may not read it. That may change.
    Impossible,
    /// The control node gives no right to write.
    Refused,
}

/// What our record needs.
pub(super) enum Need {
    Nothing,
    /// We have to go on without one.
    GoWithout,
    /// The control node gets these data if it still has this version.
    Write {
        data: Vec<u8>,
        version: i32,
        /// Whether the data leave out those for which we have waited.
        is_settlement: bool,
    },
}

impl Past {
    /// Returns the past of a contender that another process has left to us, and may have recorded.
    pub(super) fn unsure() -> Self {
        Self {
            record: Record::Asked,
            debts: Debts::default(),
        }
    }

    /// Whether the record needs nothing more before we hold.
    pub(super) fn is_recorded(&self) -> bool {
        matches!(
            self.record,
            Record::Written | Record::Impossible | Record::Refused
        )
    }

    /// Whether the record may name us, so that our end has to be noted.
    pub(super) fn may_name_us(&self) -> bool {
        matches!(self.record, Record::Asked | Record::Written)
    }

    /// Whether a former holder may still be writing.
    pub(super) fn has_debts(&self) -> bool {
        !self.debts.is_empty()
    }

    /// Returns what our record needs, after the control node was read with this version. `is_settled` says that our
    /// owner has waited for those that may still be writing. What is to be written counts as asked for.
    pub(super) fn keep_record(
        &mut self,
        (control, version): (&Control, Option<i32>),
        claimant: &Claimant<'_>,
        witness: &Witness<'_>,
        is_settled: bool,
    ) -> Need {
        let Some(version) = version else {
            return match self.record {
                Record::Impossible | Record::Refused => Need::Nothing,
                _ => Need::GoWithout,
            };
        };
        let is_named = control.names(&claimant.own);
        let mut is_settlement = false;
        let control = match self.record {
            Record::Refused => return Need::Nothing,
            // It was written, but the answer was lost.
            Record::Asked if control.holders.iter().flatten().any(|one| *one == claimant.own) => {
                self.record = Record::Written;
                self.debts = control.debts(claimant);
                return Need::Nothing;
            }
            Record::Written if is_named && (self.debts.is_empty() || !is_settled) => return Need::Nothing,
            Record::Written if is_named => {
                is_settlement = true;
                control.clone().without(&self.debts)
            }
            Record::Written => {
                // We wait once for those that we know already. If a client has removed others, they are unknown.
                self.debts.more = self.debts.more.max(u32::from(control.holders.is_none()));
                control
                    .clone()
                    .with_hold(claimant, witness)
                    .with_claim(claimant, &self.debts)
            }
            Record::Unwritten | Record::Asked | Record::Impossible => {
                self.record = Record::Asked;
                self.debts = control.debts(claimant);
                control
                    .clone()
                    .with_hold(claimant, witness)
                    .with_claim(claimant, &self.debts)
            }
        };
        Need::Write {
            data: control.to_data(),
            version,
            is_settlement,
        }
    }

    /// Notes that the record is written. After a settlement, we know of nobody who may still be writing.
    pub(super) fn recorded(&mut self, is_settlement: bool) {
        self.record = Record::Written;
        if is_settlement {
            self.debts = Debts::default();
        }
    }

    /// Notes that there will be no record of us, for the reason in `record`. With `is_asked_for` our owner wants to
    /// know which holders died, and we cannot find that out: so it counts as if one had died.
    pub(super) fn go_without(&mut self, record: Record, is_asked_for: bool) {
        self.record = record;
        if is_asked_for {
            self.debts = Debts::unknown();
        }
    }

    /// Returns what to record when we release. `is_settled` means the same as for [`Past::keep_record`].
    pub(super) fn farewell(
        &self,
        own: Holder,
        mode: Mode,
        is_settled: bool,
        witness: &Witness<'_>,
    ) -> Farewell {
        Farewell {
            account: witness.account(own.clone()),
            release: CleanRelease {
                contender: own.contender,
                token: own.token,
            },
            mode,
            is_written: self.may_name_us() || self.has_debts(),
            is_settled,
            debts: self.debts.clone(),
        }
    }
}

/// The record that a holder leaves behind when it releases cleanly.
pub(super) struct Farewell {
    release: CleanRelease,
    account: Account,
    mode: Mode,
    is_written: bool,
    is_settled: bool,
    debts: Debts,
}

impl Farewell {
    /// Adds the farewell to the control node, and returns the new data.
    pub(super) fn write(&self, control: Control) -> Vec<u8> {
        let contender = &self.release.contender;
        // By what is recorded of those before us.
        let control = control.with_account(self.account.clone());
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
