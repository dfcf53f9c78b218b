//! What is seen of the contenders before us.

use crate::clock::BootInstant;
use crate::ensemble::Node;
use crate::record::{ContenderData, Pod};
use crate::takeover::Sighting;

/// What we have seen of a contender before us.
#[derive(Default)]
pub(super) struct Seen {
    /// Whether it said that it holds.
    pub(super) was_held: bool,
    /// The pod that it names.
    pub(super) pod: Option<Pod>,
    /// Its newest version; `None` if it has to be left to its session.
    pub(super) sighting: Option<Sighting>,
    /// We may not read it: nothing is known of it but its name.
    pub(super) is_unreadable: bool,
}

// === impl Seen ===

impl Seen {
    /// An answer shows its node. A node that stays without a session is no contender that could be silent.
    pub(super) fn look(&mut self, node: &Node, said: ContenderData, now: BootInstant) {
        self.was_held |= said.is_held();
        let lease = said.lease().filter(|_| node.is_ephemeral());
        let sighting = lease.and_then(|lease| Sighting::new(node.version, lease, now));
        let is_repeated = sighting.is_some_and(|new| self.sighting.is_some_and(|old| new.repeats(&old)));
        if !is_repeated {
            self.sighting = sighting;
        }
        self.pod = said.pod;
    }
}
