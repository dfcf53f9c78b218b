//! The groups of a pod, where its containers share a process namespace.

use super::line::{is_in, split};

/// Our group lies at most so far below that of the pod: a runtime may put the processes of a container into a group
/// below the container's (crun). The first process of a machine has less in common with us.
const DEEPEST: usize = 2;

/// The groups of a pod in one hierarchy, as lines.
#[derive(Debug)]
pub(super) struct Pod {
    group: Vec<u8>,
    /// That of our container below it, if it has a name for us, and that of the first process.
    taken: [Vec<u8>; 2],
}

impl Pod {
    /// Derives them from our line and that of the first process.
    pub(crate) fn of(own: &[u8], first: &[u8]) -> Option<Self> {
        let ((hierarchy, own), (other, first)) = (split(own)?, split(first)?);
        let parts = |path| <[u8]>::split(path, |byte: &u8| *byte == b'/').filter(|part| !part.is_empty());
        let ups = parts(first).take_while(|part| *part == b"..").count();
        let common = parts(own).zip(parts(first)).take_while(|(a, b)| a == b).count();
        // In a namespace of our own, the path to its group goes up (`/..`).
        let (shared, below) = match ups {
            0 => (common, parts(own).count() - common),
            _ => (ups, ups + parts(own).count()),
        };
        let is_apart = hierarchy == other && shared > 0 && parts(first).count() > shared;
        if !is_apart || common > 0 && ups > 0 || !(1..=DEEPEST).contains(&below) {
            return None;
        }
        let join = |parts: &mut dyn Iterator<Item = &[u8]>| {
            parts.fold(hierarchy.to_vec(), |mut line, part| {
                line.push(b'/');
                line.extend_from_slice(part);
                line
            })
        };
        let ours = if ups == 0 {
            join(&mut parts(own).take(shared + 1))
        } else {
            Vec::new()
        };
        Some(Self {
            group: join(&mut parts(first).take(shared)),
            taken: [ours, join(&mut parts(first).take(shared + 1))],
        })
    }

    /// Whether this line is of another container than ours and that of the first process.
    pub(crate) fn has_beside_us(&self, line: &[u8]) -> bool {
        let below = line
            .strip_prefix(&self.group[..])
            .and_then(|rest| rest.strip_prefix(b"/"));
        let is_below = |rest: &[u8]| !rest.is_empty() && rest != b".." && !rest.starts_with(b"../");
        let is_taken = |taken: &Vec<u8>| !taken.is_empty() && is_in(line, taken);
        below.is_some_and(is_below) && !self.taken.iter().any(is_taken)
    }
}
