//! Many locks of one process, each with its own session, connection and path, and with one holder.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use lockkeeper_lock::zookeeper::ZooKeeper;
use lockkeeper_lock::{BootClock, Identity, Lock, LockOptions, Pod, Timing};
use lockkeeper_testbed::ensemble::block_on;
use lockkeeper_testbed::{Ensemble, Host};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::tally::{Reporter, Tally};

/// The default.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(15);
/// Contenders that queue, and that leave, at once. A contender that queues costs more than one that holds: with more of
/// them the search would find how many can queue at once.
const AT_ONCE: usize = 16;
/// How long all of them may take to queue, and to leave.
const PATIENCE: Duration = Duration::from_secs(90);

/// How many locks, and whether a waiter stands behind each holder.
#[derive(Clone, Copy)]
pub struct Size {
    /// Locks, with one holder each.
    pub locks: usize,
    /// A waiter behind each holder.
    pub with_waiters: bool,
}

/// What a renewal says of a pod, as in Kubernetes: the bytes of a renewal depend on it.
fn identity(index: usize) -> Identity {
    Identity {
        pod: Some(Pod {
            namespace: "shop".to_owned(),
            name: format!("report-5dc966b474-{index:05}"),
            uid: uuid::Uuid::new_v4().to_string(),
            node: "node-1".to_owned(),
        }),
        host: None,
        revision: Some("5dc966b474".to_owned()),
    }
}

/// Makes the locks on the host `clients`, and calls `measure` while they are held. Ends them, and their sessions, after
/// it.
///
/// Locks that are not held in time stay as they are, and [`Tally::end`] counts them.
pub fn beside<T>(
    ensemble: &Ensemble,
    clients: &Host,
    size: Size,
    measure: impl FnOnce(&Tally) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let tally = Arc::new(Tally::default());
    let (ready, is_ready) = mpsc::channel();
    let (end, ended) = oneshot::channel();
    let connect = ensemble.connect_string();
    std::thread::scope(|scope| {
        let crowd = scope.spawn(|| block_on(clients, || hold(&connect, size, &tally, ready, ended)));
        let measured = match is_ready.recv() {
            Ok(()) => measure(&tally),
            Err(mpsc::RecvError) => Err(anyhow::anyhow!("the locks were not made")),
        };
        drop(end);
        crowd.join().expect("no panic")??;
        measured
    })
}

async fn hold(
    connect: &str,
    size: Size,
    tally: &Arc<Tally>,
    ready: mpsc::Sender<()>,
    ended: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    // Paths of their own: what an earlier crowd has left is no part of this one.
    static CROWDS: AtomicUsize = AtomicUsize::new(0);
    let crowd = CROWDS.fetch_add(1, Ordering::Relaxed);
    let timing = Timing::new(SESSION_TIMEOUT);
    let make = |index: usize| {
        let reporter = Arc::new(Reporter::new(tally));
        let ensemble = ZooKeeper::new(connect.parse().expect("a list of servers"), SESSION_TIMEOUT);
        let root = format!("/lockkeeper/locks/shop/report-{crowd}-{index:05}");
        let options = LockOptions {
            identity: identity(index),
            observer: Some(reporter.clone()),
            ..LockOptions::new(root, timing)
        };
        (Lock::new(ensemble, BootClock, options), reporter)
    };
    let holders: Vec<_> = (0..size.locks).map(make).collect();
    let waiters: Vec<_> = (0..if size.with_waiters { size.locks } else { 0 })
        .map(make)
        .collect();
    // Their renewals do not come all at once: the first of them are spread over an interval.
    let gap = timing.interval() / u32::try_from(size.locks.max(1))?;
    let queueing = async {
        stream::iter(&holders)
            .then(|holder| async move {
                tokio::time::sleep(gap).await;
                holder
            })
            .map(|(lock, reporter)| async move {
                if lock.acquire().await.is_ok() {
                    let _ = reporter.holder.set(lock.view());
                    tally.holds(lock.view());
                }
            })
            .buffer_unordered(AT_ONCE)
            .collect::<()>()
            .await;
        stream::iter(&waiters)
            .map(|(lock, _)| placed(lock))
            .buffer_unordered(AT_ONCE)
            .collect::<()>()
            .await;
    };
    let _ = timeout(PATIENCE, queueing).await;
    // Until renewals prove the leases, and not the connections any more.
    tokio::time::sleep(timing.proven_age() + timing.interval()).await;
    ready.send(())?;
    let _ = ended.await;
    let leaving = async {
        for locks in [waiters, holders] {
            stream::iter(locks)
                .map(|(lock, _)| lock.close())
                .buffer_unordered(AT_ONCE)
                .map(drop)
                .collect::<()>()
                .await;
        }
    };
    let _ = timeout(PATIENCE, leaving).await;
    Ok(())
}

/// Waits until the contender knows whom it waits for.
async fn placed(lock: &Lock<BootClock>) {
    let mut view = lock.view();
    if lock.contend().await.is_err() {
        return;
    }
    while view.status().position.is_none() && view.changed().await.is_ok() {}
}
