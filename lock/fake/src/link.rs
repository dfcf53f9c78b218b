//! One direction of a TCP connection.

use std::collections::VecDeque;

use crate::time::Millis;

/// Identifies a link; connections of clients are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LinkId {
    ToLeader(usize),
    ToFollower(usize),
    Up(u64),
    Down(u64),
}

/// Messages arrive in order. None arrives while the link is cut; TCP sends them again when it is whole.
pub(crate) struct Link<Delivery> {
    queue: VecDeque<(Millis, Delivery)>,
    last: Millis,
}

impl<Delivery> Default for Link<Delivery> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            last: 0,
        }
    }
}

impl<Delivery> Link<Delivery> {
    /// Sends a message and returns when it arrives.
    pub(crate) fn push(&mut self, arrival: Millis, delivery: Delivery) -> Millis {
        self.last = self.last.max(arrival);
        self.queue.push_back((self.last, delivery));
        self.last
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The next message that has arrived.
    pub(crate) fn pop(&mut self, now: Millis) -> Option<Delivery> {
        let (arrival, _) = self.queue.front()?;
        if *arrival > now {
            return None;
        }
        self.queue.pop_front().map(|(_, delivery)| delivery)
    }
}
