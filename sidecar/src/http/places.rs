//! Places for connections, and who gives way when all are taken.
//!
//! A server that stops to accept while it is full can be shut by a client that opens connections and says
//! nothing. This one always accepts, and another connection gives way:
//!
//! 1. one that has said nothing for a while, and then one of many that rest: the oldest one of the source that has the
//!    most of them;
//! 2. else one of a source that has more than half of all places: one whose request was answered, then one that is owed
//!    an answer, then one that has just come;
//! 3. else one of these in the same order, the oldest one of the source that has the most.
//!
//! So one source cannot take the places of the others, whatever it opens and asks; one that has many places since it has
//! much to ask does not lose them to those who ask nothing; and who has just come has the time to ask, however many come.
//!
//! The second rule is also for newcomers of that source itself: a flood displaces its own connections.
//!
//! Memory for what connections send is shared in the same way.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use tokio::sync::Notify;

/// How long a connection that says nothing keeps its place before those that have asked: a handshake of TLS and the
/// way of a request, on a busy machine.
const GRACE: Duration = Duration::from_millis(100);

/// An API server lets two connections rest (Go's `MaxIdleConnsPerHost`). A source with more than so many hoards them.
const RESTING: usize = 16;

/// So many connections may be open at once, and may have so much memory. A clone has the same places.
#[derive(Clone, Debug)]
pub struct Places {
    limit: usize,
    memory: usize,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    table: Mutex<Table>,
    freed: Notify,
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(IpAddr);

/// How far a connection is. The first that occurs gives way first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It has never sent a whole request.
    Silent,
    /// Its last request was answered.
    Idle,
    /// It is owed an answer.
    Asking,
}

/// A connection's place; free when it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    number: u64,
    source: Source,
    taken: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Table {
    /// By number, so the oldest first.
    seats: BTreeMap<u64, Seat>,
    /// Those that stay, in the order in which they would go. A flood asks for it at each connection.
    staying: BTreeMap<(Standing, Source), BTreeSet<u64>>,
    /// How many of them each source has.
    of_source: HashMap<Source, usize>,
    count: usize,
    next: u64,
}

#[derive(Debug)]
struct Seat {
    source: Source,
    since: BootInstant,
    standing: Standing,
    /// Memory that is kept for it.
    bytes: usize,
    taken: Arc<Notify>,
    /// It was told to go. Its memory is free when it has.
    is_leaving: bool,
}

// === impl Source ===

impl Source {
    /// Clients of a Unix socket: they are all on this machine.
    pub const LOCAL: Self = Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    /// An IPv6 host has a whole network of 2^64 addresses (RFC 4291, 2.5.1), so the network is the source.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
            v4 => v4,
        })
    }
}

// === impl Places ===

impl Places {
    /// So many, without memory for what they send.
    pub fn new(limit: usize) -> Self {
        Self::with_memory(limit, 0)
    }

    /// So many, and so many bytes for all together.
    pub fn with_memory(limit: usize, memory: usize) -> Self {
        Self {
            limit,
            memory,
            shared: Arc::default(),
        }
    }

    /// A place for a newcomer. Where none is free, another connection loses its own.
    pub fn take(&self, source: Source) -> Place {
        self.take_at(source, BootInstant::now())
    }

    fn take_at(&self, source: Source, now: BootInstant) -> Place {
        let mut table = self.table();
        if table.count >= self.limit
            && let Some(number) = table.first_to_go(self.limit, now)
        {
            table.dismiss(number);
        }
        let number = table.next;
        table.next += 1;
        let taken = Arc::new(Notify::new());
        table.seats.insert(
            number,
            Seat {
                source,
                since: now,
                standing: Standing::Silent,
                bytes: 0,
                taken: Arc::clone(&taken),
                is_leaving: false,
            },
        );
        table.queue(number);
        Place {
            places: self.clone(),
            number,
            source,
            taken,
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.shared.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Place ===

impl Place {
    /// Where its connection comes from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Says how far the connection is now.
    pub fn stand(&self, standing: Standing) {
        let mut table = self.places.table();
        let is_queued = table.unqueue(self.number);
        if let Some(seat) = table.seats.get_mut(&self.number) {
            seat.standing = standing;
        }
        if is_queued {
            table.queue(self.number);
        }
    }

    /// Completes when another has the place, or its memory: the connection has to be closed.
    pub async fn is_taken(&self) {
        self.taken.notified().await;
    }

    /// Waits until so many more bytes may be used for this connection. Where they are not free, connections
    /// of a source that has more than ours lose their places, first those without a whole request.
    ///
    /// Never completes for more than there is.
    pub async fn hold(&self, bytes: usize) {
        loop {
            let mut freed = std::pin::pin!(self.places.shared.freed.notified());
            freed.as_mut().enable();
            if self.places.table().hold(self.number, bytes, self.places.memory) {
                return;
            }
            freed.await;
        }
    }

    /// Gives all its bytes back.
    pub fn let_go(&self) {
        if let Some(seat) = self.places.table().seats.get_mut(&self.number) {
            seat.bytes = 0;
        }
        self.places.shared.freed.notify_waiters();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.places.table();
        table.unqueue(self.number);
        table.seats.remove(&self.number);
        drop(table);
        self.places.shared.freed.notify_waiters();
    }
}

// === impl Table ===

impl Table {
    fn all_staying(&self) -> impl Iterator<Item = (&u64, &Seat)> {
        self.seats.iter().filter(|(_, seat)| !seat.is_leaving)
    }

    fn queue(&mut self, number: u64) {
        if let Some(seat) = self.seats.get(&number) {
            let queue = self.staying.entry((seat.standing, seat.source)).or_default();
            queue.insert(number);
            *self.of_source.entry(seat.source).or_default() += 1;
            self.count += 1;
        }
    }

    /// Whether it was among those that stay.
    fn unqueue(&mut self, number: u64) -> bool {
        let Some(seat) = self.seats.get(&number).filter(|seat| !seat.is_leaving) else {
            return false;
        };
        let key = (seat.standing, seat.source);
        if let Some(queue) = self.staying.get_mut(&key) {
            queue.remove(&number);
            if queue.is_empty() {
                self.staying.remove(&key);
            }
        }
        if let Some(count) = self.of_source.get_mut(&key.1) {
            *count -= 1;
            if *count == 0 {
                self.of_source.remove(&key.1);
            }
        }
        self.count -= 1;
        true
    }

    fn dismiss(&mut self, number: u64) {
        self.unqueue(number);
        if let Some(seat) = self.seats.get_mut(&number) {
            seat.is_leaving = true;
            seat.taken.notify_one();
        }
    }

    /// Who gives way to a newcomer.
    fn first_to_go(&self, limit: usize, now: BootInstant) -> Option<u64> {
        // Who has just come has its grace. Those who have had it have gone before.
        const ORDER: [Standing; 3] = [Standing::Idle, Standing::Asking, Standing::Silent];
        let is_late = |queue: &BTreeSet<u64>| {
            let oldest = queue.first().and_then(|oldest| self.seats.get(oldest));
            oldest.is_some_and(|seat| now.saturating_since(seat.since) >= GRACE)
        };
        let hoards = |queue: &BTreeSet<u64>| queue.len() > RESTING;
        let greedy = || {
            let (&greedy, &count) = self.of_source.iter().max_by_key(|(_, count)| **count)?;
            let queue = |standing: &Standing| self.staying.get(&(*standing, greedy));
            let queue = ORDER.iter().find_map(queue)?;
            (count > limit.div_ceil(2)).then(|| queue.first().copied())?
        };
        self.first_of(Standing::Silent, is_late)
            .or_else(|| self.first_of(Standing::Idle, hoards))
            .or_else(greedy)
            .or_else(|| {
                ORDER
                    .iter()
                    .find_map(|standing| self.first_of(*standing, |_| true))
            })
    }

    /// The oldest of this standing, of the source that has the most of them; of sources with such a queue alone.
    fn first_of(&self, wanted: Standing, is_such: impl Fn(&BTreeSet<u64>) -> bool) -> Option<u64> {
        let queues = self
            .staying
            .iter()
            .filter(|((standing, _), queue)| *standing == wanted && is_such(queue));
        let (_, queue) = queues.max_by_key(|(_, queue)| (queue.len(), Reverse(queue.first())))?;
        queue.first().copied()
    }

    /// Whether a seat has so many more bytes now. If not, some may become free soon.
    fn hold(&mut self, number: u64, bytes: usize, memory: usize) -> bool {
        let held: usize = self.seats.values().map(|seat| seat.bytes).sum();
        if held + bytes <= memory {
            if let Some(seat) = self.seats.get_mut(&number) {
                seat.bytes += bytes;
            }
            return true;
        }
        let staying = |table: &Self| table.all_staying().map(|(_, seat)| seat.bytes).sum::<usize>();
        while staying(self) + bytes > memory {
            let Some(other) = self.first_to_free(number, bytes) else {
                break;
            };
            self.dismiss(other);
        }
        false
    }

    /// Whose memory a connection gets that wants so many bytes.
    fn first_to_free(&self, number: u64, bytes: usize) -> Option<u64> {
        let own = self.seats.get(&number)?.source;
        let mut of_source = HashMap::<_, usize>::new();
        for (_, seat) in self.all_staying() {
            *of_source.entry(seat.source).or_default() += seat.bytes;
        }
        let share = |source: Source| of_source.get(&source).copied().unwrap_or_default();
        let wanted = share(own) + bytes;
        let gives = |seat: &Seat| {
            // Among themselves, those who send slowly give way to those who come.
            let is_slow = seat.source == own && seat.standing == Standing::Silent;
            is_slow || share(seat.source) > wanted
        };
        let others = self
            .all_staying()
            .filter(|(other, seat)| **other != number && seat.bytes > 0 && gives(seat));
        others
            .min_by_key(|(_, seat)| (seat.standing, Reverse(share(seat.source))))
            .map(|(other, _)| *other)
    }
}

#[cfg(test)]
mod tests;
