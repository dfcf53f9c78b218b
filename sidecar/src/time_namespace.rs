//! The `CLOCK_BOOTTIME` that a process reads: since Linux 5.6 each time namespace (`time_namespaces(7)`) has one of
//! its own. Keeper and guard exchange instants of it, so they have to be in the same one.

use std::os::unix::fs::MetadataExt;

/// The number of this process's time namespace, which no other one has; 0 where the kernel knows of none.
pub fn own() -> u32 {
    // `proc(5)`: the inode number of this link tells namespaces apart. The kernel counts them in 32 bits (`ns_common`).
    std::fs::metadata("/proc/self/ns/time").map_or(0, |namespace| namespace.ino() as u32)
}
