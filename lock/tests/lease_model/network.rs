//! Links and threads: everything in this model that may be late, and the order that it keeps.

use std::collections::VecDeque;

/// True time, in nanoseconds. The leader's clock runs with it.
pub type Time = u64;

pub const MS: Time = 1_000_000;

pub const NEVER: Time = Time::MAX;

/// One direction of a TCP connection: messages arrive in order, late, or not at all. A cut that heals delays them (TCP
/// sends again); a cut that does not heal loses those on their way.
pub struct Link<M> {
    queue: VecDeque<(Time, M)>,
    last_arrival: Time,
    cut_until: Time,
}

impl<M> Default for Link<M> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            last_arrival: 0,
            cut_until: 0,
        }
    }
}

impl<M> Link<M> {
    /// Sends `message` and returns when to look for it.
    pub fn send(&mut self, now: Time, delay: Time, message: M) -> Time {
        self.last_arrival = self.last_arrival.max(now + delay);
        self.queue.push_back((self.last_arrival, message));
        self.last_arrival
    }

    /// Delays all arrivals until `until`.
    pub fn cut(&mut self, until: Time) {
        self.cut_until = self.cut_until.max(until);
    }

    /// The next message that has arrived, or when to look again.
    pub fn receive(&mut self, now: Time) -> Result<M, Option<Time>> {
        match self.queue.front() {
            Some(_) if self.cut_until == NEVER => Err(None),
            Some(_) if now < self.cut_until => Err(Some(self.cut_until)),
            // A message that is still on its way has an event of its own.
            Some((arrival, _)) if *arrival <= now => Ok(self.queue.pop_front().expect("there is a front").1),
            _ => Err(None),
        }
    }
}

/// A thread of a server: does its work in order, and nothing while it is paused.
pub struct Thread<W> {
    queue: VecDeque<W>,
    paused_until: Time,
}

impl<W> Default for Thread<W> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            paused_until: 0,
        }
    }
}

impl<W> Thread<W> {
    /// Stops the thread until `until`.
    pub fn pause(&mut self, until: Time) {
        self.paused_until = self.paused_until.max(until);
    }

    /// When the thread can work again, if it cannot now.
    pub fn paused(&self, now: Time) -> Option<Time> {
        (now < self.paused_until).then_some(self.paused_until)
    }

    /// Queues work for the thread.
    pub fn push(&mut self, work: W) {
        self.queue.push_back(work);
    }

    /// Queues work for the thread before all other work.
    pub fn push_first(&mut self, work: W) {
        self.queue.push_front(work);
    }

    /// The next work, or when to look again.
    pub fn next(&mut self, now: Time) -> Result<W, Option<Time>> {
        match self.paused(now) {
            Some(until) if !self.queue.is_empty() => Err(Some(until)),
            Some(_) => Err(None),
            None => self.queue.pop_front().ok_or(None),
        }
    }
}
