//! Who is before us in the queue.

use std::collections::{BTreeSet, HashMap};

use crate::clock::BootInstant;
use crate::ensemble::Node;
use crate::error::LockError;
use crate::queue::{Ahead, Contender};
use crate::record::{ContenderData, HOLDS_KEPT, Hold, Pod, TookOver};
use crate::takeover_lease::Sighting;

pub(super) struct Line {
    turn: Turn,
    /// The contenders that are watched.
    watched: HashMap<String, Seen>,
    /// Those that we have seen before us, and that may have held the lock last.
    suspects: BTreeSet<String>,
    /// The last ones that we have seen hold, and go; oldest first.
    ended: Vec<Hold>,
}

enum Turn {
    /// The children have to be listed, or are being listed.
    Unknown { is_listing: bool },
    /// We wait for some of these.
    Behind(Ahead),
    /// Those before us, as far as they are known, may hold beside us.
    Ours(Option<Ahead>),
}

/// A contender before us whose place we may take when its silence has lasted for long enough.
pub(super) struct Silent<'a> {
    pub(super) sighting: Sighting,
    pub(super) name: &'a str,
    /// The pod that it names.
    pub(super) pod: Option<&'a Pod>,
    /// Whether it said that it holds.
    pub(super) is_holder: bool,
}

/// What we have seen of a contender before us.
#[derive(Default)]
struct Seen {
    /// Whether it said that it holds.
    was_held: bool,
    /// What it said then, for people.
    hold: Option<Box<Hold>>,
    /// The pod that it names.
    pod: Option<Pod>,
    /// Its newest version; `None` if it has to be left to its session.
    sighting: Option<Sighting>,
    /// We may not read it: nothing is known of it but its name.
    is_unreadable: bool,
}

impl Line {
    pub(super) fn unknown() -> Self {
        Self {
            turn: Turn::Unknown { is_listing: false },
            watched: HashMap::new(),
            suspects: BTreeSet::new(),
            ended: Vec::new(),
        }
    }

    pub(super) fn is_our_turn(&self) -> bool {
        matches!(self.turn, Turn::Ours(_))
    }

    /// The contenders before us, if they are known.
    pub(super) fn ahead(&self) -> Option<&Ahead> {
        match &self.turn {
            Turn::Behind(ahead) => Some(ahead),
            Turn::Ours(ahead) => ahead.as_ref(),
            Turn::Unknown { .. } => None,
        }
    }

    /// Whether it is our turn when those that hold now have left.
    pub(super) fn is_heir(&self) -> bool {
        self.ahead().is_some_and(|ahead| ahead.place().is_heir)
    }

    /// How many have to leave before it is our turn.
    pub(super) fn position(&self) -> Option<usize> {
        if self.is_our_turn() {
            return Some(0);
        }
        self.ahead().map(|ahead| ahead.place().position)
    }

    /// Whether to list the children now.
    pub(super) fn begin_listing(&mut self) -> bool {
        match &mut self.turn {
            Turn::Unknown { is_listing } => !std::mem::replace(is_listing, true),
            Turn::Behind(_) | Turn::Ours(_) => false,
        }
    }

    /// The listing shows these before us.
    pub(super) fn listed(&mut self, ahead: Ahead) {
        self.turn = Turn::Behind(ahead);
    }

    /// Remembers those before us: one of them may hold, and then not release cleanly.
    pub(super) fn suspect_all(&mut self) {
        let (Turn::Behind(ahead) | Turn::Ours(Some(ahead))) = &self.turn else {
            return;
        };
        self.suspects.extend(ahead.names().map(str::to_owned));
    }

    /// Those that were before us and may have held.
    pub(super) fn suspects(&self) -> &BTreeSet<String> {
        &self.suspects
    }

    /// The last holders that we have seen go, for people.
    pub(super) fn ended(&self) -> &[Hold] {
        &self.ended
    }

    /// What is known of the order may be out of date, or the listing has failed. Once it is our turn it stays ours.
    pub(super) fn list_again(&mut self) {
        self.turn = match self.turn {
            Turn::Ours(_) => Turn::Ours(None),
            Turn::Unknown { .. } | Turn::Behind(_) => Turn::Unknown { is_listing: false },
        };
    }

    /// Whether our turn has come.
    pub(super) fn take_turn(&mut self) -> bool {
        self.turn = match std::mem::replace(&mut self.turn, Turn::Ours(None)) {
            Turn::Behind(ahead) if ahead.place().position == 0 => Turn::Ours(Some(ahead)),
            other => {
                self.turn = other;
                return false;
            }
        };
        self.watched.clear();
        true
    }

    /// The contenders that have to be watched from now on, too.
    pub(super) fn watch_more(&mut self) -> Vec<String> {
        let Turn::Behind(ahead) = &self.turn else {
            return Vec::new();
        };
        let mut more = ahead.place().watch;
        more.retain(|name| !self.watched.contains_key(name));
        let unseen = more.iter().map(|name| (name.clone(), Seen::default()));
        self.watched.extend(unseen);
        more
    }

    /// A watch shows this contender. Returns whether we could not read it before.
    pub(super) fn seen(&mut self, name: &str, node: &Node, said: ContenderData, now: BootInstant) -> bool {
        let seen = self.watched.entry(name.to_owned()).or_default();
        seen.look(name, node, said, now);
        std::mem::take(&mut seen.is_unreadable)
    }

    /// This contender holds. Those before it do not concern us: it has waited for them if it had to. Once it is our turn,
    /// every contender that left was before us.
    pub(super) fn seen_held(&mut self, name: &str) {
        let Turn::Behind(ahead) = &mut self.turn else {
            return;
        };
        let is_outdated = ahead.seen_held(name);
        self.suspects
            .retain(|suspect| ahead.names().any(|name| name == suspect));
        if is_outdated {
            self.list_again();
        }
    }

    /// We may not read this child.
    pub(super) fn unreadable(&mut self, name: &str) {
        self.watched.entry(name.to_owned()).or_default().is_unreadable = true;
    }

    /// This contender has renewed: the wait for its silence begins anew when it is read. Returns whether it has to be:
    /// once it is our turn we wait for nobody.
    pub(super) fn changed(&mut self, name: &str) -> bool {
        let is_our_turn = self.is_our_turn();
        match self.watched.get_mut(name) {
            Some(seen) if !is_our_turn => {
                seen.sighting = None;
                true
            }
            _ => false,
        }
    }

    /// This contender is gone. `is_own_watched` if we would have heard before of the deletion of our own: a user may have
    /// deleted it by hand, and then the contender behind us has become the heir, and holds now.
    pub(super) fn gone(&mut self, name: &str, is_own_watched: bool) {
        let mut seen = self.watched.remove(name).unwrap_or_default();
        if let Some(hold) = seen.hold.take() {
            let surplus = (self.ended.len() + 1).saturating_sub(HOLDS_KEPT);
            self.ended.drain(..surplus);
            self.ended.push(hold.seen_to_end());
        }
        let (Turn::Behind(ahead) | Turn::Ours(Some(ahead))) = &mut self.turn else {
            return;
        };
        ahead.remove(name, seen.was_held);
        let place = ahead.place();
        let is_to_be_listed = place.position > 0 && !place.is_heir;
        let is_own_in_doubt = place.position == 0 && !is_own_watched;
        // A writer that has said that it holds is one of ours. One of Curator says nothing, and may have let a reader of its
        // own in before us, also if others are before us still. Nobody else can.
        let may_leave_a_reader = Contender::parse(name).is_some_and(|gone| gone.may_leave_a_reader());
        let is_order_in_doubt = !seen.was_held && may_leave_a_reader;
        let is_beside_strangers = !ahead.strangers().is_empty() || seen.is_unreadable;
        if is_to_be_listed || is_own_in_doubt || is_order_in_doubt || is_beside_strangers {
            self.list_again();
        }
    }

    /// The connection is gone. A contender that does not hold lists the queue again.
    pub(super) fn disconnected(&mut self, is_held: bool) {
        self.watched.clear();
        if !is_held {
            self.turn = Turn::Unknown { is_listing: false };
        }
    }

    /// The one whose silence lasts too long first, of those that we wait for.
    pub(super) fn silent(&self) -> Option<Silent<'_>> {
        let Turn::Behind(_) = self.turn else { return None };
        let silent = self.watched.iter().filter_map(|(name, seen)| {
            Some(Silent {
                sighting: seen.sighting?,
                name,
                pod: seen.pod.as_ref(),
                is_holder: seen.was_held,
            })
        });
        silent.min_by_key(|silent| (silent.sighting.silent_at(), silent.name))
    }

    /// We do not get the place of a contender that has this version. It is left to its session until another one is
    /// seen.
    pub(super) fn leave_to_its_session(&mut self, name: &str, version: i32) {
        if let Some(seen) = self.watched.get_mut(name) {
            seen.sighting.take_if(|sighting| sighting.version == version);
        }
    }

    /// The client beside which the lock is not held, below the lock root `root`.
    pub(super) fn refusal(&self, root: &str) -> Option<LockError> {
        let ahead = self.ahead()?;
        let path = |name: &String| format!("{root}/{name}");
        let is_unreadable = |name: &&String| self.watched.get(*name).is_some_and(|seen| seen.is_unreadable);
        if let Some(name) = ahead.place().watch.iter().find(is_unreadable) {
            return Some(LockError::Unreadable { path: path(name) });
        }
        let stranger = ahead.strangers().first()?;
        Some(LockError::Stranger { path: path(stranger) })
    }
}

impl Seen {
    /// An answer shows its node. A node that stays without a session is no contender that could be silent. One whose name
    /// does not fit into our data is left to its session, since a takeover states that name there.
    fn look(&mut self, name: &str, node: &Node, said: ContenderData, now: BootInstant) {
        self.was_held |= said.is_held();
        self.hold = Hold::said(name, node.czxid, &said)
            .map(Box::new)
            .or(self.hold.take());
        let is_replaceable = node.is_ephemeral() && TookOver::can_name(name);
        let lease = said.lease().filter(|_| is_replaceable);
        let sighting = lease.and_then(|lease| Sighting::new(node.version, lease, now));
        let is_repeated = sighting.is_some_and(|new| self.sighting.is_some_and(|old| new.repeats(&old)));
        if !is_repeated {
            self.sighting = sighting;
        }
        self.pod = said.pod;
    }
}
