//! The parsers of external input, for the crate `fuzz`. The released binary does not have this module: see the feature
//! `fuzzing`.

pub use crate::queue::{Ahead, Contender, Place, excludes, sorted, unknown};
pub use crate::record::{Said, contender_data};
pub use crate::task::ensemble_id;

/// The tick in a server's answer to `conf`.
pub fn tick(answer: &[u8]) -> Option<std::time::Duration> {
    crate::zookeeper::tick(answer)
}
