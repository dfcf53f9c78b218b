//! One direction of a TCP connection.

use std::collections::VecDeque;

use super::state::{Millis, State};

/// What happens at the receiver.
pub(super) type Delivery = Box<dyn FnOnce(&mut State) + Send>;

/// Which link; connections of clients are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LinkId {
    ToLeader(usize),
    ToFollower(usize),
    Up(u64),
    Down(u64),
}

/// What is sent arrives in order. Nothing arrives while the link is cut; TCP sends it again when
/// it is whole.
#[derive(Default)]
pub(super) struct Link {
    queue: VecDeque<(Millis, Delivery)>,
    last: Millis,
}

impl Link {
    /// Puts something on its way and returns when it arrives.
    pub(super) fn push(&mut self, arrival: Millis, delivery: Delivery) -> Millis {
        self.last = self.last.max(arrival);
        self.queue.push_back((self.last, delivery));
        self.last
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// What has arrived next.
    pub(super) fn pop(&mut self, now: Millis) -> Option<Delivery> {
        let (arrival, _) = self.queue.front()?;
        if *arrival > now {
            return None;
        }
        self.queue.pop_front().map(|(_, delivery)| delivery)
    }
}
