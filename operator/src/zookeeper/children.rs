//! How many children of lock roots the operator takes in, and how much of their names.
//!
//! The pods of a namespace make these children, and anything may be there.

use std::time::Duration;

use aws_lc_rs::digest;

/// Most children of a lock root with which its queue is followed. A contender is a pod, and the largest clusters have
/// 150,000 of them on 5,000 nodes ("Considerations for large clusters"); a client that may create contenders could create
/// as many as the servers have memory for. Each takes at most some 2.2 KB here, an honest one a third of that.
pub const CHILDREN: usize = 20_000;

/// Most children of all lock roots of a namespace together: some 90 MB at most. A picture and the one after it, which
/// are in memory at once after a new connection, fit into what the chart gives the operator.
pub(crate) const CHILDREN_OF_NAMESPACE: usize = 40_000;

/// Most changes of children of all lock roots of a namespace together within [`WINDOW`]: so many come, change once and go.
pub const CHANGES_OF_NAMESPACE: usize = 3 * CHILDREN_OF_NAMESPACE;

/// How long changes are counted, and the time between two looks at locks that were given up.
pub(crate) const WINDOW: Duration = Duration::from_secs(30);

/// Longest name of a child that is kept, in bytes. Ours have 55, and a pod's own name would have room.
pub(crate) const LONGEST_NAME: usize = 256;

/// What is kept of a longer one, in bytes.
const SHOWN: usize = 64;

/// Longest list that is read aside, in bytes: three times what [`CHILDREN`] of ours take.
pub(crate) const LONGEST_LIST: usize = 4 << 20;

/// How long a server may take for a list aside: as for a connection, and for what it has to read.
pub(crate) const PATIENCE_FOR_LIST: Duration = Duration::from_secs(10);

/// The name of a child for people.
pub(crate) fn shown(name: &str) -> String {
    match name.len() {
        ..=LONGEST_NAME => name.to_owned(),
        _ => cut(name),
    }
}

/// The beginning of a long name, with a checksum that tells it from others with the same beginning. It cannot be a
/// contender's name, since it does not end with a number.
pub(crate) fn cut(name: &str) -> String {
    let sum = digest::digest(&digest::SHA256, name.as_bytes());
    let sum: String = sum.as_ref()[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let shown = &name[..name.floor_char_boundary(SHOWN)];
    format!("{shown}… ({} bytes, {sum})", name.len())
}
