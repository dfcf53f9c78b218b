//! `lockkeeper watch`: a lock, and each change of its queue.

use std::time::Duration;

use lockkeeper_daemon::exit::{self, Exit, Failure};
use lockkeeper_lock::BootInstant;
use zookeeper_client as zk;

use super::ensemble::{Ensemble, failure};
use super::queue::{self, Depth, Queue};
use super::{missing, show};
use crate::args::{EnsembleArgs, OutputFormat, WatchArgs};

/// Least time between two readings: contenders may renew many times a second, and each renewal changes a node.
const LEAST: Duration = Duration::from_millis(200);

/// Longest time between two readings after a change.
const MOST: Duration = Duration::from_secs(5);

/// And so many times as long as the last reading took, so that a long queue costs the ensemble a tenth of its time.
const SHARE: u32 = 10;

/// After this time the queue is read without a change, too: servers tell nothing of nodes that we may not read
/// (ZOOKEEPER-4799, from 3.8.4 and 3.9.2 on).
pub(super) const UNTOLD: Duration = Duration::from_secs(10);

/// Time between two attempts to connect after a connection was lost.
const AGAIN: Duration = Duration::from_secs(1);

/// Time from the beginning of a change to the next reading, after one that took this long.
pub(super) fn pause(took: Duration) -> Duration {
    (took * SHARE).clamp(LEAST, MOST)
}

/// Shows what is new.
struct Printer<P> {
    print: P,
    output: OutputFormat,
    last: Option<Queue>,
}

/// See [`super::watch()`].
pub(super) async fn watch(
    args: WatchArgs,
    print: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let lock = args.lock.to_string();
    let mut printer = Printer {
        print,
        output: args.output.output,
        last: None,
    };
    let mut ensemble = Ensemble::connect(args.ensemble.clone()).await?;
    // A misspelt lock, unlike one that is deleted later.
    let cannot_read = |error| failure(&error, &format!("cannot read {lock}"));
    if ensemble.node(&lock, 0).await.map_err(cannot_read)?.is_none() {
        return Err(missing(&lock));
    }
    loop {
        let problem = match Changes::of(&ensemble, &lock).await {
            Ok(mut changes) => follow(&ensemble, &lock, &mut changes, &mut printer).await?,
            Err(failure) => Some(failure),
        };
        if let Some(failure) = problem {
            if ensemble.is_intact() {
                return Err(failure);
            }
            exit::tell(&failure.sentence);
        }
        exit::tell("connecting to the ensemble again; changes meanwhile are not shown one by one");
        ensemble = connect_again(&args.ensemble).await?;
    }
}

/// Shows each change until the connection is lost, or the queue cannot be read, and why. What `print` returns is an error.
async fn follow<P: FnMut(&str) -> Result<(), Failure>>(
    ensemble: &Ensemble,
    lock: &str,
    changes: &mut Changes<'_>,
    printer: &mut Printer<P>,
) -> Result<Option<Failure>, Failure> {
    while changes.are_complete() {
        let begun = BootInstant::now();
        match queue::read(ensemble, lock, Depth::All).await {
            Ok(queue) => printer.show(queue.unwrap_or_else(|| Queue::gone(lock)))?,
            Err(failure) => return Ok(Some(failure)),
        }
        changes.next(begun).await;
    }
    Ok(None)
}

/// Connects until it succeeds.
///
/// # Errors
/// When the ensemble refuses us for good.
pub(super) async fn connect_again(args: &EnsembleArgs) -> Result<Ensemble, Failure> {
    loop {
        tokio::time::sleep(AGAIN).await;
        match Ensemble::connect(args.clone()).await {
            Err(failure) if failure.exit != Exit::Refused => {}
            connected => return connected,
        }
    }
}

impl<P: FnMut(&str) -> Result<(), Failure>> Printer<P> {
    /// Prints the queue, unless only renewals are new.
    fn show(&mut self, queue: Queue) -> Result<(), Failure> {
        let queue_without_renewals = queue.without_renewals();
        if self.last.as_ref() == Some(&queue_without_renewals) {
            return Ok(());
        }
        self.last = Some(queue_without_renewals);
        let text = match self.output {
            OutputFormat::Text => format!("{}  {}\n", show::time_of_day(), show::line(&queue)),
            OutputFormat::Json => show::json(&queue),
        };
        (self.print)(&text)
    }
}

/// The changes of a lock root and of what is below it, over one connection.
pub(super) struct Changes<'a> {
    ensemble: &'a Ensemble,
    watcher: zk::PersistentWatcher,
}

impl<'a> Changes<'a> {
    /// From now on.
    pub(super) async fn of(ensemble: &'a Ensemble, lock: &str) -> Result<Self, Failure> {
        let watcher = ensemble.watch(lock).await?;
        Ok(Self { ensemble, watcher })
    }

    /// Whether none was missed: the connection was never interrupted.
    pub(super) fn are_complete(&self) -> bool {
        self.ensemble.is_intact()
    }

    /// Waits for a change, or as long as changes may stay untold; then for a while, in which further changes come to the
    /// same reading. `begun` is when the last reading began. Ends early with the connection.
    pub(super) async fn next(&mut self, begun: BootInstant) {
        let took = BootInstant::now() - begun;
        let closed = self.ensemble.connection.closed();
        tokio::pin!(closed);
        tokio::select! {
            biased;
            _ = &mut closed => return,
            event = self.watcher.changed() => if event.event_type == zk::EventType::Session { return },
            () = tokio::time::sleep(UNTOLD) => {}
        }
        let pause = tokio::time::sleep(pause(took));
        tokio::pin!(pause);
        loop {
            tokio::select! {
                biased;
                _ = &mut closed => return,
                () = &mut pause => return,
                event = self.watcher.changed() => if event.event_type == zk::EventType::Session { return },
            }
        }
    }
}
