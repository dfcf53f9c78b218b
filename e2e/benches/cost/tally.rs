//! What the locks of a crowd report while they are held.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use lockkeeper_lock::{BootClock, BootInstant, LockView, Observer};

/// The reports of all locks: of renewals since [`Tally::begin`], of connections since the first lock was made.
#[derive(Debug, Default)]
pub struct Tally {
    reports: Mutex<Reports>,
    holders: Mutex<Vec<LockView<BootClock>>>,
}

#[derive(Debug, Default)]
struct Reports {
    renewals: Vec<Duration>,
    least_left: Option<Duration>,
    reconnections: usize,
}

/// How the locks fared.
pub struct Fate {
    /// From sending a renewal to its acknowledgement, of holders and waiters.
    pub p50: Duration,
    /// The same.
    pub p99: Duration,
    /// The least time that a holder had until its deadline.
    pub least_left: Duration,
    /// Locks that were never held: their contenders had no place in the queue in time.
    pub missing: usize,
    /// Locks that their holder does not hold any more.
    pub lost: usize,
    /// How many for which reason.
    pub reasons: BTreeMap<&'static str, usize>,
    /// Connections that were made anew, also while the contenders queued.
    pub reconnections: usize,
}

impl Tally {
    /// Forgets the renewals so far.
    pub fn begin(&self) {
        let mut reports = lock(&self.reports);
        reports.renewals.clear();
        reports.least_left = None;
    }

    /// The reports since then, and the holders as they are now, of `locks` locks.
    pub fn end(&self, locks: usize) -> Fate {
        let mut reports = std::mem::take(&mut *lock(&self.reports));
        let holders = lock(&self.holders);
        let now = BootInstant::now();
        let held = holders.iter().filter(|view| view.is_held());
        // A holder whose renewals are not acknowledged reports nothing.
        let left = holders.iter().map(|view| left(view, now).unwrap_or_default());
        let least_left = left.chain(reports.least_left).min();
        let mut reasons = BTreeMap::new();
        for reason in holders.iter().filter_map(|view| view.status().loss) {
            *reasons.entry(reason.name()).or_insert(0) += 1;
        }
        reports.renewals.sort_unstable();
        let at = |percent: usize| {
            let at = (reports.renewals.len() * percent).div_ceil(100).max(1) - 1;
            reports.renewals.get(at).copied().unwrap_or_default()
        };
        Fate {
            p50: at(50),
            p99: at(99),
            least_left: least_left.unwrap_or_default(),
            missing: locks - holders.len(),
            lost: holders.len() - held.count(),
            reasons,
            reconnections: reports.reconnections,
        }
    }

    /// A lock is held, and counts as a holder from now on.
    pub fn holds(&self, view: LockView<BootClock>) {
        lock(&self.holders).push(view);
    }
}

/// Time until the deadline.
fn left(view: &LockView<BootClock>, now: BootInstant) -> Option<Duration> {
    let receiver = view.receiver();
    let status = receiver.borrow();
    status
        .is_held(now)
        .then(|| status.deadline().map(|deadline| deadline - now))?
}

#[derive(Debug)]
pub struct Reporter {
    tally: Arc<Tally>,
    is_connected: AtomicBool,
    /// Of a holder, once it holds.
    pub holder: OnceLock<LockView<BootClock>>,
}

impl Reporter {
    /// For a lock that does not hold yet.
    pub fn new(tally: &Arc<Tally>) -> Self {
        Self {
            tally: Arc::clone(tally),
            is_connected: AtomicBool::new(false),
            holder: OnceLock::new(),
        }
    }
}

impl Observer for Reporter {
    fn renewed(&self, took: Duration) {
        // The status is still that from before this renewal: it has the deadline that the renewal moves.
        let left = self.holder.get().and_then(|view| left(view, BootInstant::now()));
        let mut reports = lock(&self.tally.reports);
        reports.renewals.push(took);
        reports.least_left = match (reports.least_left, left) {
            (Some(least), Some(left)) => Some(least.min(left)),
            (least, left) => least.or(left),
        };
    }

    fn session_moved(&self) {}

    // Then the holder has lost the lock, and is counted as such.
    fn took_over(&self) {}

    fn connected(&self) {
        if self.is_connected.swap(true, Ordering::Relaxed) {
            lock(&self.tally.reports).reconnections += 1;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
