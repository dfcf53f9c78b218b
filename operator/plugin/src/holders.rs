//! The holders of a lock, for a sentence.

use lockkeeper_crds::lock::{Holder, TakenFrom};
use lockkeeper_daemon::sentence::few;

pub(crate) fn named(holders: &[Holder]) -> String {
    few(holders.iter().map(|holder| &holder.pod))
}

/// From whom a holder took its place.
pub(crate) fn taken(from: &TakenFrom) -> String {
    format!("{}, which was silent for {}", from.pod, from.silence)
}
