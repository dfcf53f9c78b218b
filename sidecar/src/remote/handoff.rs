//! `lockkeeper handoff`: asks a holder to step down, over the lock's control node, as the operator does.

use std::collections::HashSet;

use lockkeeper_daemon::duration;
use lockkeeper_daemon::exit::{self, Exit, Failure};
use lockkeeper_lock::ensemble::EnsembleError;
use lockkeeper_lock::{BootInstant, Control, YieldRequest};
use uuid::Uuid;
use zookeeper_client as zk;

use super::ensemble::Ensemble;
use super::entry::Entry;
use super::queue::{self, Depth, Queue};
use super::watch::{Changes, connect_again};
use super::{control, missing};
use crate::args::HandoffArgs;

/// Attempts to write the control node, which keepers write at each release.
const TRIES: u32 = 10;

/// A handoff under way.
struct Handoff {
    lock: String,
    control: String,
    /// Who is asked.
    holder: Entry,
    /// Everybody who has waited while the holder was there. Who steps down comes back under another name, which is none of
    /// these.
    waited: HashSet<String>,
    /// Who held when the holder was seen last: those beside it are nobody's successors.
    held: HashSet<String>,
}

/// See [`super::handoff()`].
pub(super) async fn handoff(args: HandoffArgs) -> Result<String, Failure> {
    let lock = args.lock.to_string();
    let control = control::path(&lock, args.control);
    let mut ensemble = Ensemble::connect(args.ensemble.clone()).await?;
    let before = queue::read(&ensemble, &lock, Depth::All).await?;
    let before = before.ok_or_else(|| missing(&lock))?;
    let holder = choose(&before, args.holder.as_deref())?.clone();
    let who = holder.who();
    let mut handoff = Handoff {
        lock,
        control,
        holder,
        waited: HashSet::new(),
        held: HashSet::new(),
    };
    handoff.ask(&ensemble, &before).await?;
    let handed_over = async {
        loop {
            match handoff.follow(&ensemble).await {
                Ok(outcome) => return Ok(outcome),
                Err(failure) if ensemble.is_intact() => return Err(failure),
                Err(failure) => exit::tell(&format!("{failure}; connecting to the ensemble again")),
            }
            ensemble = connect_again(&args.ensemble).await?;
        }
    };
    let outcome = match args.timeout {
        None => handed_over.await,
        Some(timeout) => tokio::time::timeout(timeout, handed_over)
            .await
            .unwrap_or_else(|_| {
                let late = format!(
                    "no other contender holds the lock after {}",
                    duration::format(timeout)
                );
                Err(Failure::new(Exit::TimedOut, late))
            }),
    };
    outcome.map_err(|failure| Failure {
        sentence: format!("{who} is asked to step down; {}", failure.sentence),
        ..failure
    })
}

/// The holder that is meant.
fn choose<'a>(queue: &'a Queue, wanted: Option<&str>) -> Result<&'a Entry, Failure> {
    let lock = &queue.lock;
    let see = format!("see `lockkeeper inspect --lock {lock}`");
    let is_meant = |one: &&Entry| wanted.is_none_or(|wanted| one.is(wanted));
    let meant: Vec<_> = queue.holders.iter().filter(is_meant).collect();
    let holder = match (meant.as_slice(), wanted) {
        ([holder], _) => *holder,
        ([], None) => return Err(Failure::unavailable(format!("no contender holds {lock}"))),
        ([], Some(wanted)) => {
            return Err(Failure::usage(format!(
                "--holder {wanted} does not hold {lock}: {see}"
            )));
        }
        (several, _) => {
            return Err(Failure::usage(format!(
                "{} contenders hold {lock}: name one of them by --holder, with the name of its contender; {see}",
                several.len()
            )));
        }
    };
    if holder.unreadable {
        return Err(Failure::new(
            Exit::Refused,
            format!(
                "we may not read {}, so it is not known whether it can be asked: give --auth-file with an identity that \
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
            let early = format!("{} is first and does not hold {lock} yet", holder.who());
            return Err(Failure::unavailable(early));
        }
    }
    if queue.waiting == 0 {
        return Err(Failure::unavailable(format!("no contender waits for {lock}")));
    }
    Ok(holder)
}

impl Handoff {
    /// Follows the queue over one connection, until the holder has gone and another contender holds. Asks again if
    /// another request has taken the place of ours.
    async fn follow(&mut self, ensemble: &Ensemble) -> Result<String, Failure> {
        let mut changes = Changes::of(ensemble, &self.lock).await?;
        loop {
            let begun = BootInstant::now();
            let now = queue::read(ensemble, &self.lock, Depth::All).await?;
            let now = now.ok_or_else(|| missing(&self.lock))?;
            if now.all().any(|one| one.contender == self.holder.contender) {
                self.ask(ensemble, &now).await?;
            } else if let Some(next) = now
                .holders
                .iter()
                .find(|one| one.is_holding() && self.has_waited(one))
            {
                return self.outcome(ensemble, next).await;
            } else if !now.all().any(|one| self.has_waited(one)) {
                let (lock, who) = (&self.lock, self.holder.who());
                return Err(Failure::unavailable(format!(
                    "{who} has left its place, and so have all who waited for {lock} then"
                )));
            }
            if !changes.are_complete() {
                return Err(Failure::unavailable("the connection to the ensemble was lost"));
            }
            changes.next(begun).await;
        }
    }

    fn has_waited(&self, one: &Entry) -> bool {
        self.waited.contains(&one.contender) && !self.held.contains(&one.contender)
    }

    /// Who has got the lock, in words.
    async fn outcome(&self, ensemble: &Ensemble, next: &Entry) -> Result<String, Failure> {
        let (_, control) = self.control(ensemble).await?;
        let (who, next, lock) = (self.holder.who(), next.who(), &self.lock);
        Ok(match control.released(&self.holder.contender) {
            true => format!("{who} has stepped down, and {next} holds {lock}"),
            false => format!("{who} is gone without a release, and {next} holds {lock}"),
        })
    }

    /// Writes the request into the control node, unless it is there, and keeps all else that it holds. What others have
    /// asked of contenders that are still there stays, too.
    async fn ask(&mut self, ensemble: &Ensemble, queue: &Queue) -> Result<(), Failure> {
        self.waited.extend(queue.all().map(|one| one.contender.clone()));
        self.held = queue.holders.iter().map(|one| one.contender.clone()).collect();
        for _ in 0..TRIES {
            let (version, before) = self.control(ensemble).await?;
            if before.asks(&self.holder.contender) {
                return Ok(());
            }
            let others = before
                .yield_request
                .iter()
                .flat_map(|request| &request.contenders);
            let is_there = |name: &&String| queue.all().any(|one| one.contender == **name);
            let contenders = std::iter::once(&self.holder.contender).chain(others.filter(is_there));
            let request = YieldRequest {
                id: Uuid::new_v4().to_string(),
                contenders: contenders.cloned().collect(),
            };
            if self
                .write(ensemble, version, &before.with_yield(request).to_data())
                .await?
            {
                return Ok(());
            }
        }
        Err(control::failed(&self.control, &EnsembleError::BadVersion))
    }

    /// False if another client has written meanwhile: a keeper that has released, for example.
    async fn write(&self, ensemble: &Ensemble, version: i32, data: &[u8]) -> Result<bool, Failure> {
        let path = ensemble.whole(&self.control);
        let written = ensemble.answer(async {
            match ensemble.connection.set_data(&path, data, Some(version)).await {
                Ok(_) => Ok(true),
                Err(zk::Error::BadVersion) => Ok(false),
                Err(error) => Err(error.into()),
            }
        });
        written
            .await
            .map_err(|error| control::failed(&self.control, &error))
    }

    /// The control node, and its version.
    async fn control(&self, ensemble: &Ensemble) -> Result<(i32, Control), Failure> {
        // If another client has something else there, that would be lost.
        let found = control::read(ensemble, &self.control).await?;
        found.ok_or_else(|| Failure::unavailable(control::missing(&self.control, "handoff")))
    }
}
