//! `lockkeeper handoff`: asks a holder to step down, over the lock's control node, as the operator does.

use std::time::Duration;

use lockkeeper_daemon::duration;
use lockkeeper_daemon::exit::{Exit, Failure};
use lockkeeper_lock::ensemble::EnsembleError;
use lockkeeper_lock::{Control, LONGEST_CONTROL_DATA, YieldRequest};
use uuid::Uuid;
use zookeeper_client as zk;

use super::ensemble::{Ensemble, failure};
use super::entry::Entry;
use super::missing;
use super::queue::{self, Depth, Queue};
use super::watch::Changes;
use crate::args::HandoffArgs;

/// Attempts to write the control node, which keepers write at each release.
const TRIES: u32 = 10;

/// Least time between two looks at the queue.
const LEAST: Duration = Duration::from_millis(100);

/// See [`super::handoff`].
pub(super) async fn handoff(args: HandoffArgs) -> Result<String, Failure> {
    let lock = args.lock.to_string();
    let control = args
        .control
        .map_or_else(|| format!("{lock}-control"), |path| path.to_string());
    let ensemble = Ensemble::connect(args.ensemble).await?;
    let mut changes = Changes::of(&ensemble, &lock)
        .await
        .map_err(|error| failure(&error.into(), &format!("cannot watch {lock}")))?;
    let before = queue::read(&ensemble, &lock, Depth::All)
        .await?
        .ok_or_else(|| missing(&lock))?;
    let holder = choose(&before, args.holder.as_deref())?;
    ask(&ensemble, &control, &holder.contender).await?;
    let handed_over = async {
        loop {
            let now = queue::read(&ensemble, &lock, Depth::All)
                .await?
                .ok_or_else(|| missing(&lock))?;
            if let Some(next) = successor(&now, &before, &holder.contender) {
                return Ok(format!(
                    "{} has stepped down, and {} holds {lock}",
                    holder.who(),
                    next.who()
                ));
            }
            if !changes.are_complete() {
                return Err(Failure::unavailable(format!(
                    "{} is asked to step down, and the connection to the ensemble was lost: see `lockkeeper inspect`",
                    holder.who()
                )));
            }
            changes.next(LEAST).await;
        }
    };
    let Some(timeout) = args.timeout else {
        return handed_over.await;
    };
    tokio::time::timeout(timeout, handed_over)
        .await
        .unwrap_or_else(|_| {
            let (holder, timeout) = (holder.who(), duration::format(timeout));
            let late = format!(
                "{holder} is asked to step down, and no other contender holds {lock} after {timeout}"
            );
            Err(Failure::new(Exit::TimedOut, late))
        })
}

/// The holder that is meant.
fn choose<'a>(queue: &'a Queue, wanted: Option<&str>) -> Result<&'a Entry, Failure> {
    let lock = &queue.lock;
    let meant: Vec<_> = queue
        .holders
        .iter()
        .filter(|one| wanted.is_none_or(|wanted| one.is(wanted)))
        .collect();
    let holder = match (meant.as_slice(), wanted) {
        ([holder], _) => *holder,
        ([], None) => return Err(Failure::unavailable(format!("no contender holds {lock}"))),
        ([], Some(wanted)) => {
            return Err(Failure::usage(format!(
                "--holder {wanted} holds {lock} not: see `lockkeeper inspect --lock {lock}` for the holders"
            )));
        }
        (several, _) => {
            return Err(Failure::usage(format!(
                "{} contenders hold {lock}: name one of them by --holder, with its contender as `lockkeeper inspect \
                 --lock {lock}` shows it",
                several.len()
            )));
        }
    };
    if holder.unreadable {
        return Err(Failure::new(
            Exit::Refused,
            format!(
                "we may not read {}, so nobody knows whether it can be asked: give --auth-file with an identity that \
                 may",
                holder.contender
            ),
        ));
    }
    match holder.state.as_deref() {
        None => {
            return Err(Failure::unavailable(format!(
                "{} is another client and no keeper of Lockkeeper: it cannot be asked to step down",
                holder.who()
            )));
        }
        Some("held") => {}
        Some(_) => {
            return Err(Failure::unavailable(format!(
                "{} is first and does not hold {lock} yet",
                holder.who()
            )));
        }
    }
    if queue.waiting == 0 {
        return Err(Failure::unavailable(format!("no contender waits for {lock}")));
    }
    Ok(holder)
}

/// Writes the request into the control node, and keeps all else that it holds.
async fn ask(ensemble: &Ensemble, control: &str, contender: &str) -> Result<(), Failure> {
    let failed = |error: EnsembleError| failure(&error, &format!("cannot write the control node {control}"));
    let request = YieldRequest {
        id: Uuid::new_v4().to_string(),
        contenders: vec![contender.to_owned()],
    };
    for _ in 0..TRIES {
        let node = ensemble
            .node(control, LONGEST_CONTROL_DATA)
            .await
            .map_err(failed)?;
        let node = node.ok_or_else(|| failed(EnsembleError::NoNode))?;
        let Some(stat) = node.stat.filter(|_| node.is_readable) else {
            return Err(failed(EnsembleError::NoAuth));
        };
        let before = Control::parse(&node.data);
        if before.asks(contender) {
            return Ok(());
        }
        let data = before.with_yield(request.clone()).to_data();
        let path = ensemble.whole(control);
        let written = ensemble.answer(async {
            match ensemble
                .connection
                .set_data(&path, &data, Some(stat.version))
                .await
            {
                Ok(_) => Ok(true),
                // A release came between.
                Err(zk::Error::BadVersion) => Ok(false),
                Err(error) => Err(error.into()),
            }
        });
        if written.await.map_err(failed)? {
            return Ok(());
        }
    }
    Err(failed(EnsembleError::BadVersion))
}

/// Who holds in the place of the one that was asked.
fn successor<'a>(now: &'a Queue, before: &Queue, asked: &str) -> Option<&'a Entry> {
    let is_there = now.holders.iter().any(|one| one.contender == asked);
    let is_new = |one: &&Entry| before.holders.iter().all(|old| old.contender != one.contender);
    // Another client does not say whether it holds: it is first.
    let holds = |one: &&Entry| one.state.as_deref().is_none_or(|state| state == "held");
    now.holders
        .iter()
        .filter(is_new)
        .find(holds)
        .filter(|_| !is_there)
}
