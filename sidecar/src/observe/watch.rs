//! `lockkeeper watch`: a lock, and each change of its queue.

use std::time::Duration;

use futures_util::FutureExt;
use lockkeeper_daemon::exit::{self, Failure};
use lockkeeper_lock::BootInstant;
use zookeeper_client as zk;

use super::ensemble::{Ensemble, failure};
use super::queue::{self, Depth, Queue};
use super::{missing, show};
use crate::args::WatchArgs;
use crate::client::OutputFormat;

/// Least time between two readings: contenders may renew many times a second, and each renewal changes a node.
const LEAST: Duration = Duration::from_millis(200);

/// And so many times as long as the last reading took, so that a long queue costs the ensemble a tenth of its time at most.
const SHARE: u32 = 10;

/// Time between two attempts to connect after a connection was lost.
const AGAIN: Duration = Duration::from_secs(1);

/// Shows what is new.
struct Printer<P> {
    print: P,
    output: OutputFormat,
    last: Option<Queue>,
}

/// See [`super::watch`].
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
    if queue::read(&ensemble, &lock, Depth::All).await?.is_none() {
        return Err(missing(&lock));
    }
    loop {
        match Changes::of(&ensemble, &lock).await {
            Ok(mut changes) => {
                while changes.are_complete() {
                    let begun = BootInstant::now();
                    match queue::read(&ensemble, &lock, Depth::All).await {
                        Ok(queue) => printer.show(queue.unwrap_or_else(|| Queue::gone(&lock)))?,
                        Err(failure) => {
                            exit::tell(&failure.sentence);
                            break;
                        }
                    }
                    let pause = LEAST.max((BootInstant::now() - begun) * SHARE);
                    changes.next(pause).await;
                }
            }
            Err(error) => exit::tell(&failure(&error.into(), &format!("cannot watch {lock}")).sentence),
        }
        exit::tell("connecting to the ensemble again; changes meanwhile are not shown one by one");
        ensemble = loop {
            tokio::time::sleep(AGAIN).await;
            if let Ok(ensemble) = Ensemble::connect(args.ensemble.clone()).await {
                break ensemble;
            }
        };
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
    pub(super) async fn of(ensemble: &'a Ensemble, lock: &str) -> Result<Self, zk::Error> {
        let path = ensemble.whole(lock);
        let watcher = ensemble
            .connection
            .watch(&path, zk::AddWatchMode::PersistentRecursive)
            .await?;
        Ok(Self { ensemble, watcher })
    }

    /// Whether none was missed: the connection was never interrupted.
    pub(super) fn are_complete(&self) -> bool {
        self.ensemble.connection.is_intact()
    }

    /// Waits for a change, and then for `pause`, in which further ones come to the same reading; or for the end of the
    /// connection.
    pub(super) async fn next(&mut self, pause: Duration) {
        if self.watcher.changed().await.event_type == zk::EventType::Session {
            return;
        }
        tokio::time::sleep(pause).await;
        // After the event of a session that has ended there is none.
        while self.are_complete() && self.watcher.changed().now_or_never().is_some() {}
    }
}
