//! The parsers of what others write, for the crate `fuzz`. The released binary has no such door: see the
//! feature `fuzzing`.

pub use crate::queue::{Ahead, Contender, Place, excludes, out_of_numbers, sorted, unknown};
pub use crate::record::contender_data;
pub use crate::task::ensemble_id;

/// The tick in a server's answer to `conf`.
pub fn tick(answer: &[u8]) -> Option<std::time::Duration> {
    crate::zookeeper::tick(answer)
}
