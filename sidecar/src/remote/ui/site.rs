//! The page, and all that is known of its locks. All of it is on one thread.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lockkeeper_daemon::exit::Failure;
use lockkeeper_daemon::page::Board;
use lockkeeper_daemon::sentence::few;
use lockkeeper_daemon::table::cut;
use lockkeeper_lock::BootInstant;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::super::queue::Queue;
use super::super::show::now;
use super::past::{Moments, Past};
use super::renewals::Renewals;
use super::status::{has_lease, holding, row};

/// Locks that are read at once; each asks up to 32 questions at once.
const READ_AT_ONCE: usize = 8;

/// Most holders of a lock whose holds are remembered.
const MOST_HOLDERS: usize = 1_000;

/// Longest sentence about what is left out, in characters.
const LONGEST_SENTENCE: usize = 2_000;

/// The page, and all that is known of its locks.
pub(super) struct Site {
    board: Arc<Board>,
    pub(super) renewals: Renewals,
    /// The servers, for a command that a user may paste.
    connect: String,
    places: Semaphore,
    known: RefCell<BTreeMap<String, Known>>,
    /// The next lock's.
    number: Cell<u64>,
    /// What is looked at over this connection.
    round: RefCell<Round>,
    /// A lock was read for the first time, or is none.
    progress: Notify,
}

/// A lock on the page.
struct Known {
    number: u64,
    past: Past,
    /// As it was read last.
    queue: Queue,
}

#[derive(Default)]
struct Round {
    followed: BTreeSet<String>,
    /// Those that were not read yet.
    unread: BTreeSet<String>,
    /// Those that cannot be read, and why.
    unreadable: BTreeMap<String, String>,
    /// What the last search could not look at, and why.
    unsearched: Vec<String>,
    is_searched: bool,
}

impl Site {
    pub(super) fn new(board: Arc<Board>, renewals: Renewals, connect: String) -> Self {
        Self {
            board,
            renewals,
            connect,
            places: Semaphore::new(READ_AT_ONCE),
            known: RefCell::default(),
            number: Cell::new(0),
            round: RefCell::default(),
            progress: Notify::new(),
        }
    }

    /// A new connection: what is looked at over it is forgotten.
    pub(super) fn begin(&self) {
        self.round.take();
    }

    /// How many nodes were found and have not been read yet.
    pub(super) fn unread(&self) -> usize {
        self.round.borrow().unread.len()
    }

    /// Waits until a node was read for the first time.
    pub(super) async fn progress(&self) {
        self.progress.notified().await;
    }

    /// Waits for its turn to read a lock.
    pub(super) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.acquire().await.ok()
    }

    /// Shows a lock as it was read just now. Returns the number under which its renewals are noted.
    pub(super) fn show(&self, queue: Queue, moments: &Moments) -> u64 {
        let path = queue.lock.clone();
        let mut known = self.known.borrow_mut();
        let lock = known.entry(path.clone()).or_insert_with(|| Known {
            number: self.number.replace(self.number.get() + 1),
            past: Past::default(),
            queue: Queue::gone(&path),
        });
        let holders: Vec<_> = holding(&queue).take(MOST_HOLDERS).collect();
        lock.past.see(&holders, moments, now());
        let leases = holders.iter().filter(|one| has_lease(one));
        self.renewals.hold(
            lock.number,
            leases.map(|one| one.contender.as_str()),
            BootInstant::now(),
        );
        lock.queue = queue;
        self.board.set(
            path.clone(),
            row(&lock.queue, &lock.past, lock.number, &self.connect, None),
        );
        let number = lock.number;
        drop(known);
        self.is_readable(&path);
        self.has_read(&path);
        number
    }

    /// A lock on the page cannot be read any more, for this reason.
    pub(super) fn doubt(&self, path: &str, why: &str) {
        if let Some(lock) = self.known.borrow_mut().get_mut(path) {
            self.lose_one(path, lock, why);
        }
    }

    /// Nothing is known any more, for this reason, until there is another connection.
    pub(super) fn lose(&self, why: &str) {
        for (path, lock) in self.known.borrow_mut().iter_mut() {
            self.lose_one(path, lock, why);
        }
        self.board.trouble(why.to_owned());
    }

    fn lose_one(&self, path: &str, lock: &mut Known, why: &str) {
        lock.past.lose(now());
        let doubt = Some(cut(why, LONGEST_SENTENCE));
        self.board.set(
            path.to_owned(),
            row(&lock.queue, &lock.past, lock.number, &self.connect, doubt),
        );
    }

    /// This node is no lock, or no more.
    pub(super) fn forget(&self, path: &str) {
        self.round.borrow_mut().followed.remove(path);
        self.known.borrow_mut().remove(path);
        self.board.remove(path);
        self.is_readable(path);
        self.has_read(path);
    }

    pub(super) fn cannot_read(&self, path: &str, why: Failure) {
        {
            let mut round = self.round.borrow_mut();
            round.followed.remove(path);
            round.unreadable.insert(path.to_owned(), why.sentence.clone());
        }
        self.tell_left_out();
        self.doubt(path, &why.sentence);
        self.has_read(path);
    }

    fn tell_left_out(&self) {
        let round = self.round.borrow();
        let all = round.unsearched.iter().chain(round.unreadable.values());
        let said = cut(&few(all), LONGEST_SENTENCE);
        self.board.left_out(Some(said).filter(|said| !said.is_empty()));
    }

    /// A node can be read, or is none of a lock.
    fn is_readable(&self, path: &str) {
        let was_unreadable = self.round.borrow_mut().unreadable.remove(path).is_some();
        if was_unreadable {
            self.tell_left_out();
        }
    }

    fn has_read(&self, path: &str) {
        let is_first = self.round.borrow_mut().unread.remove(path);
        if is_first {
            self.progress.notify_one();
            self.check_read();
        }
    }

    fn check_read(&self) {
        let round = self.round.borrow();
        if round.is_searched && round.unread.is_empty() {
            self.board.is_read();
        }
    }
}

/// For the search.
impl Site {
    /// How many locks are on the page.
    pub(super) fn locks(&self) -> usize {
        self.known.borrow().len()
    }

    pub(super) fn is_followed(&self, path: &str) -> bool {
        self.round.borrow().followed.contains(path)
    }

    pub(super) fn is_unreadable(&self, path: &str) -> bool {
        self.round.borrow().unreadable.contains_key(path)
    }

    /// A node that may be a lock is read next.
    pub(super) fn start(&self, path: &str) {
        let mut round = self.round.borrow_mut();
        round.followed.insert(path.to_owned());
        round.unread.insert(path.to_owned());
    }

    /// Only these nodes match. Those that went while nobody looked leave the page.
    pub(super) fn keep(&self, paths: &BTreeSet<String>) {
        let mut round = self.round.borrow_mut();
        round.unreadable.retain(|path, _| paths.contains(path));
        self.known.borrow_mut().retain(|path, _| {
            let stays = paths.contains(path) || round.followed.contains(path);
            if !stays {
                self.board.remove(path);
            }
            stays
        });
    }

    /// A search is over, and could not look at these nodes.
    pub(super) fn searched(&self, left_out: Vec<String>) {
        {
            let mut round = self.round.borrow_mut();
            round.is_searched = true;
            round.unsearched = left_out;
        }
        self.tell_left_out();
        self.check_read();
    }
}
