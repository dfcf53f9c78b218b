//! The data of contenders and of the control node: small JSON documents.

mod contender;
mod control;
mod document;
mod history;
mod hold;
mod holders;

pub(crate) use self::contender::now;
pub use self::contender::{
    ContenderData, Identity, LONGEST_CONTENDER_DATA, Pod, Said, Survivors, TookOver, contender_data,
};
pub use self::control::{CleanRelease, Control, Holder, LONGEST_CONTROL_DATA, YieldRequest};
pub(crate) use self::document::document;
pub(crate) use self::history::{Account, Witness};
pub use self::hold::{HOLDS_KEPT, Hold, HoldEnd, HolderPod};
pub(crate) use self::holders::{Claimant, Debts};
