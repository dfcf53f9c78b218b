//! `lockkeeper list`, `inspect`, `watch`, `history`, `handoff` and `ui`: what the ensemble itself says of locks, from any
//! machine that reaches it. They hold no lock and stand in no queue.

mod control;
mod ensemble;
mod entry;
mod find;
mod handoff;
mod history;
mod queue;
mod show;
mod ui;
mod watch;

use lockkeeper_daemon::exit::{self, Exit, Failure};
use lockkeeper_daemon::table::plain;

use crate::args::{HandoffArgs, HistoryArgs, InspectArgs, ListArgs, OutputFormat, UiArgs, WatchArgs};
use crate::process::block_on;
use ensemble::Ensemble;
use find::Found;
use queue::{Depth, Queue};

/// The locks whose paths match a pattern, one line for each, or as a JSON array.
///
/// # Errors
/// When the ensemble cannot be asked, or more nodes match than are looked at.
pub fn list(args: ListArgs) -> Result<String, Failure> {
    block_on(async {
        let ensemble = Ensemble::connect(args.ensemble).await?;
        let Found { paths, mut left_out } = find::find(&ensemble, &args.locks.pattern).await?;
        let mut queues = Vec::new();
        for path in paths {
            match queue::read(&ensemble, &path, Depth::Holders).await {
                // It may have gone meanwhile, or be something else.
                Ok(queue) => queues.extend(queue.filter(Queue::is_lock)),
                Err(failure) => left_out.add(&ensemble, failure)?,
            }
        }
        if let Some(refusal) = left_out.refusal().filter(|_| queues.is_empty()) {
            return Err(refusal);
        }
        if let Some(sentence) = left_out.sentence() {
            exit::tell(&sentence);
        }
        Ok(match args.output.output {
            OutputFormat::Text => show::table(&queues, show::now()),
            OutputFormat::Json => show::json(&queues),
        })
    })
}

/// Everything about one lock: its holders and its whole queue.
///
/// # Errors
/// When the ensemble cannot be asked, or the lock's node is missing.
pub fn inspect(args: InspectArgs) -> Result<String, Failure> {
    block_on(async {
        let ensemble = Ensemble::connect(args.ensemble).await?;
        let lock = args.lock.to_string();
        let queue = queue::read(&ensemble, &lock, Depth::All)
            .await?
            .ok_or_else(|| missing(&lock))?;
        Ok(match args.output.output {
            OutputFormat::Text => show::queue(&queue, show::now()),
            OutputFormat::Json => show::json(&queue),
        })
    })
}

/// Who holds a lock and who has held it, as its control node remembers.
///
/// # Errors
/// When the ensemble cannot be asked, or the lock's node is missing.
pub fn history(args: HistoryArgs) -> Result<String, Failure> {
    block_on(history::history(args))
}

/// Calls `print` with the lock as it is, and again whenever its queue has changed, until `print` fails.
///
/// # Errors
/// When the ensemble cannot be asked at the beginning, and what `print` returns.
pub fn watch(args: WatchArgs, print: impl FnMut(&str) -> Result<(), Failure>) -> Result<(), Failure> {
    block_on(watch::watch(args, print))
}

/// Asks a holder to step down, and waits until its place is another contender's. Returns who got it, in words.
///
/// # Errors
/// When the ensemble cannot be asked, when there is no holder that can be asked or no other contender, and after the
/// timeout.
pub fn handoff(args: HandoffArgs) -> Result<String, Failure> {
    block_on(handoff::handoff(args)).map(|outcome| plain(&outcome))
}

/// Serves a page with the locks whose paths match a pattern, and prints its address. Ends by SIGINT or SIGTERM.
///
/// # Errors
/// When the ensemble cannot be asked at the beginning, or refuses us for good later; when the port cannot be used; and what
/// `print` returns.
pub fn ui(args: UiArgs, print: impl FnMut(&str) -> Result<(), Failure>) -> Result<(), Failure> {
    block_on(ui::ui(args, print))
}

fn missing(lock: &str) -> Failure {
    Failure::new(
        Exit::Unavailable,
        format!("there is no node {lock} in this ensemble: see `lockkeeper list` for those that are there"),
    )
}
