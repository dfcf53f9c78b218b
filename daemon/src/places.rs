//! Places for connections, and the rules by which connections give way when all places are taken.
//!
//! If a server stops accepting when it is full, a client can block it with connections that send nothing. This one
//! always accepts, and another connection gives way:
//!
//! 1. a connection that has sent no whole request for a while, or else one of the idle connections of a source with
//!    many; in both cases the oldest one of the source that has the most of them;
//! 2. otherwise a connection of a source that has more than half of all places: one whose request was answered, then
//!    one that waits for an answer, then a new one;
//! 3. otherwise one of these in the same order, the oldest one of the source that has the most.
//!
//! So one source cannot take the places of the others, however many connections it opens and requests it sends. A
//! source with many places because of many requests does not lose them to connections that send nothing. A new
//! connection has time for its request, however many others arrive.
//!
//! The second rule also applies to new connections of that source itself: a flood displaces its own connections.
//!
//! Memory for the data that connections send is shared in the same way.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use tokio::sync::Notify;

/// How long a silent connection keeps its place before those with requests: a TLS handshake and the way of a request,
/// on a busy machine.
const GRACE: Duration = Duration::from_millis(100);

/// An API server keeps two idle connections (Go's `MaxIdleConnsPerHost`). A source with more idle ones than this hoards
/// them.
const RESTING: usize = 16;

/// A limit of open connections, and of memory for all of them. A clone shares the same places.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(IpAddr);

/// The progress of a connection. Those with the first standing give way first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It has never sent a whole request.
    Silent,
    /// Its last request was answered.
    Idle,
    /// It waits for an answer.
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
    /// Those that stay, in the order in which they would give way. A flood needs it at each connection.
    staying: BTreeMap<(Standing, Source), BTreeSet<u64>>,
    /// The number of them by source.
    of_source: HashMap<Source, usize>,
    count: usize,
    next: u64,
}

#[derive(Debug)]
struct Seat {
    source: Source,
    since: BootInstant,
    standing: Standing,
    /// Memory that is reserved for it.
    bytes: usize,
    taken: Arc<Notify>,
    /// It has to give way. Its memory is free when it has gone.
    is_leaving: bool,
}

// === impl Source ===

impl Source {
    /// All clients of a Unix socket: they are on this machine.
    pub(crate) const LOCAL: Self = Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    /// An IPv6 host has a whole network of 2^64 addresses (RFC 4291, 2.5.1), so the network counts as the source.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
            v4 => v4,
        })
    }
}

// === impl Places ===

impl Places {
    /// `limit` places, without memory for data.
    pub(crate) fn new(limit: usize) -> Self {
        Self::with_memory(limit, 0)
    }

    /// `limit` places, with `memory` bytes for all together.
    pub fn with_memory(limit: usize, memory: usize) -> Self {
        Self {
            limit,
            memory,
            shared: Arc::default(),
        }
    }

    /// A place for a new connection. If none is free, another connection loses its place.
    pub(crate) fn take(&self, source: Source) -> Place {
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
    pub fn source(&self) -> Source {
        self.source
    }

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

    /// Completes when another connection gets the place, or its memory: then this connection has to be closed.
    pub async fn is_taken(&self) {
        self.taken.notified().await;
    }

    /// Waits until this connection may use `bytes` more. If they are not free, connections of a source that has more
    /// than ours lose their places, first those without a whole request.
    ///
    /// Never completes for more than the whole memory.
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

    /// Frees all its bytes.
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

    /// Takes it out of the queues; returns whether it was among those that stay.
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

    /// The connection that gives way to a new one.
    fn first_to_go(&self, limit: usize, now: BootInstant) -> Option<u64> {
        // Silent connections come last: those past their grace have given way already.
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

    /// The oldest connection with this standing, of the source that has the most of them. Only sources with `is_such`
    /// queues count.
    fn first_of(&self, wanted: Standing, is_such: impl Fn(&BTreeSet<u64>) -> bool) -> Option<u64> {
        let queues = self
            .staying
            .iter()
            .filter(|((standing, _), queue)| *standing == wanted && is_such(queue));
        let (_, queue) = queues.max_by_key(|(_, queue)| (queue.len(), Reverse(queue.first())))?;
        queue.first().copied()
    }

    /// Whether the seat has got the bytes. If not, some may become free soon.
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

    /// The connection that has to free memory for one that wants `bytes` more.
    fn first_to_free(&self, number: u64, bytes: usize) -> Option<u64> {
        let own = self.seats.get(&number)?.source;
        let mut of_source = HashMap::<_, usize>::new();
        for (_, seat) in self.all_staying() {
            *of_source.entry(seat.source).or_default() += seat.bytes;
        }
        let share = |source: Source| of_source.get(&source).copied().unwrap_or_default();
        let wanted = share(own) + bytes;
        let gives = |seat: &Seat| {
            // Within one source, a connection with an incomplete request gives way to the one that needs memory.
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
