//! The one socket between keeper and guard: its protocol, and its two ends.

pub(crate) mod guard_end;
mod impostor;
pub mod keeper_end;
pub mod protocol;
mod socket_place;
